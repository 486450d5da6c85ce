/* The functions of libibverbs, which is loaded at run time. The calls for each message
 * (ibv_post_send, ibv_poll_cq, ...) are inline in its header and go through the device; they need
 * no entry here. */
#ifndef TT_TRANSPORT_VERBS_H
#define TT_TRANSPORT_VERBS_H

#include <infiniband/verbs.h>

/* Named as in the library. Immutable once loaded. */
struct tt_verbs {
    __typeof__(ibv_get_device_list) *get_device_list;
    __typeof__(ibv_free_device_list) *free_device_list;
    __typeof__(ibv_get_device_name) *get_device_name;
    __typeof__(ibv_open_device) *open_device;
    __typeof__(ibv_close_device) *close_device;
    __typeof__(ibv_query_device) *query_device;
    __typeof__(ibv_query_port) *query_port;
    __typeof__(ibv_alloc_pd) *alloc_pd;
    __typeof__(ibv_dealloc_pd) *dealloc_pd;
    __typeof__(ibv_reg_mr) *reg_mr;
    __typeof__(ibv_dereg_mr) *dereg_mr;
    __typeof__(ibv_create_comp_channel) *create_comp_channel;
    __typeof__(ibv_destroy_comp_channel) *destroy_comp_channel;
    __typeof__(ibv_get_cq_event) *get_cq_event;
    __typeof__(ibv_ack_cq_events) *ack_cq_events;
    __typeof__(ibv_create_cq) *create_cq;
    __typeof__(ibv_destroy_cq) *destroy_cq;
    __typeof__(ibv_create_qp) *create_qp;
    __typeof__(ibv_modify_qp) *modify_qp;
    __typeof__(ibv_destroy_qp) *destroy_qp;
    __typeof__(ibv_get_async_event) *get_async_event;
    __typeof__(ibv_ack_async_event) *ack_async_event;
    __typeof__(ibv_wc_status_str) *wc_status_str;
    __typeof__(ibv_event_type_str) *event_type_str;
    __typeof__(ibv_port_state_str) *port_state_str;
    __typeof__(ibv_reg_dmabuf_mr) *reg_dmabuf_mr; /* NULL: an old library */
};

/* The table, loaded at the first call; NULL, said once at INFO: there is no usable library. Any
 * thread. */
const struct tt_verbs *tt_verbs_load(void);

#endif
