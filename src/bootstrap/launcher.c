#include <errno.h>
#include <stdlib.h>

#include "base/config.h"
#include "bootstrap/bootstrap.h"
#include "net/handshake.h"

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

static tt_status detect_world(struct tt_launcher *found)
{
    const bool rank = tt_environment("RANK"), world = tt_environment("WORLD_SIZE");
    if (rank != world)
        return tt_fail(TT_ERR_ARGUMENT,
                       "%s is set but %s is not: set both (tutti-run and torchrun do) or neither",
                       rank ? "RANK" : "WORLD_SIZE", rank ? "WORLD_SIZE" : "RANK");
    if (!rank && (tt_environment("LOCAL_RANK") || tt_environment("LOCAL_WORLD_SIZE")))
        return tt_fail(TT_ERR_ARGUMENT, "%s is set but RANK and WORLD_SIZE are not",
                       tt_environment("LOCAL_RANK") ? "LOCAL_RANK" : "LOCAL_WORLD_SIZE");
    if (!rank) return TT_OK;
    found->found = "torchrun variables";
    TT_TRY(number(&found->nranks, "WORLD_SIZE", 1, TT_MAX_RANKS));
    return number(&found->rank, "RANK", 0, found->nranks - 1);
}

tt_status tt_launcher_detect(struct tt_launcher *launcher)
{
    struct tt_launcher found = {.nranks = 1, .found = "none"};
    TT_TRY(detect_world(&found));
    /* What is not said about the host: all ranks are on it. */
    found.local_nranks = found.nranks;
    if (tt_environment("LOCAL_WORLD_SIZE"))
        TT_TRY(number(&found.local_nranks, "LOCAL_WORLD_SIZE", 1, found.nranks));
    found.local_rank = found.rank % found.local_nranks;
    if (tt_environment("LOCAL_RANK"))
        TT_TRY(number(&found.local_rank, "LOCAL_RANK", 0, found.local_nranks - 1));
    *launcher = found;
    return TT_OK;
}
