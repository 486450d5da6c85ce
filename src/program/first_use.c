/* Proves a program before its first use and remembers, per process, which ones are proved. */
#include "program/first_use.h"

#include <stdatomic.h>
#include <string.h>

#include "base/process_lock.h"
#include "program/covered.h"
#include "program/proof.h"

enum { MOST_KEPT = 128 };

/* What was proved: the programs of an algorithm on these hosts, for a count or for any. */
struct proved {
    const struct tt_algorithm *_Atomic algorithm; /* lives as long as the process */
    int nranks, root;
    size_t count;
    bool any_count;
    bool one_host;
    uint8_t host_of[TT_PROOF_MOST_RANKS];
};

/* All ranks of the process share it. The oldest is forgotten first. */
static struct tt_process_lock lock = TT_PROCESS_LOCK;
static struct proved kept[MOST_KEPT]; /* guarded by lock, with what follows */
static uint64_t nproved, nproofs;

static struct proved key_of(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                            size_t count)
{
    struct proved key = {
        .algorithm = algorithm, .nranks = shape->nranks, .root = shape->root, .count = count};
    key.one_host = shape->hosts && shape->hosts->one_host;
    for (int r = 0; shape->hosts && r < shape->nranks; r++)
        key.host_of[r] = (uint8_t)shape->hosts->host_of[r];
    return key;
}

static const struct proved *find_locked(const struct proved *key)
{
    for (int i = 0; i < MOST_KEPT; i++) {
        const struct proved *one = &kept[i];
        if (one->algorithm == key->algorithm && one->nranks == key->nranks &&
            one->root == key->root && one->one_host == key->one_host &&
            (one->any_count || one->count == key->count) &&
            memcmp(one->host_of, key->host_of, sizeof one->host_of) == 0)
            return one;
    }
    return NULL;
}

/* The algorithm comes last: a child made by fork() takes an entry without one as empty. */
static void keep_locked(const struct proved *key)
{
    struct proved *place = &kept[nproved++ % MOST_KEPT];
    atomic_store(&place->algorithm, NULL);
    place->nranks = key->nranks;
    place->root = key->root;
    place->count = key->count;
    place->any_count = key->any_count;
    place->one_host = key->one_host;
    memcpy(place->host_of, key->host_of, sizeof place->host_of);
    atomic_store_explicit(&place->algorithm, key->algorithm, memory_order_release);
}

static tt_status prove(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                       size_t count, bool *any_count)
{
    struct tt_proof *proof;
    struct tt_verify_report report = {.text = ""};
    TT_TRY(tt_proof_create(algorithm, shape, &proof));
    tt_status status = tt_proof_run(proof, count, &report);
    *any_count = report.any_count;
    if (!status && algorithm->uneven) status = tt_proof_run_uneven(proof, NULL, &report);
    tt_proof_destroy(proof);
    if (status != TT_ERR_USAGE) return status;
    return tt_fail(TT_ERR_INTERNAL,
                   "the programs of %s:%s over %d ranks, root %d, count %zu are wrong, so the call "
                   "did not run (choose another algorithm): %s",
                   tt_collective_name(shape->collective), algorithm->name, shape->nranks,
                   shape->root, count, report.text);
}

static tt_status prove_locked(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                              size_t count, bool *any_count)
{
    struct proved key = key_of(algorithm, shape, count);
    const struct proved *found = find_locked(&key);
    if (found) {
        *any_count = found->any_count;
        return TT_OK;
    }
    nproofs++;
    TT_TRY(prove(algorithm, shape, count, any_count));
    key.any_count = *any_count;
    keep_locked(&key);
    return TT_OK;
}

tt_status tt_prove_first_use(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                             size_t count, bool *any_count)
{
    *any_count = true;
    if (shape->nranks > TT_PROOF_MOST_RANKS || tt_proof_covers(algorithm, shape)) return TT_OK;
    tt_process_lock(&lock);
    const tt_status status = prove_locked(algorithm, shape, count, any_count);
    tt_process_unlock(&lock);
    return status;
}

uint64_t tt_first_use_proofs(void)
{
    tt_process_lock(&lock);
    const uint64_t number = nproofs;
    tt_process_unlock(&lock);
    return number;
}
