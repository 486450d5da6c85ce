/* Source places: .file, .loc with what it was inlined into, and the names in .debug_str. */
#include <vgpu/ptx/reader.h>

#include <string.h>

/* A place whose function's name is a label in .debug_str. */
struct pending {
    const char *label;
    uint32_t length, place;
};

struct label {
    const char *name, *text;
    uint32_t length;
};

enum { RECENT = 4096 };

struct vg_debug {
    struct pending *pendings;
    struct label *labels;
    uint32_t npendings, pendings_room, nlabels, labels_room;
    uint32_t recent[RECENT]; /* the last place with a hash of file, line and column; + 1 */
};

void vg_ptx_debug_init(struct vg_reader *r)
{
    r->debug = vg_ptx_alloc(r, sizeof *r->debug);
}

/* .file 1 "name" {, time, size} */
void vg_ptx_debug_file(struct vg_reader *r)
{
    enum { MAX_FILES = 1 << 16 };
    struct vg_module *module = r->module;
    vg_ptx_next(r);
    const uint32_t number = (uint32_t)vg_ptx_integer(r, "a file's number", 0, MAX_FILES);
    if (r->token.kind != VG_TOKEN_STRING) vg_ptx_unexpected(r, "a file's name");
    while (module->nfiles <= number) {
        module->files =
            vg_ptx_room(r, module->files, module->nfiles, &r->files_room, sizeof(char *));
        module->files[module->nfiles++] = "";
    }
    module->files[number] = vg_ptx_text(r, r->token.text, r->token.length);
    vg_ptx_next(r);
    while (vg_ptx_accept(r, ',')) vg_ptx_integer(r, "a time or size", INT64_MIN, INT64_MAX);
}

static uint32_t bucket_of(const struct vg_place *place)
{
    return (place->file * 7919u + place->line * 31u + place->column) % RECENT;
}

static bool same_line(const struct vg_place *a, const struct vg_place *b)
{
    return a->file == b->file && a->line == b->line && a->column == b->column;
}

static struct vg_place line_read(struct vg_reader *r)
{
    return (struct vg_place){
        .file = (uint32_t)vg_ptx_integer(r, "a file's number", 0, INT32_MAX),
        .line = (uint32_t)vg_ptx_integer(r, "a line", 0, UINT32_MAX),
        .column = (uint32_t)vg_ptx_integer(r, "a column", 0, INT32_MAX),
        .inlined_at = UINT32_MAX,
    };
}

/* The place is kept once if the last one with its line is the same. */
static uint32_t place_add(struct vg_reader *r, const struct vg_place *place,
                          const struct vg_token *label)
{
    struct vg_module *module = r->module;
    struct vg_debug *debug = r->debug;
    uint32_t *recent = &debug->recent[bucket_of(place)];
    if (*recent && same_line(&module->places[*recent - 1], place) &&
        module->places[*recent - 1].inlined_at == place->inlined_at)
        return *recent - 1;
    module->places =
        vg_ptx_room(r, module->places, module->nplaces, &r->places_room, sizeof *module->places);
    module->places[module->nplaces] = *place;
    *recent = ++module->nplaces;
    if (label) {
        debug->pendings = vg_ptx_room(r, debug->pendings, debug->npendings, &debug->pendings_room,
                                      sizeof *debug->pendings);
        debug->pendings[debug->npendings++] = (struct pending){
            .label = label->text, .length = label->length, .place = module->nplaces - 1};
    }
    return module->nplaces - 1;
}

