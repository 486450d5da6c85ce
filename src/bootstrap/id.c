/* Makes unique ids: the address of the root and a random key. */
#include <sodium.h>
#include <string.h>

#include "base/clock.h"
#include "base/config.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/place.h"
#include "bootstrap/root.h"
#include "net/handshake.h"
#include "net/interface.h"

_Static_assert(sizeof(struct tt_unique_id) == 128, "it must fit tuttiUniqueId");

void tt_id_fill(struct tt_unique_id *id, const struct tt_address *address)
{
    id->magic = TT_ID_MAGIC;
    id->version = TT_ID_VERSION;
    id->address_bytes = address->nbytes;
    memcpy(id->address, address->bytes, sizeof id->address);
}

void tt_id_set_sequence(struct tt_unique_id *id, uint64_t sequence)
{
    uint8_t wire[8];
    for (int i = 0; i < 8; i++) wire[i] = (uint8_t)(sequence >> 8 * i);
    crypto_generichash(id->key, sizeof id->key, wire, sizeof wire, id->base, sizeof id->base);
    id->sequence = sequence;
    id->flags &= ~(uint32_t)TT_ID_UNMET;
}

bool tt_id_has_address(const struct tt_unique_id *id, struct tt_address *address)
{
    *address = (struct tt_address){.nbytes = id->address_bytes};
    memcpy(address->bytes, id->address, sizeof address->bytes);
    return id->magic == TT_ID_MAGIC && tt_address_valid(address) && id->nports <= TT_PLACE_PORTS;
}

tt_status tt_id_address(struct tt_address *address, const struct tt_unique_id *id)
{
    struct tt_address found;
    if (!tt_id_has_address(id, &found))
        return tt_fail(TT_ERR_ARGUMENT, "these bytes are no unique id: give all ranks the one that "
                                        "tuttiGetUniqueId made, unchanged (128 bytes)");
    if (id->version != TT_ID_VERSION)
        return tt_fail(TT_ERR_USAGE,
                       "the unique id has version %u, this library makes %d: use one tutti on all "
                       "ranks",
                       id->version, TT_ID_VERSION);
    *address = found;
    return TT_OK;
}

tt_status tt_id_make(struct tt_unique_id *id, int *listener)
{
    struct tt_address address;
    TT_TRY(tt_address_of_host(&address));
    const bool local = tt_address_is_loopback(&address);
    TT_TRY(tt_socket_listen(listener, &address, !local));
    *id = (struct tt_unique_id){.flags = local ? TT_ID_LOCAL : 0};
    randombytes_buf(id->key, sizeof id->key);
    tt_id_fill(id, &address);
    return TT_OK;
}

/* How long an id waits for its first rank: as long as an init waits for the other ranks. With
 * NCCL's settings there is no deadline unless the user gives one. */
static int64_t patience_ms(void)
{
    const bool is_given = strcmp(tt_config_source(TT_CONFIG_INIT_TIMEOUT_MS), "default") != 0;
    return tt_config_with_nccl() && !is_given ? 0 : tt_config_int(TT_CONFIG_INIT_TIMEOUT_MS);
}

tt_status tt_unique_id_create(struct tt_unique_id *id)
{
    int listener;
    struct tt_unique_id made;
    TT_TRY(tt_handshake_prepare());
    TT_TRY(tt_id_make(&made, &listener));
    const int64_t deadline_ns = tt_deadline_ns(patience_ms());
    const tt_status status = tt_root_start_idle(listener, &made, deadline_ns);
    if (status == TT_OK) memcpy(id, &made, sizeof *id);
    sodium_memzero(made.key, sizeof made.key);
    return status;
}
