/* For tests of checkpoints: writes one. */
#ifndef TR_TESTS_SAVE_H
#define TR_TESTS_SAVE_H

#include "../../trainer/ckpt/ckpt.h"

/* A whole save, without a snapshot. Collective. */
static inline tr_status save(struct tr_engine *e, const char *folder, const struct tr_state *state)
{
    struct tr_config config;
    struct tr_save *begun;
    tr_config_init(&config);
    TR_TRY(tr_ckpt_begin(e, folder, NULL, state, &config, NULL, &begun));
    while (begun) TR_TRY(tr_ckpt_advance(&begun));
    return TR_OK;
}

#endif