/* .loc file line column {, function_name label {+ n}, inlined_at file line column} */
void vg_ptx_debug_loc(struct vg_reader *r)
{
    struct vg_token label;
    bool named = false;
    vg_ptx_next(r);
    struct vg_place place = line_read(r);
    while (vg_ptx_accept(r, ',')) {
        if (vg_ptx_accept_word(r, "function_name")) {
            label = vg_ptx_expect_name(r, "a label of .debug_str");
            named = true;
            if (vg_ptx_accept(r, '+')) vg_ptx_integer(r, "an offset", 0, INT32_MAX);
        } else if (vg_ptx_accept_word(r, "inlined_at")) {
            const struct vg_place at = line_read(r);
            const uint32_t recent = r->debug->recent[bucket_of(&at)];
            if (recent && same_line(&r->module->places[recent - 1], &at))
                place.inlined_at = recent - 1;
            else
                place.inlined_at = place_add(r, &at, NULL);
        } else {
            vg_ptx_unexpected(r, "function_name or inlined_at");
        }
    }
    r->place = place_add(r, &place, named ? &label : NULL);
}

/* .b8 95,90,0 of .debug_str: the bytes behind a label are its text, up to a zero. */
static void bytes_read(struct vg_reader *r, struct label *label)
{
    char text[512];
    uint32_t n = 0;
    bool ended = false;
    vg_ptx_next(r);
    do {
        const int64_t value = vg_ptx_integer(r, "a byte", INT64_MIN, INT64_MAX);
        ended = ended || value == 0;
        if (!ended && n < sizeof text) text[n++] = (char)value;
    } while (vg_ptx_accept(r, ','));
    if (label && !label->text) label->text = vg_ptx_text(r, text, n);
}

/* .section .debug_str { ... }: other sections are skipped. */
void vg_ptx_debug_section(struct vg_reader *r)
{
    struct vg_debug *debug = r->debug;
    struct label *label = NULL;
    vg_ptx_next(r);
    const bool names = vg_ptx_is_word(&r->token, ".debug_str");
    if (r->token.kind != VG_TOKEN_DOTTED && r->token.kind != VG_TOKEN_WORD)
        vg_ptx_unexpected(r, "a section's name");
    vg_ptx_next(r);
    vg_ptx_expect(r, '{', "behind the section's name");
    while (!vg_ptx_accept(r, '}')) {
        if (r->token.kind == VG_TOKEN_END) vg_ptx_unexpected(r, "'}' at the section's end");
        if (names && vg_ptx_is_word(&r->token, ".b8")) {
            bytes_read(r, label);
            continue;
        }
        const struct vg_token token = r->token;
        vg_ptx_next(r);
        if (names && token.kind == VG_TOKEN_WORD && vg_ptx_accept(r, ':')) {
            debug->labels =
                vg_ptx_room(r, debug->labels, debug->nlabels, &debug->labels_room, sizeof *label);
            label = &debug->labels[debug->nlabels++];
            *label = (struct label){.name = token.text, .length = token.length};
        }
    }
}

/* The label of the name in an open table of numbers of labels + 1, or where it would be. */
static uint32_t *slot_of(const struct vg_debug *debug, uint32_t *table, uint32_t room,
                         const char *name, uint32_t length)
{
    uint32_t *slot = &table[vg_ptx_hash(name, length) & (room - 1)];
    while (*slot) {
        const struct label *label = &debug->labels[*slot - 1];
        if (label->length == length && memcmp(label->name, name, length) == 0) break;
        slot = slot + 1 < table + room ? slot + 1 : table;
    }
    return slot;
}

void vg_ptx_debug_finish(struct vg_reader *r)
{
    const struct vg_debug *debug = r->debug;
    uint32_t room = 16;
    while (room < 2 * debug->nlabels) room *= 2;
    uint32_t *table = vg_ptx_alloc(r, room * sizeof *table);
    for (uint32_t i = 0; i < debug->nlabels; i++) {
        const struct label *label = &debug->labels[i];
        uint32_t *slot = slot_of(debug, table, room, label->name, label->length);
        if (label->text && !*slot) *slot = i + 1;
    }
    for (uint32_t i = 0; i < debug->npendings; i++) {
        const struct pending *pending = &debug->pendings[i];
        const uint32_t label = *slot_of(debug, table, room, pending->label, pending->length);
        if (label) r->module->places[pending->place].function = debug->labels[label - 1].text;
    }
}
