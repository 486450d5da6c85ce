/* In a build without CUDA's header there are no GPUs. */
#include "driver/capture.h"
#include "driver/context.h"
#include "driver/device_memory.h"
#include "driver/driver.h"

static const char reason[] = "tutti was built without CUDA's header (cuda.h)";

int tt_driver_ngpus(const char **why)
{
    if (why) *why = reason;
    return 0;
}

bool tt_driver_is_in_use(void)
{
    return false;
}

int tt_driver_current(void)
{
    return -1;
}

int tt_driver_default(void)
{
    return -1;
}

tt_status tt_driver_gpu(int number, struct tt_gpu *gpu)
{
    (void)gpu;
    return tt_fail(TT_ERR_ARGUMENT, "GPU %d does not exist: %s", number, reason);
}

bool tt_driver_peers(int number, int peer)
{
    (void)number;
    (void)peer;
    return false;
}

void tt_driver_pcie_path(int number, char path[TT_PCIE_PATH])
{
    (void)number;
    path[0] = '\0';
}

enum tt_distance tt_driver_distance(int number, int peer)
{
    return number == peer ? TT_NEAR : TT_DISTANCE_UNKNOWN;
}

const char *tt_distance_text(enum tt_distance distance)
{
    (void)distance;
    return "nothing";
}

tt_status tt_driver_pointer(const void *pointer, struct tt_pointer *result)
{
    (void)pointer;
    *result = (struct tt_pointer){.kind = TT_POINTER_HOST, .gpu = -1};
    return TT_OK;
}

tt_status tt_context_open(int gpu, struct tt_context **context)
{
    (void)context;
    return tt_fail(TT_ERR_ARGUMENT, "GPU %d does not exist: %s", gpu, reason);
}

tt_status tt_driver_allocate(int gpu, size_t nbytes, void **memory)
{
    (void)nbytes, (void)memory;
    return tt_fail(TT_ERR_ARGUMENT, "GPU %d does not exist: %s", gpu, reason);
}

uint64_t tt_driver_memory_changes(void)
{
    return 0;
}

bool tt_driver_find_memory(const void *memory, size_t *nbytes)
{
    (void)memory, (void)nbytes;
    return false;
}

tt_status tt_driver_free(void *memory)
{
    return tt_fail(TT_ERR_ARGUMENT, "%p is no memory of a GPU: %s", memory, reason);
}

/* No memory was ever given, so none is lent. */
struct tt_lent_memory *tt_driver_lend(const void *memory)
{
    (void)memory;
    return NULL;
}

bool tt_driver_is_freed(const struct tt_lent_memory *lent)
{
    (void)lent;
    return true;
}

void tt_driver_take_back(struct tt_lent_memory *lent)
{
    (void)lent;
}

tt_status tt_context_hold(int gpu, struct tt_context **context)
{
    return tt_context_open(gpu, context);
}

tt_status tt_stream_find_id(int gpu, void *stream, uint64_t *id)
{
    (void)stream, (void)id;
    return tt_fail(TT_ERR_ARGUMENT, "GPU %d does not exist: %s", gpu, reason);
}

/* No context was ever opened, so nobody calls what follows. */
void tt_context_drop(struct tt_context *context)
{
    (void)context;
}

void tt_context_close(struct tt_context *context)
{
    (void)context;
}

int tt_context_gpu(const struct tt_context *context)
{
    (void)context;
    return -1;
}

static tt_status refuse(void)
{
    return tt_fail(TT_ERR_INTERNAL, "there is no context of a GPU: %s", reason);
}

bool tt_context_is_reset(struct tt_context *context)
{
    (void)context;
    return false;
}

tt_status tt_context_enter(struct tt_context *context)
{
    (void)context;
    return refuse();
}

void tt_context_leave(struct tt_context *context)
{
    (void)context;
}

tt_status tt_context_allocate(struct tt_context *context, size_t nbytes, void **memory)
{
    (void)context, (void)nbytes, (void)memory;
    return refuse();
}

tt_status tt_context_allocate_unset(struct tt_context *context, size_t nbytes, void **memory)
{
    (void)context, (void)nbytes, (void)memory;
    return refuse();
}

void tt_context_free(struct tt_context *context, void *memory)
{
    (void)context, (void)memory;
}

tt_status tt_context_allocate_host(struct tt_context *context, size_t nbytes, void **memory)
{
    (void)context, (void)nbytes, (void)memory;
    return refuse();
}

tt_status tt_context_allocate_lasting(struct tt_context *context, size_t nbytes, void **memory)
{
    (void)context, (void)nbytes, (void)memory;
    return refuse();
}

void tt_context_free_host(struct tt_context *context, void *memory)
{
    (void)context, (void)memory;
}

tt_status tt_context_upload(struct tt_context *context, void *to, const void *from, size_t nbytes)
{
    (void)context, (void)to, (void)from, (void)nbytes;
    return refuse();
}

tt_status tt_context_check_peer(const struct tt_context *context, int gpu)
{
    (void)context, (void)gpu;
    return refuse();
}

tt_status tt_context_reach(struct tt_context *context, int gpu)
{
    (void)context, (void)gpu;
    return refuse();
}

tt_status tt_context_share(struct tt_context *context, void *memory,
                           uint8_t handle[TT_CONTEXT_HANDLE])
{
    (void)context, (void)memory, (void)handle;
    return refuse();
}

