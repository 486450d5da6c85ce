#include "topology/topology.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/config.h"

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

/* The process namespace counts too: peers are watched and read by pid. */
uint64_t tt_host_id(void)
{
    uint64_t hash = 0xcbf29ce484222325u;
    const char *given = tt_config_string(TT_CONFIG_HOST_ID);
    if (given[0]) return hash_bytes(hash, given, strlen(given));
    char text[128] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file || !fgets(text, sizeof text, file)) (void)gethostname(text, sizeof text - 1);
    if (file) fclose(file);
    hash = hash_bytes(hash, text, strlen(text));
    hash = hash_namespace(hash, "/proc/self/ns/net");
    return hash_namespace(hash, "/proc/self/ns/pid");
}
