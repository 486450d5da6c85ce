#include <errno.h>
#include <stdlib.h>

#include "base/config.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/handshake.h"

/* The variable as a number from `least` to `most`. */
static tt_status number(int *value, const char *name, long least, long most)
{
    const char *text = tt_environment(name);
    char *end;
    errno = 0;
    const long found = strtol(text, &end, 10);
    if (end == text || *end || errno)
        return tt_fail(TT_ERR_ARGUMENT, "%s=%s is not a whole number", name, text);
    if (found < least || found > most)
        return tt_fail(TT_ERR_ARGUMENT, "%s=%s is out of range: it must be %ld to %ld", name, text,
                       least, most);
    *value = (int)found;
    return TT_OK;
}

/* *both: whether the two are set; one without the other is an error. */
static tt_status together(bool *both, const char *a, const char *b)
{
    const bool has_a = tt_environment(a), has_b = tt_environment(b);
    if (has_a != has_b)
        return tt_fail(TT_ERR_ARGUMENT,
                       "%s is set but %s is not: set both (tutti-run and torchrun do) or neither",
                       has_a ? a : b, has_a ? b : a);
    *both = has_a;
    return TT_OK;
}

tt_status tt_launcher_detect(struct tt_launcher *launcher)
{
    bool world, local;
    TT_TRY(together(&world, "RANK", "WORLD_SIZE"));
    TT_TRY(together(&local, "LOCAL_RANK", "LOCAL_WORLD_SIZE"));
    if (local && !world)
        return tt_fail(TT_ERR_ARGUMENT, "LOCAL_RANK is set but RANK and WORLD_SIZE are not");
    if (!world) {
        *launcher = (struct tt_launcher){.nranks = 1, .local_nranks = 1, .found = "none"};
        return TT_OK;
    }
    struct tt_launcher found = {.found = "torchrun variables"};
    TT_TRY(number(&found.nranks, "WORLD_SIZE", 1, TT_MAX_RANKS));
    TT_TRY(number(&found.rank, "RANK", 0, found.nranks - 1));
    found.local_rank = found.rank;
    found.local_nranks = found.nranks;
    if (local) {
        TT_TRY(number(&found.local_nranks, "LOCAL_WORLD_SIZE", 1, found.nranks));
        TT_TRY(number(&found.local_rank, "LOCAL_RANK", 0, found.local_nranks - 1));
    }
    *launcher = found;
    return TT_OK;
}
