/* The architectures, by enum tr_model_kind. */
#include "architecture.h"

const struct tr_architecture *const tr_architectures[TR_NUM_MODELS] = {
    [TR_GPT2] = &tr_gpt2,
    [TR_LLAMA] = &tr_llama,
};
