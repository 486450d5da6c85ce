/* Memory of the ends of bridges and relays (bridge.h, relay.h): pinned, and, for slots that devices
 * of other hosts write to, memory of the GPU, registered with this rank's devices. It stays as long
 * as kernels may run. */
#ifndef TT_CARRIER_KERNEL_ENDS_H
#define TT_CARRIER_KERNEL_ENDS_H

#include "carrier/carrier.h"
#include "carrier/kernel/bridge.h"

struct tt_ends;

/* Memory of an end, as tt_bridges_lay takes it: zeroed, but for slots in memory of the GPU. */
struct tt_end_memory {
    char *words;
    char *slots; /* NULL: they follow the words */
};

/* An end that is bound, and its place in device memory, in the table of the room. */
struct tt_bound_end {
    struct tt_device_end *to;
    struct tt_device_end end;
};

/* At init, by a rank on a GPU: tries whether its devices can use memory of that GPU. SYSTEM: out of
 * memory. */
TT_NODISCARD tt_status tt_ends_create(struct tt_ends **ends, struct tt_comm_core *comm);
/* Whether slots may be memory of the GPU, as far as this rank is concerned. */
bool tt_ends_may_be_in_gpu(const struct tt_ends *ends);
/* Memory for so many ends that are not bound, of which n_in_gpu have slots in memory of the GPU.
 * Where such memory cannot be had, or registered, which is said in the log once, all of them get
 * memory of the host, as tt_ends_may_be_in_gpu says then. By the issuing thread. SYSTEM: out of
 * memory. */
TT_NODISCARD tt_status tt_ends_reserve(struct tt_ends *ends, const struct tt_bridge_shape *shape,
                                       size_t nends, size_t n_in_gpu);
/* The next memory that was reserved; the same until it is taken. */
struct tt_end_memory tt_ends_next(const struct tt_ends *ends, bool in_gpu);
void tt_ends_take(struct tt_ends *ends, bool in_gpu);
/* Keeps an end that is to be copied to the GPU in front of the next kernel, which may be the first
 * one that uses it. By the issuing thread. SYSTEM: out of memory. */
TT_NODISCARD tt_status tt_ends_bind(struct tt_ends *ends, const struct tt_bound_end *bound);
/* The ends that are kept so, as they were bound: where two have one place, the later one counts. */
const struct tt_bound_end *tt_ends_bound(const struct tt_ends *ends, size_t *nbound);
/* Keeps none of the ends any more: the next kernel comes after their copies. */
void tt_ends_copied(struct tt_ends *ends);
/* "; its bridges to other hosts have 1.0 MiB, pinned, and 4.0 MiB of the GPU, for slots". */
void tt_ends_describe(const struct tt_ends *ends, char *text, size_t size);
/* Bytes of pinned memory held. */
size_t tt_ends_bytes(const struct tt_ends *ends);
/* No kernel uses the memory any more; devices of the fabric's wires may: memory of the GPU is freed
 * when these are destroyed, too. NULL is allowed. */
void tt_ends_destroy(struct tt_ends *ends, struct tt_context *context);

#endif
