/* The architectures, by enum tr_model_kind. */
#include "architecture.h"

const struct tr_architecture *const tr_architectures[TR_NUM_MODELS] = {
#define ARCHITECTURE(NAME, name) [TR_##NAME] = &tr_##name,
#include "architecture_table.h"
};
