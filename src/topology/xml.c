/* Reads a topology from hwloc's XML (versions 1 and 2). hwloc's own reader crashes on damaged
 * files.
 *
 * The file is a tree of elements; an <object> inside a core, a cache or a package belongs to it.
 * One pass keeps, for each open element, which of these it lies in, and takes down every PU with
 * its place. All other elements and attributes are passed over. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/open.h"
#include "topology/backend.h"
#include "topology/tags.h"

enum { MOST_BYTES = 64 << 20, MOST_DEPTH = 64 };

/* What an element lies in; -1: none. */
struct place {
    int core, package, l2, l3, node; /* in the order of the file */
};

struct element {
    struct tt_text name;
    struct place place;
    bool is_package;
};

struct reader {
    struct tt_tags tags;
    struct element open[MOST_DEPTH];
    int depth;
    struct tt_topology *topology;
    struct tt_pu pus[TT_CPUS_MAX]; /* numa: the node's number of the operating system */
    int npus, ncores, npackages, nl2, nl3;
    int nodes[TT_CPUS_MAX]; /* numbers of the operating system */
    int nnodes;
    struct tt_cpus seen, allowed;
    bool has_allowed, has_package_model;
};

/* ---- Values --------------------------------------------------------------------------------- */

/* A number of at most 18 digits, or -1. */
static long long number_of(struct tt_text text)
{
    long long number = 0;
    if (!text.nbytes || text.nbytes > 18) return -1;
    for (size_t i = 0; i < text.nbytes; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') return -1;
        number = 10 * number + (text.at[i] - '0');
    }
    return number;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

static void add_from(struct tt_cpus *set, int first)
{
    for (int bit = first; bit < TT_CPUS_MAX; bit++) tt_cpus_add(set, bit);
}

/* A set as hwloc writes it: words of 32 bits, the last one first in number ("0x1,,0xff"); "0xf...f"
 * in front: and all above. False: it is none. */
static bool parse_set(struct tt_text text, struct tt_cpus *set)
{
    static const char endless[] = "0xf...f";
    int first = 0; /* bit of the word */
    memset(set, 0, sizeof *set);
    if (!text.nbytes) return false;
    for (size_t end = text.nbytes;; first += 32) {
        size_t begin = end, nbits = 0;
        while (begin > 0 && text.at[begin - 1] != ',') begin--;
        const struct tt_text word = {text.at + begin, end - begin};
        if (begin == 0 && tt_text_is(word, endless)) {
            add_from(set, first);
            return true;
        }
        if (word.nbytes && (word.nbytes < 3 || word.nbytes > 10 || memcmp(word.at, "0x", 2) != 0))
            return false;
        for (size_t i = word.nbytes; i > 2; i--, nbits += 4) {
            const int digit = digit_of(word.at[i - 1]);
            if (digit < 0) return false;
            for (int bit = 0; bit < 4; bit++)
                if (digit >> bit & 1) tt_cpus_add(set, first + (int)nbits + bit);
        }
        if (begin == 0) return true;
        if (first >= TT_CPUS_MAX) return false;
        end = begin - 1;
    }
}

static int first_of(const struct tt_cpus *set)
{
    int bit = 0;
    while (bit < TT_CPUS_MAX && !tt_cpus_has(set, bit)) bit++;
    return bit;
}

/* The text of an attribute, its entities replaced, control characters by '?'. */
static void copy_text(char *to, size_t size, struct tt_text text)
{
    static const struct {
        const char *entity;
        char character;
    } entities[] = {
        {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    size_t used = 0;
    for (size_t i = 0; i < text.nbytes && used + 1 < size;) {
        char c = text.at[i];
        size_t length = 1;
        for (size_t k = 0; k < sizeof entities / sizeof *entities && c == '&' && length == 1; k++) {
            const size_t n = strlen(entities[k].entity);
            if (text.nbytes - i < n || memcmp(text.at + i, entities[k].entity, n) != 0) continue;
            c = entities[k].character;
            length = n;
        }
        to[used++] = (unsigned char)c < ' ' || c == 127 ? '?' : c;
        i += length;
    }
    to[used] = '\0';
}

/* ---- Objects -------------------------------------------------------------------------------- */

static void note_cache(struct reader *reader, int level, struct place *place)
{
    const long long nbytes = number_of(tt_tags_value(&reader->tags, "cache_size"));
    size_t *known = level == 1   ? &reader->topology->l1_bytes
                    : level == 2 ? &reader->topology->l2_bytes
                                 : &reader->topology->l3_bytes;
    if (!*known && nbytes > 0) *known = (size_t)nbytes;
    if (level == 2) place->l2 = reader->nl2++;
    if (level == 3) place->l3 = reader->nl3++;
}

/* The level of a cache that holds data; 0: it is no such cache. */
static int cache_level(const struct reader *reader, struct tt_text type)
{
    static const char *const names[] = {"L1Cache", "L2Cache", "L3Cache"};
    for (int i = 0; i < 3; i++)
        if (tt_text_is(type, names[i])) return i + 1;
    if (!tt_text_is(type, "Cache") || tt_text_is(tt_tags_value(&reader->tags, "cache_type"), "2"))
        return 0; /* version 1 */
    const long long depth = number_of(tt_tags_value(&reader->tags, "depth"));
    return depth >= 1 && depth <= 3 ? (int)depth : 0;
}

static tt_status add_node(struct reader *reader, struct place *place)
{
    const long long number = number_of(tt_tags_value(&reader->tags, "os_index"));
    if (number < 0 || number >= TT_CPUS_MAX || reader->nnodes == TT_CPUS_MAX)
        return tt_tags_fail(&reader->tags, "a NUMANode has no os_index from 0 to %d",
                            TT_CPUS_MAX - 1);
    reader->nodes[reader->nnodes++] = (int)number;
    place->node = (int)number;
    return TT_OK;
}

static tt_status add_pu(struct reader *reader, const struct place *place)
{
    const long long number = number_of(tt_tags_value(&reader->tags, "os_index"));
    if (number < 0 || number >= TT_CPUS_MAX)
        return tt_tags_fail(&reader->tags, "a PU has no os_index from 0 to %d", TT_CPUS_MAX - 1);
    if (tt_cpus_has(&reader->seen, (int)number))
        return tt_tags_fail(&reader->tags, "PU %lld is there twice", number);
    tt_cpus_add(&reader->seen, (int)number);
    struct tt_cpus nodes;
    int node = place->node;
    if (parse_set(tt_tags_value(&reader->tags, "nodeset"), &nodes)) node = first_of(&nodes);
    reader->pus[reader->npus++] =
        (struct tt_pu){.os_index = (int)number,
                       .core = place->core >= 0 ? place->core : reader->ncores++,
                       .package = place->package >= 0 ? place->package : 0,
                       .numa = node,
                       .l2 = place->l2,
                       .l3 = place->l3};
    return TT_OK;
}

static tt_status read_object(struct reader *reader, struct element *element)
{
    const struct tt_text type = tt_tags_value(&reader->tags, "type");
    const long long memory = number_of(tt_tags_value(&reader->tags, "local_memory"));
    struct place *place = &element->place;
    if (!type.at) return tt_tags_fail(&reader->tags, "an <object> has no type");
    if (memory > 0) reader->topology->memory_bytes += (size_t)memory;
    const int level = cache_level(reader, type);
    if (level) note_cache(reader, level, place);
    if (tt_text_is(type, "Core")) place->core = reader->ncores++;
    element->is_package = tt_text_is(type, "Package") || tt_text_is(type, "Socket");
    if (element->is_package) place->package = reader->npackages++;
    if (tt_text_is(type, "NUMANode")) return add_node(reader, place);
    if (tt_text_is(type, "PU")) return add_pu(reader, place);
    const struct tt_text allowed = tt_tags_value(&reader->tags, "allowed_cpuset");
    if (!tt_text_is(type, "Machine") || !allowed.at) return TT_OK;
    reader->has_allowed = true;
    if (parse_set(allowed, &reader->allowed)) return TT_OK;
    return tt_tags_fail(&reader->tags, "the allowed_cpuset '%.*s' is no set",
                        tt_text_shown(allowed), allowed.at);
}

/* The first package's model, else the machine's. */
static void read_info(struct reader *reader, const struct element *in)
{
    char *model = reader->topology->cpu_model;
    if (!tt_text_is(tt_tags_value(&reader->tags, "name"), "CPUModel") || reader->has_package_model)
        return;
    if (!in->is_package && model[0]) return;
    copy_text(model, sizeof reader->topology->cpu_model, tt_tags_value(&reader->tags, "value"));
    reader->has_package_model = in->is_package;
}

/* ---- The tree ------------------------------------------------------------------------------- */

static tt_status begin_element(struct reader *reader)
{
    const struct element *above = reader->depth ? &reader->open[reader->depth - 1] : NULL;
    if (!above && !tt_text_is(reader->tags.name, "topology"))
        return tt_tags_fail(&reader->tags, "it begins with <%.*s>, not with <topology>",
                            tt_text_shown(reader->tags.name), reader->tags.name.at);
    if (reader->depth == MOST_DEPTH)
        return tt_tags_fail(&reader->tags, "elements lie more than %d deep in one another",
                            MOST_DEPTH);
    struct element *element = &reader->open[reader->depth];
    *element = (struct element){
        .name = reader->tags.name,
        .place = above ? above->place : (struct place){-1, -1, -1, -1, -1},
    };
    if (tt_text_is(reader->tags.name, "object")) TT_TRY(read_object(reader, element));
    if (tt_text_is(reader->tags.name, "info") && above) read_info(reader, above);
    if (!reader->tags.is_empty) reader->depth++;
    return TT_OK;
}

static tt_status end_element(struct reader *reader)
{
    const struct tt_text name = reader->tags.name;
    const struct tt_text open =
        reader->depth ? reader->open[reader->depth - 1].name : (struct tt_text){"nothing", 7};
    if (reader->depth && open.nbytes == name.nbytes && !memcmp(open.at, name.at, name.nbytes)) {
        reader->depth--;
        return TT_OK;
    }
    return tt_tags_fail(&reader->tags, "</%.*s> ends <%.*s>", tt_text_shown(name), name.at,
                        tt_text_shown(open), open.at);
}

static tt_status read_tree(struct reader *reader)
{
    bool begun = false, found = true;
    while (!begun || reader->depth) {
        TT_TRY(tt_tags_next(&reader->tags, &found));
        if (!found) break;
        TT_TRY(reader->tags.is_end ? end_element(reader) : begin_element(reader));
        begun = true;
    }
    if (!begun) return tt_tags_fail(&reader->tags, "it has no element");
    if (!reader->depth) return TT_OK;
    const struct tt_text name = reader->open[reader->depth - 1].name;
    return tt_tags_fail(&reader->tags, "the file ends inside <%.*s>", tt_text_shown(name), name.at);
}

/* The allowed PUs, with the logical numbers of their nodes. */
static tt_status take_pus(struct reader *reader)
{
    struct tt_topology *topology = reader->topology;
    int n = 0;
    for (int i = 0; i < reader->npus; i++) {
        struct tt_pu pu = reader->pus[i];
        int logical = 0;
        if (reader->has_allowed && !tt_cpus_has(&reader->allowed, pu.os_index)) continue;
        while (logical < reader->nnodes && reader->nodes[logical] != pu.numa) logical++;
        pu.numa = logical < reader->nnodes ? logical : 0;
        reader->pus[n++] = pu;
    }
    if (!n) return tt_tags_fail(&reader->tags, "it has no processing unit that is allowed");
    topology->pus = calloc((size_t)n, sizeof *topology->pus);
    if (!topology->pus) return tt_fail(TT_ERR_SYSTEM, "no memory for the topology of %d CPUs", n);
    memcpy(topology->pus, reader->pus, (size_t)n * sizeof *topology->pus);
    topology->npus = n;
    return TT_OK;
}

/* ---- The file ------------------------------------------------------------------------------- */

static tt_status refuse(const char *path, const char *why)
{
    return tt_fail(TT_ERR_ARGUMENT,
                   "topology file '%s' cannot be read as hwloc XML (%s); expected what `lstopo "
                   "file.xml` or `tutti-info --xml` writes",
                   path, why);
}

/* The text of the whole file, with a zero behind; the caller frees it. */
static tt_status read_whole(const char *path, char **text, size_t *nbytes)
{
    struct stat file;
    const char *why;
    const int fd = tt_open_regular(path, &file, &why);
    if (fd < 0) return refuse(path, why);
    const size_t size = (size_t)file.st_size;
    char *made = size <= MOST_BYTES ? malloc(size + 1) : NULL;
    ssize_t n = made ? 1 : -1;
    size_t got = 0;
    while (n > 0 && got < size) {
        n = read(fd, made + got, size - got);
        if (n > 0) got += (size_t)n;
    }
    const int error = errno;
    close(fd);
    if (size > MOST_BYTES) return refuse(path, "it has more than 64 MiB");
    if (n >= 0) {
        made[got] = '\0';
        *text = made;
        *nbytes = got;
        return TT_OK;
    }
    free(made);
    return refuse(path, strerror(error));
}

tt_status tt_xml_load(const char *path, struct tt_topology **topology, char **text)
{
    struct reader *reader = calloc(1, sizeof *reader);
    struct tt_topology *made = calloc(1, sizeof *made);
    char *bytes = NULL;
    size_t nbytes = 0;
    tt_status status = reader && made ? read_whole(path, &bytes, &nbytes)
                                      : tt_fail(TT_ERR_SYSTEM, "no memory to read '%s'", path);
    if (!status) {
        reader->tags = (struct tt_tags){.path = path, .text = bytes, .nbytes = nbytes};
        reader->topology = made;
        status = read_tree(reader);
        if (!status) status = take_pus(reader);
    }
    free(reader);
    if (status) {
        free(bytes);
        tt_topology_destroy(made);
        return status;
    }
    snprintf(made->source, sizeof made->source, "%s", path);
    tt_topology_finish(made);
    *topology = made;
    *text = bytes;
    return TT_OK;
}
