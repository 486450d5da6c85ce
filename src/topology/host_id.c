/* Identifies this host: a hash of the boot id and the namespaces that ranks must share. */
#include "topology/topology.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"
#include "base/open.h"

/* FNV-1a: short, and its 64 bits are spread enough to tell hosts apart. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t nbytes)
{
    for (size_t i = 0; i < nbytes; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_namespace(uint64_t hash, const char *path)
{
    struct stat about;
    if (stat(path, &about) != 0) return hash;
    const uint64_t inode = about.st_ino;
    return hash_bytes(hash, &inode, sizeof inode);
}

uint64_t tt_machine_id(void)
{
    char text[128] = "";
    if (tt_read_text("/proc/sys/kernel/random/boot_id", text, sizeof text) <= 0)
        (void)gethostname(text, sizeof text - 1);
    return hash_bytes(0xcbf29ce484222325u, text, strlen(text));
}

uint64_t tt_network_id(void)
{
    return hash_namespace(tt_machine_id(), "/proc/self/ns/net");
}

/* Whether each process is a host: by NCCL_SHM_DISABLE, whose text a child made by fork has from its
 * parent. */
static bool is_own_host(void)
{
    return tt_config_is_nccl(TT_CONFIG_HOST_ID) &&
           !strcmp(tt_config_name(TT_CONFIG_HOST_ID), "NCCL_SHM_DISABLE");
}

/* The process namespace counts too: peers are watched and read by pid. */
uint64_t tt_host_id(void)
{
    const char *given = tt_config_string(TT_CONFIG_HOST_ID);
    if (given[0]) {
        const uint64_t hash = hash_bytes(0xcbf29ce484222325u, given, strlen(given));
        const pid_t pid = getpid();
        return is_own_host() ? hash_bytes(hash, &pid, sizeof pid) : hash;
    }
    return hash_namespace(tt_network_id(), "/proc/self/ns/pid");
}
