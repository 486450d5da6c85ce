/* See mps.h. */
#include "driver/mps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/config.h"
#include "base/log.h"
#include "base/open.h"
#include "base/private_fd.h"

/* As NVIDIA documents it: where the daemon's pipes and sockets are unless the variable says. */
static const char standard_folder[] = "/tmp/nvidia-mps";

/* Whether a process has a socket at this address. The daemon's takes connections, and this one has
 * datagrams: the kernel refuses to connect the two with another error than where nobody is, and the
 * daemon notices nothing. */
static bool is_bound(const struct sockaddr_un *address)
{
    tt_low_fd_hold();
    const int fd = tt_low_fd_release(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd < 0) return false;
    const bool bound =
        connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EPROTOTYPE;
    close(fd);
    return bound;
}

/* Whether root or this user has made the socket and its folder: all users may write to /tmp. A link
 * that another user has made is that user's, whatever it leads to. */
static bool is_trusted(const char *folder, const char *path)
{
    struct stat above, file;
    if (lstat(folder, &above) != 0 || lstat(path, &file) != 0 || !S_ISSOCK(file.st_mode))
        return false;
    if (tt_is_own_file(&above) && tt_is_own_file(&file)) return true;
    TT_WARN_ONCE("%s is not taken for the socket of NVIDIA's MPS: it belongs to uid %u, its folder "
                 "to uid %u, expected root or this user (uid %u); TUTTI_MPS=on or off settles it",
                 path, file.st_uid, above.st_uid, geteuid());
    return false;
}

bool tt_driver_uses_mps(void)
{
    const int64_t setting = tt_config_int(TT_CONFIG_MPS);
    const char *folder = tt_environment("CUDA_MPS_PIPE_DIRECTORY");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (setting >= 0) return setting;
    if (!folder || !*folder) folder = standard_folder;
    const int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/control", folder);
    return length < (int)sizeof address.sun_path && is_trusted(folder, address.sun_path) &&
           is_bound(&address);
}
