/* Looks for an older checkpoint of the run where one cannot be read. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ckpt.h"

/* Whether the file can be opened: else what it holds is not the reason. */
static bool can_be_opened(const char *path)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

tr_status tr_ckpt_propose_older(const char *option, const char *path, tr_status status)
{
    char folder[PATH_MAX], older[PATH_MAX], story[2048];
    struct tr_state damaged;
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    long long step;
    if (!slash || !tr_ckpt_is_named(slash + 1, "", &step) || !can_be_opened(path)) return status;
    *slash = 0;
    snprintf(story, sizeof story, "%s", tr_error());
    /* older versions' files name none */
    const bool has_run = tr_ckpt_read_state(path, &damaged) == TR_OK && damaged.run;
    while (tr_ckpt_find_older(option, folder, &step, older, sizeof older) == TR_OK)
        if (tr_ckpt_read_whole(older, has_run ? &damaged.run : NULL) == TR_OK)
            return tr_fail("%s; an older checkpoint that is whole is that of step %lld%s: --%s=%s",
                           story, step, has_run ? "" : ", perhaps of another run", option, older);
    return tr_fail("%s; no older checkpoint there is whole%s", story,
                   has_run ? " and of this run" : "");
}
