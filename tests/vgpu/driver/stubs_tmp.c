/* Temporary. */
#include "objects.h"
__attribute__((weak)) void vd_context_memory_free(struct CUctx_st *context) { (void)context; }
