/* What an H100 showed (vgpu/probes/litmus.c, vgpu/probes/results/h100.json) is allowed by the
 * axioms, and nothing that they forbid was seen there. */
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/probes/litmus.h>
#include <vgpu/litmus/litmus.h>

/* The text behind "key": " up to the next quotation mark. */
static bool field(const char *row, const char *key, char *value, size_t size)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "\"%s\": \"", key);
    const char *at = strstr(row, quoted);
    if (!at) return false;
    at += strlen(quoted);
    const size_t length = strcspn(at, "\"");
    if (length >= size) return false;
    memcpy(value, at, length);
    value[length] = 0;
    return true;
}

/* "st.release.%s" in the words of vl_read: st.rel.gpu. */
static void put_name(char *text, size_t size, const char *instruction, const char *scope)
{
    static const char *const orders[][2] = {
        {"weak", "weak"},   {"volatile", "rlx.sys"}, {"relaxed", "rlx"}, {"acquire", "acq"},
        {"release", "rel"}, {"acq_rel", "ar"},       {"sc", "sc"}};
    char copy[64], *left = copy;
    snprintf(copy, sizeof copy, "%s", instruction);
    const char *const base = strsep(&left, "."), *const order = strsep(&left, "."),
                      *const its = strsep(&left, ".");
    const size_t n = strlen(text);
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (order && !strcmp(order, orders[i][0]))
            snprintf(text + n, size - n, "%s.%s%s%s", strcmp(base, "atom") ? base : "add",
                     orders[i][1], its ? "." : "",
                     its && *its == '%' ? scope
                     : its              ? its
                                        : "");
}

/* The probe's test with the variant's instructions, as vl_read takes it. */
static void translate(const char *test, const struct litmus_variant *variant, const char *scope,
                      char *text, size_t size)
{
    char reg = 'a';
    bool first = true;
    *text = 0;
    for (const char *at = test; *at; at += strcspn(at, ",|"), at += strspn(at, ", ")) {
        const bool next = *at == '|';
        if (next) at += strspn(at, "| ");
        if (*at == 'F' && !variant->fence) continue;
        size_t n = strlen(text);
        if (next) first = true;
        n += (size_t)snprintf(text + n, size - n, "%s", next ? " | " : first ? "" : "; ");
        first = false;
        put_name(text, size,
                 *at == 'F'   ? variant->fence
                 : *at == 'W' ? variant->flag_store
                 : *at == 'w' ? variant->data_store
                 : *at == 'R' ? variant->flag_load
                 : *at == 'r' ? variant->data_load
                              : variant->add,
                 scope);
        n = strlen(text);
        if (*at == 'W' || *at == 'w') snprintf(text + n, size - n, " %c %c", at[2], at[4]);
        if (*at == 'R' || *at == 'r') snprintf(text + n, size - n, " %c %c", at[2], reg++);
        if (*at == 'A') snprintf(text + n, size - n, " %c 1 %c", at[2], reg++);
    }
}

/* Whether some allowed outcome is "10" or "10:2": what was loaded, then the last values. */
static bool allows(const struct vl_allowed *allowed, const char *digits)
{
    for (unsigned k = 0; k < allowed->noutcomes; k++) {
        bool same = true;
        unsigned row = 0;
        for (const char *at = digits; *at; at++)
            if (*at == ':')
                row = VL_REGISTERS;
            else
                same &= allowed->outcomes[k].outcome.at[row++][0] == (uint8_t)(*at - '0');
        if (same) return true;
    }
    return false;
}

struct counts {
    unsigned rows, outcomes, allowed, races;
};

static void check_row(const char *row, struct counts *counts)
{
    char name[32], text[256], variant_name[64], scope[16], place[32], program[1024] = "";
    struct vl_test test;
    struct vl_allowed allowed;
    const struct litmus_variant *variant = NULL;
    REQUIRE(field(row, "name", name, sizeof name) && field(row, "test", text, sizeof text) &&
            field(row, "variant", variant_name, sizeof variant_name) &&
            field(row, "scope", scope, sizeof scope) &&
            field(row, "placement", place, sizeof place));
    for (size_t v = 0; v < litmus_nvariants; v++)
        if (!strcmp(litmus_variants[v].name, variant_name)) variant = &litmus_variants[v];
    REQUIRE(variant != NULL);
    translate(text, variant, scope, program, sizeof program);
    const enum vl_place where = strcmp(place, "same block") ? VL_BLOCKS : VL_ONE_BLOCK;
    if (!vl_read(program, VG_SCOPE_SYS, where, &test) || vl_enumerate(&test, 0, &allowed)) {
        CHECK_MESSAGE(false, "%s (%s) cannot be read: %s", name, variant_name, program);
        return;
    }
    counts->rows++;
    counts->allowed += allowed.noutcomes;
    counts->races += allowed.racy;
    const char *at = strstr(row, "\"outcomes\": {");
    for (at = at ? strchr(at, '{') : NULL; at && (at = strchr(at, '"')); at = strchr(at, ',')) {
        char digits[16] = "";
        if (sscanf(at, "\"%15[0-9:]", digits) != 1) break;
        counts->outcomes++;
        CHECK_MESSAGE(allows(&allowed, digits),
                      "%s, %s.%s, %s: the H100 showed %s, which the axioms forbid: %s", name,
                      variant_name, scope, place, digits, program);
    }
    vl_allowed_free(&allowed);
}

TEST(vgpu_litmus, what_an_h100_showed_is_allowed_by_the_axioms)
{
    struct counts counts = {0};
    static char row[1 << 16];
    FILE *file = fopen(TUTTI_SOURCE_DIR "/vgpu/probes/results/h100.json", "r");
    REQUIRE(file != NULL);
    while (fgets(row, sizeof row, file))
        if (strstr(row, "\"probe\": \"litmus\"")) check_row(row, &counts);
    fclose(file);
    printf("%u rows of an H100, %u outcomes seen; the axioms allow %u; %u rows can race\n",
           counts.rows, counts.outcomes, counts.allowed, counts.races);
    CHECK(counts.rows >= 920 && counts.outcomes > 4 * counts.rows);
}
