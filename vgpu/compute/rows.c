/* Reads what an H100 computed, for the tests, and makes the operands that it was given. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/compute/named.h>
#include <vgpu/random.h>

static struct {
    char letter;
    unsigned n;
    uint64_t values[40];
} edges[16];
static unsigned nedges;

uint64_t vg_mix(uint64_t value)
{
    return vg_random(&value);
}

unsigned vg_letter_bytes(char letter)
{
    return strchr("dl", letter) ? 8 : strchr("hbse", letter) ? 2 : 4;
}

uint64_t vg_grid_operand(const char *in, unsigned k, unsigned i)
{
    const size_t nin = strlen(in);
    unsigned below = 1, index = 0, length = 1, n = 1;
    for (size_t m = 0; m < nin; m++) {
        unsigned e = 0;
        while (e + 1 < nedges && edges[e].letter != in[m]) e++;
        const unsigned of = nin == 3 && edges[e].n > 16 ? 16 : edges[e].n;
        n *= of;
        if (m == k) index = e, length = of;
        if (m > k) below *= of;
    }
    return edges[index].values[i % n / below % length];
}

/* fill_random of vgpu/probes/values.cu */
uint64_t vg_random_operand(char letter, unsigned k, unsigned i)
{
    uint64_t bits = vg_mix((uint64_t)k << 32 | i);
    const uint64_t e = bits >> 59;
    if (i & 1) switch (letter) {
        case 'f':
            bits = (bits & 0x807fffff) | (111 + e) << 23;
            break;
        case 'd':
            bits = (bits & UINT64_C(0x800fffffffffffff)) | (1007 + e) << 52;
            break;
        case 'h':
            bits = (bits & 0x83ff) | (8 + e % 15) << 10;
            break;
        case 'b':
            bits = (bits & 0x807f) | (111 + e) << 7;
            break;
        case 'w':
            bits = (bits & 0x83ff83ff) | (8 + e % 15) << 10 | (8 + (e ^ 5) % 15) << 26;
            break;
        case 'x':
            bits = (bits & 0x807f807f) | (111 + e) << 7 | (111 + (e ^ 5)) << 23;
            break;
        case 'r':
        case 's':
            bits &= 63;
            break;
        case 'l':
            bits &= UINT64_C(0xffffffffff);
            break;
        default:
            break;
        }
    const unsigned nbytes = vg_letter_bytes(letter);
    return nbytes == 8 ? bits : bits & ((UINT64_C(1) << 8 * nbytes) - 1);
}

/* The text behind "key": in the line, or NULL. */
static const char *find(const char *line, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = strstr(line, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    return *at == '"' ? at + 1 : at;
}

static void text_of(const char *line, const char *key, char *text, size_t size)
{
    const char *at = find(line, key);
    const size_t n = at ? strcspn(at, "\"") : 0;
    snprintf(text, size, "%.*s", (int)(n < size ? n : size - 1), at ? at : "");
}

static unsigned numbers(const char *at, uint64_t *values, unsigned most)
{
    unsigned n = 0;
    while (at && *at != '"' && n < most) {
        char *end;
        values[n++] = strtoull(at, &end, 16);
        at = *end == ' ' ? end + 1 : end;
    }
    return n;
}

static uint64_t number(const char *line, const char *key)
{
    const char *at = find(line, key);
    return at ? strtoull(at, NULL, 16) : 0;
}

static bool parse(const char *line, struct vg_row *row)
{
    text_of(line, "name", row->name, sizeof row->name);
    if (!find(line, "sum_of_grid")) return false;
    char out[4];
    text_of(line, "out", out, sizeof out);
    row->out = *out;
    text_of(line, "in", row->in, sizeof row->in);
    const char *grid = find(line, "grid");
    row->grid = grid ? (unsigned)strtoul(grid, NULL, 10) : 0;
    row->sum_of_grid = number(line, "sum_of_grid");
    row->sum_of_random = number(line, "sum_of_random");
    row->has_all = find(line, "sum_of_all") != NULL;
    row->sum_of_all = number(line, "sum_of_all");
    row->noutputs = numbers(find(line, "outputs"), row->outputs, 256);
    row->has_parts = numbers(find(line, "sums_of_all"), row->sums_of_all, 256) == 256;
    return true;
}

static void read_edges(const char *line)
{
    char letter[4];
    text_of(line, "letter", letter, sizeof letter);
    edges[nedges].letter = *letter;
    edges[nedges].n = numbers(find(line, "values"), edges[nedges].values, 40);
    nedges++;
}

int vg_rows(void (*call)(void *arg, const struct vg_row *row), void *arg)
{
    FILE *file = popen("xz -dc " TUTTI_SOURCE_DIR "/vgpu/probes/results/h100-values.json.xz", "r");
    if (!file) return -1;
    char *line = NULL;
    size_t room = 0;
    struct vg_row *row = calloc(1, sizeof *row);
    int n = 0;
    nedges = 0;
    while (row && getline(&line, &room, file) > 0) {
        if (strstr(line, "\"edges\"") && nedges < 16)
            read_edges(line);
        else if (parse(line, row))
            call(arg, row), n++;
    }
    free(row);
    free(line);
    return pclose(file) == 0 && n > 0 ? n : -1;
}
