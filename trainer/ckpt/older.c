/* Looks for an older checkpoint where one cannot be read. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "ckpt.h"
#include "safetensors.h"

/* Whether all of it can be read. */
static bool is_whole(const char *path)
{
    struct tr_safetensors *file;
    struct tr_state state;
    if (tr_ckpt_read_state(path, &state) < 0 || tr_safetensors_open(&file, path) < 0) return false;
    const bool whole = tr_safetensors_check(file) == TR_OK;
    tr_safetensors_close(file);
    return whole;
}

tr_status tr_ckpt_propose_older(const char *path, tr_status status)
{
    char folder[PATH_MAX], older[PATH_MAX], story[2048];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    long long step;
    if (!slash || !tr_ckpt_is_named(slash + 1, "", &step)) return status;
    *slash = 0;
    snprintf(story, sizeof story, "%s", tr_error());
    while (tr_ckpt_find_older(folder, &step, older, sizeof older) == TR_OK)
        if (is_whole(older))
            return tr_fail("%s; an older checkpoint that is whole is that of step %lld: "
                           "--resume=%s",
                           story, step, older);
    return tr_fail("%s; no older checkpoint there is whole", story);
}
