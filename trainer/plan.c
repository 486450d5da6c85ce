/* Prints what a run would do. */
#include "plan.h"

#include "setup.h"

tr_status tr_plan_print(const struct tr_config *config, int nranks, FILE *out)
{
    struct tr_setup setup;
    TR_TRY(tr_setup_of(config, nranks, &setup));
    fprintf(out, "%d ranks\n", nranks);
    return TR_OK;
}
