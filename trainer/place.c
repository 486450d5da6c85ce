/* Finds out which ranks share a host, and orders and reports by that. */
#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "param.h"

/* What a rank says of its place: hosts may share a name (containers, namespaces), so the launcher's
 * rank on the host tells them apart where they do. */
struct card {
    uint64_t name;
    int64_t local_rank;
};

static tr_status gather_cards(const struct tr_mesh *mesh, struct card *cards)
{
    char name[256] = "";
    int rank = 0, nranks = 1, local = 0;
    gethostname(name, sizeof name - 1);
    TR_TRY(tr_mesh_check(mesh, tuttiGetLauncher(&rank, &nranks, &local), "asking the launcher"));
    if (nranks != mesh->nranks) local = mesh->rank; /* ranks are threads: one host */
    const struct card mine = {tr_checksum(name, strlen(name)), local};
    return tr_mesh_check(mesh, tuttiAllGather(&mine, cards, 2, tuttiUint64, mesh->world, NULL),
                         "finding out which ranks share a host");
}

/* host[nranks]: a rank's host is that of the latest earlier rank of the same name, unless the
 * launcher's rank on the host did not grow. */
static void number_hosts(const struct card *cards, int nranks, int *host)
{
    int nhosts = 0;
    for (int r = 0; r < nranks; ++r) {
        host[r] = -1;
        for (int before = r - 1; before >= 0 && host[r] < 0; --before)
            if (cards[before].name == cards[r].name) {
                if (cards[before].local_rank >= cards[r].local_rank) break;
                host[r] = host[before];
            }
        if (host[r] < 0) host[r] = nhosts++;
    }
}

static tr_status find_hosts(const struct tr_mesh *mesh, int **host)
{
    struct card *cards = calloc((size_t)mesh->nranks, sizeof *cards);
    *host = calloc((size_t)mesh->nranks, sizeof **host);
    tr_status status = cards && *host ? TR_OK : tr_fail("out of memory for %d ranks", mesh->nranks);
    status = tr_mesh_agree(mesh, status);
    if (status == TR_OK) status = gather_cards(mesh, cards);
    if (status == TR_OK) number_hosts(cards, mesh->nranks, *host);
    free(cards);
    if (status < 0) {
        free(*host);
        *host = NULL;
    }
    return status;
}

bool tr_place_order(const int *host, int nranks, int *order)
{
    int n = 0;
    for (int first = 0; first < nranks; ++first) {
        bool seen = false;
        for (int r = 0; r < first; ++r) seen |= host[r] == host[first];
        for (int r = first; !seen && r < nranks; ++r)
            if (host[r] == host[first]) order[n++] = r;
    }
    for (int i = 0; i < nranks; ++i)
        if (order[i] != i) return true;
    return false;
}

bool tr_place_fits(const int *host, int nranks, int n, int *first)
{
    for (*first = 0; *first < nranks; *first += n)
        for (int r = *first + 1; r < *first + n; ++r)
            if (host[r] != host[*first]) return false;
    return true;
}

static tr_status renumber(struct tr_mesh *mesh, const int *order)
{
    int place = 0;
    while (order[place] != mesh->rank) ++place;
    tuttiComm_t ordered = NULL;
    TR_TRY(tr_mesh_check(mesh, tuttiCommSplit(mesh->world, 0, place, &ordered, NULL),
                         "ordering the ranks by host"));
    if (mesh->rank == 0)
        printf("note: the launcher did not number ranks host by host, so the mesh does: its rank "
               "1 is the launcher's rank %d\n",
               order[1]);
    tuttiCommFinalize(mesh->world);
    tuttiCommDestroy(mesh->world);
    mesh->world = NULL;
    return tr_mesh_init(mesh, ordered);
}

tr_status tr_place_ranks(struct tr_mesh *mesh)
{
    if (mesh->nranks == 1) return TR_OK;
    int *host = NULL;
    TR_TRY(find_hosts(mesh, &host));
    int *order = calloc((size_t)mesh->nranks, sizeof *order);
    tr_status status =
        tr_mesh_agree(mesh, order ? TR_OK : tr_fail("out of memory for %d ranks", mesh->nranks));
    if (status == TR_OK && tr_place_order(host, mesh->nranks, order))
        status = renumber(mesh, order);
    free(order);
    free(host);
    return status;
}

tr_status tr_place_report(const struct tr_mesh *mesh)
{
    const int tp = mesh->size[TR_TP], ulysses = mesh->size[TR_ULYSSES];
    if (tp == 1 && ulysses == 1) return TR_OK;
    int *host = NULL, first = 0;
    TR_TRY(find_hosts(mesh, &host));
    const bool tp_fits = tr_place_fits(host, mesh->nranks, tp, &first);
    const bool fits = tp_fits && tr_place_fits(host, mesh->nranks, tp * ulysses, &first);
    if (!fits && mesh->rank == 0)
        printf("note: %s over hosts (ranks %d to %d are not on one host): exchanges inside every "
               "layer use the network\n",
               tp_fits       ? "ulysses reaches"
               : ulysses > 1 ? "tp and ulysses reach"
                             : "tp reaches",
               first, first + (tp_fits ? tp * ulysses : tp) - 1);
    free(host);
    return TR_OK;
}

/* needs[nranks]: of all ranks; *host as find_hosts says. */
static tr_status gather_needs(const struct tr_mesh *mesh, const struct tr_need *need,
                              struct tr_need *needs, int **host)
{
    _Static_assert(sizeof *need % sizeof(uint64_t) == 0, "sent as numbers");
    if (mesh->nranks == 1) {
        needs[0] = *need;
        *host = NULL;
        return TR_OK;
    }
    TR_TRY(find_hosts(mesh, host));
    const tr_status status =
        tr_mesh_check(mesh,
                      tuttiAllGather(need, needs, sizeof *need / sizeof(uint64_t), tuttiUint64,
                                     mesh->world, NULL),
                      "adding up the memory of a host");
    if (status < 0) free(*host);
    return status;
}

tr_status tr_place_needs(const struct tr_mesh *mesh, const struct tr_need *need,
                         struct tr_need **needs, int *nneeds, int *own)
{
    struct tr_need *all = calloc((size_t)mesh->nranks, sizeof *all);
    int *host = NULL;
    tr_status status =
        tr_mesh_agree(mesh, all ? TR_OK : tr_fail("out of memory for %d ranks", mesh->nranks));
    if (status == TR_OK) status = gather_needs(mesh, need, all, &host);
    if (status < 0) {
        free(all);
        return status;
    }
    int n = 0;
    for (int r = 0; r < mesh->nranks; ++r) {
        if (host && host[r] != host[mesh->rank]) continue;
        if (r == mesh->rank) *own = n;
        all[n++] = all[r];
    }
    free(host);
    *needs = all;
    *nneeds = n;
    return TR_OK;
}
