/* Subsystems have NCCL's names; a line belongs to the one that has the folder of its source. */
#include "base/log_subsystems.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* NCCL's names; those without a folder have no lines. */
static const struct {
    const char *name, *folders; /* folders of src, each with a blank before and a slash after it */
} subsystems[] = {{"INIT", " communicator/"},
                  {"BOOTSTRAP", " bootstrap/"},
                  {"ENV", " base/"},
                  {"SHM", " transport/host/"},
                  {"P2P", " transport/device/ carrier/ device/ driver/"},
                  {"NET", " net/ transport/"},
                  {"COLL", " executor/ datatype/"},
                  {"TUNING", " algorithms/ schedule/ program/"},
                  {"GRAPH", " topology/"},
                  {"ALLOC", ""},
                  {"ALLOC_HOST", ""},
                  {"CALL", ""},
                  {"PROXY", ""},
                  {"NVLS", ""},
                  {"REG", ""},
                  {"PROFILE", ""},
                  {"RAS", ""},
                  {"DESTROY", ""}};
enum { NSUBSYSTEMS = sizeof subsystems / sizeof *subsystems };
static const unsigned all = (1u << NSUBSYSTEMS) - 1;

static unsigned bit_of(const char *word, size_t length)
{
    if (length == 3 && !strncasecmp(word, "ALL", 3)) return all;
    for (int i = 0; i < NSUBSYSTEMS; i++)
        if (strlen(subsystems[i].name) == length && !strncasecmp(word, subsystems[i].name, length))
            return 1u << i;
    return 0;
}

bool tt_subsystems_parse(const char *list, unsigned *mask, char *unknown, size_t size)
{
    const bool except = *list == '^';
    unsigned named = 0;
    bool known = true;
    for (const char *at = list + except; *at;) {
        const size_t length = strcspn(at, ",");
        const unsigned bit = bit_of(at, length);
        if (!bit && length && known) {
            snprintf(unknown, size, "%.*s", (int)length, at);
            known = false;
        }
        named |= bit;
        at += length + (at[length] == ',');
    }
    *mask = !named ? all : except ? all & ~named : named;
    return known;
}

/* The longest folder wins: transport/host/ before transport/. */
unsigned tt_subsystem_of(const char *file)
{
    const char *source = strstr(file, "src/");
    for (const char *later = source; later; later = strstr(source + 1, "src/")) source = later;
    source = source ? source + strlen("src/") : file;
    unsigned found = all;
    size_t longest = 0;
    for (int i = 0; i < NSUBSYSTEMS; i++)
        for (const char *at = subsystems[i].folders; *at;) {
            const size_t length = strcspn(++at, " ");
            if (length > longest && !strncmp(source, at, length)) {
                longest = length;
                found = 1u << i;
            }
            at += length;
        }
    return found;
}
