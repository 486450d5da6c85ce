/* See mps.h. */
#include "driver/mps.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/config.h"

/* As NVIDIA documents it: where the daemon's pipes and sockets are unless the variable says. */
static const char standard_folder[] = "/tmp/nvidia-mps";

/* Whether a process has a socket at this address. The daemon's takes connections, and this one has
 * datagrams: the kernel refuses to connect the two with another error than where nobody is, and the
 * daemon notices nothing. */
static bool is_bound(const struct sockaddr_un *address)
{
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    const bool bound =
        connect(fd, (const struct sockaddr *)address, sizeof *address) == 0 || errno == EPROTOTYPE;
    close(fd);
    return bound;
}

bool tt_driver_uses_mps(void)
{
    const int64_t setting = tt_config_int(TT_CONFIG_MPS);
    const char *folder = tt_environment("CUDA_MPS_PIPE_DIRECTORY");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (setting >= 0) return setting;
    const int length = snprintf(address.sun_path, sizeof address.sun_path, "%s/control",
                                folder && *folder ? folder : standard_folder);
    return length < (int)sizeof address.sun_path && is_bound(&address);
}
