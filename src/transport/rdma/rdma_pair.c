/* Queue pairs: initialises and connects them. */
#include <string.h>

#include "base/config.h"
#include "transport/rdma/rdma_internal.h"

int tt_rdma_init_pair(const struct tt_rdma *rdma, struct ibv_qp *qp,
                      const struct tt_rdma_port *port, int access)
{
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_INIT, .port_num = port->number, .qp_access_flags = (unsigned)access};
    return rdma->verbs->modify_qp(
        qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int tt_rdma_join(const struct tt_rdma *rdma, const struct tt_rdma_joint *joint)
{
    const uint8_t mine = (uint8_t)joint->port->attributes.active_mtu;
    struct ibv_qp_attr attributes = {
        .qp_state = IBV_QPS_RTR,
        .path_mtu = mine < joint->mtu ? mine : joint->mtu,
        .dest_qp_num = joint->qp_number,
        .rq_psn = joint->first_packet,
        .max_dest_rd_atomic = joint->nreads,
        .min_rnr_timer = 12, /* 0.64 ms; not reached: there are receives for all credits */
        .ah_attr = {.dlid = joint->lid,
                    .sl = (uint8_t)tt_config_int(TT_CONFIG_RDMA_SERVICE_LEVEL),
                    .port_num = joint->port->number,
                    .is_global = joint->ethernet},
    };
    if (joint->ethernet) {
        attributes.ah_attr.grh = (struct ibv_global_route){
            .sgid_index = (uint8_t)joint->port->gid_indices[joint->gid],
            .hop_limit = 64,
            .traffic_class = (uint8_t)tt_config_int(TT_CONFIG_RDMA_TRAFFIC_CLASS)};
        memcpy(&attributes.ah_attr.grh.dgid, joint->target, sizeof *joint->target);
    }
    const int error = rdma->verbs->modify_qp(joint->qp, &attributes,
                                             IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
                                                 IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                                 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attributes = (struct ibv_qp_attr){
        .qp_state = IBV_QPS_RTS,
        .sq_psn = joint->my_first_packet,
        .timeout = (uint8_t)tt_config_int(TT_CONFIG_RDMA_TIMEOUT),
        .retry_cnt = (uint8_t)tt_config_int(TT_CONFIG_RDMA_RETRIES),
        .rnr_retry = 6,
        .max_rd_atomic = joint->nreads,
    };
    return error ? error
                 : rdma->verbs->modify_qp(joint->qp, &attributes,
                                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                              IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                              IBV_QP_MAX_QP_RD_ATOMIC);
}
