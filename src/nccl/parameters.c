/* NCCL's access to its settings by name. */
#include "nccl/face.h"

/* The log has no place for a table: tutti-info prints the settings. */
void pncclParamDumpAll(void) {}

#define TT_IN_PARAMETERS TT_FACE_TWIN
#include "nccl/names_table.h"