tt_status tt_context_open_shared(struct tt_context *context,
                                 const uint8_t handle[TT_CONTEXT_HANDLE], bool may_wait,
                                 void **memory)
{
    (void)context, (void)handle, (void)may_wait, (void)memory;
    return refuse();
}

void tt_context_close_shared(struct tt_context *context, void *memory)
{
    (void)context, (void)memory;
}

void tt_context_list_user(struct tt_context *context, struct tt_context_user *user)
{
    (void)context, (void)user;
}

void tt_context_unlist_user(struct tt_context *context, const struct tt_context_user *user)
{
    (void)context, (void)user;
}

int tt_driver_connections(void)
{
    return 0;
}

void tt_context_begin_work(struct tt_context *context)
{
    (void)context;
}

void tt_context_end_work(struct tt_context *context)
{
    (void)context;
}

bool tt_context_let_go(struct tt_context *context)
{
    (void)context;
    return true;
}

bool tt_context_let_go_aside(struct tt_context *context)
{
    (void)context;
    return true;
}

tt_status tt_context_export(struct tt_context *context, const void *memory, size_t nbytes, int *fd,
                            char **base, size_t *exported)
{
    (void)context, (void)memory, (void)nbytes, (void)fd, (void)base, (void)exported;
    return refuse();
}

tt_status tt_context_stream_create(struct tt_context *context, void **stream)
{
    (void)context, (void)stream;
    return refuse();
}

void tt_context_stream_destroy(struct tt_context *context, void *stream)
{
    (void)context, (void)stream;
}

tt_status tt_context_stream_synchronize(struct tt_context *context, void *stream)
{
    (void)context, (void)stream;
    return refuse();
}

tt_status tt_context_stream_query(struct tt_context *context, void *stream)
{
    (void)context, (void)stream;
    return refuse();
}

tt_status tt_context_stream_capturing(struct tt_context *context, void *stream, bool *capturing)
{
    (void)context, (void)stream, (void)capturing;
    return refuse();
}

bool tt_context_is_legacy(const void *stream)
{
    return !stream;
}

bool tt_context_is_default(const void *stream)
{
    return !stream;
}

tt_status tt_context_check_stream(struct tt_context *context, void *stream,
                                  struct tt_stream_facts *facts)
{
    (void)context, (void)stream, (void)facts;
    return refuse();
}

tt_status tt_context_stream_follow(struct tt_context *context, void *after, void *before)
{
    (void)context, (void)after, (void)before;
    return refuse();
}

tt_status tt_context_stream_follow_now(struct tt_context *context, void *after, void *before)
{
    (void)context, (void)after, (void)before;
    return refuse();
}

tt_status tt_capture_find(struct tt_context *context, void *stream, uint64_t *id)
{
    (void)context, (void)stream, (void)id;
    return refuse();
}

tt_status tt_capture_open(struct tt_context *context, void *stream, struct tt_capture *capture)
{
    (void)context, (void)stream, (void)capture;
    return refuse();
}

void tt_capture_close(struct tt_capture *capture)
{
    (void)capture;
}

tt_status tt_capture_follow(struct tt_context *context, void *stream, void *node, bool alone)
{
    (void)context, (void)stream, (void)node, (void)alone;
    return refuse();
}

tt_status tt_capture_keep(struct tt_context *context, void *graph, void (*gone)(void *arg),
                          void *arg)
{
    (void)context, (void)graph, (void)gone, (void)arg;
    return refuse();
}

tt_status tt_capture_add_wait(struct tt_context *context, void *graph, void *const *after,
                              size_t nafter, void *event, void **node)
{
    (void)context, (void)graph, (void)after, (void)nafter, (void)event, (void)node;
    return refuse();
}

tt_status tt_capture_add_record(struct tt_context *context, void *graph, void *const *after,
                                size_t nafter, void *event, void **node)
{
    (void)context, (void)graph, (void)after, (void)nafter, (void)event, (void)node;
    return refuse();
}

tt_status tt_context_event_create(struct tt_context *context, void **event)
{
    (void)context, (void)event;
    return refuse();
}

void tt_context_event_destroy(struct tt_context *context, void *event)
{
    (void)context, (void)event;
}

tt_status tt_context_event_record(struct tt_context *context, void *event, void *stream)
{
    (void)context, (void)event, (void)stream;
    return refuse();
}

tt_status tt_context_event_wait(struct tt_context *context, void *event, void *stream)
{
    (void)context, (void)event, (void)stream;
    return refuse();
}

tt_status tt_context_event_query(struct tt_context *context, void *event)
{
    (void)context, (void)event;
    return refuse();
}

bool tt_context_is_over(const struct tt_context *context)
{
    (void)context;
    return false;
}

tt_status tt_context_stream_copy(struct tt_context *context, void *stream, void *to,
                                 const void *from, size_t nbytes)
{
    (void)context, (void)stream, (void)to, (void)from, (void)nbytes;
    return refuse();
}

tt_status tt_context_copy_before(struct tt_context *context, void *stream,
                                 const struct tt_context_copy *copies)
{
    (void)context, (void)stream, (void)copies;
    return refuse();
}

tt_status tt_context_stream_store(struct tt_context *context, void *stream, uint32_t *word,
                                  uint32_t value)
{
    (void)context, (void)stream, (void)word, (void)value;
    return refuse();
}

tt_status tt_context_stream_await(struct tt_context *context, void *stream, const uint32_t *word,
                                  uint32_t value)
{
    (void)context, (void)stream, (void)word, (void)value;
    return refuse();
}
