/* Loads libibverbs and finds its functions. */
#include "transport/rdma/verbs.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/log.h"
#include "base/open.h"

static const struct {
    const char *name;
    size_t offset;
    bool optional;
} entries[] = {
    {"ibv_get_device_list", offsetof(struct tt_verbs, get_device_list), false},
    {"ibv_free_device_list", offsetof(struct tt_verbs, free_device_list), false},
    {"ibv_get_device_name", offsetof(struct tt_verbs, get_device_name), false},
    {"ibv_open_device", offsetof(struct tt_verbs, open_device), false},
    {"ibv_close_device", offsetof(struct tt_verbs, close_device), false},
    {"ibv_query_device", offsetof(struct tt_verbs, query_device), false},
    {"ibv_query_port", offsetof(struct tt_verbs, query_port), false},
    {"ibv_alloc_pd", offsetof(struct tt_verbs, alloc_pd), false},
    {"ibv_dealloc_pd", offsetof(struct tt_verbs, dealloc_pd), false},
    {"ibv_reg_mr", offsetof(struct tt_verbs, reg_mr), false},
    {"ibv_dereg_mr", offsetof(struct tt_verbs, dereg_mr), false},
    {"ibv_create_comp_channel", offsetof(struct tt_verbs, create_comp_channel), false},
    {"ibv_destroy_comp_channel", offsetof(struct tt_verbs, destroy_comp_channel), false},
    {"ibv_get_cq_event", offsetof(struct tt_verbs, get_cq_event), false},
    {"ibv_ack_cq_events", offsetof(struct tt_verbs, ack_cq_events), false},
    {"ibv_create_cq", offsetof(struct tt_verbs, create_cq), false},
    {"ibv_destroy_cq", offsetof(struct tt_verbs, destroy_cq), false},
    {"ibv_create_qp", offsetof(struct tt_verbs, create_qp), false},
    {"ibv_modify_qp", offsetof(struct tt_verbs, modify_qp), false},
    {"ibv_destroy_qp", offsetof(struct tt_verbs, destroy_qp), false},
    {"ibv_get_async_event", offsetof(struct tt_verbs, get_async_event), false},
    {"ibv_ack_async_event", offsetof(struct tt_verbs, ack_async_event), false},
    {"ibv_wc_status_str", offsetof(struct tt_verbs, wc_status_str), false},
    {"ibv_event_type_str", offsetof(struct tt_verbs, event_type_str), false},
    {"ibv_port_state_str", offsetof(struct tt_verbs, port_state_str), false},
    {"ibv_reg_dmabuf_mr", offsetof(struct tt_verbs, reg_dmabuf_mr), true},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct tt_verbs table;
static bool loaded;

static void load(void)
{
    void *library = tt_open_library("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        TT_INFO("no RDMA: %s", dlerror());
        return;
    }
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *symbol = dlsym(library, entries[i].name);
        if (!symbol && !entries[i].optional) {
            TT_INFO("no RDMA: libibverbs.so.1 has no %s", entries[i].name);
            dlclose(library);
            return;
        }
        memcpy((char *)&table + entries[i].offset, &symbol, sizeof symbol);
    }
    loaded = true; /* never unloaded: providers keep state */
}

const struct tt_verbs *tt_verbs_load(void)
{
    pthread_once(&once, load);
    return loaded ? &table : NULL;
}
