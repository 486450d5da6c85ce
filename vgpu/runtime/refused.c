/* The functions that exist so that programs find them, and fail with cudaErrorNotSupported. */
#include "refused.h"

#define REFUSED(name)                                                                              \
    __attribute__((visibility("default"))) int name(void);                                         \
    int name(void)                                                                                 \
    {                                                                                              \
        static int said;                                                                           \
        return vr_refuse(#name, &said);                                                            \
    }
#include "refused_table.h"
