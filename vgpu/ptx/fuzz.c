/* Mutated texts: bytes, tokens, lines, truncation. Whatever is read, the reader must return, and
 * what it takes must be sound: operands inside of the frame, targets inside of the code.
 * VGPU_FUZZ_S: seconds (3 else), VGPU_FUZZ_SEED: the first seed (1 else). */
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <vgpu/ptx/testing.h>

static uint64_t state;

static uint32_t random_below(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % n;
}

static const char *const pieces[] = {
    "%r1",
    "%rd1",
    "%p1",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ",",
    ".u32",
    ".f32",
    ".b128",
    ".v4",
    ".shared",
    ".global",
    ".param",
    "bra",
    "ret;",
    "call",
    "0x",
    "0f",
    "-1",
    "99999999999",
    ".reg",
    "<9>",
    "ld",
    "st",
    "atom",
    "@!%p1",
    "L1:",
    "//",
    "/*",
    "*/",
    "\"",
    ".loc",
    ".entry",
    ".func",
    ".align 8",
    "=",
    "+",
    "generic(",
    "!",
    "|",
    "wmma.mma",
    ".section",
    ".file",
    ".branchtargets",
    "\n",
    "setp",
    "mov",
    "cvt",
    ".pred",
    "<",
    ">",
    ".v8",
    ".f32x2",
    ".L2::cache_hint",
    "_",
    "|",
    "createpolicy",
    "frob.new",
    ".noftz",
    ".b64",
};

static size_t insert(char *text, size_t n, size_t room, size_t at, const char *piece)
{
    const size_t length = strlen(piece);
    if (n + length > room) return n;
    memmove(text + at + length, text + at, n - at);
    memcpy(text + at, piece, length);
    return n + length;
}

static size_t mutate(char *text, size_t n, size_t room)
{
    const size_t at = n ? random_below((uint32_t)n) : 0;
    size_t length = n ? random_below(40) : 0;
    if (at + length > n) length = n - at;
    switch (random_below(7)) {
    case 0:
        if (n) text[at] = (char)random_below(256);
        return n;
    case 1:
        if (n) text[at] ^= (char)(1 << random_below(7));
        return n;
    case 2: /* remove */
        memmove(text + at, text + at + length, n - at - length);
        return n - length;
    case 3: /* repeat */
        if (n + length > room) return n;
        memmove(text + at + length, text + at, n - at);
        return n + length;
    case 4:
        return random_below(8) ? n : at;
    default:
        return insert(text, n, room, at, pieces[random_below(sizeof pieces / sizeof *pieces)]);
    }
}

static bool operand_is_sound(const struct vg_module *module, uint32_t operand, uint32_t most)
{
    if (operand == VG_NONE) return true;
    return operand & VG_CONSTANT ? (operand & 0x7fff) < module->nconstants : operand < most;
}

static bool is_sound(const struct vg_module *module)
{
    for (uint32_t i = 0; i < module->nfunctions; i++) {
        const struct vg_function *function = &module->functions[i];
        const uint32_t most =
            function->nunits > function->npredicates ? function->nunits : function->npredicates;
        for (uint32_t j = 0; j < function->ninstrs; j++) {
            const struct vg_instr *in = &function->code[j];
            if (in->op >= VG_OPS || in->type >= VG_TYPES) return false;
            if (in->guard != VG_NONE && in->guard >= function->npredicates) return false;
            for (unsigned k = 0; k < 4; k++)
                if (in->dst[k] != VG_NONE && in->dst[k] >= most) return false;
            for (unsigned k = 0; k < 5; k++)
                if (!operand_is_sound(module, in->src[k], most)) return false;
            if (in->op == VG_BRA && in->target >= function->ninstrs) return false;
            if (in->place != UINT32_MAX && in->place >= module->nplaces) return false;
            for (int64_t k = 0; in->op == VG_BRX && k < in->imm; k++)
                if (module->targets[in->target + k] >= function->ninstrs) return false;
        }
    }
    return true;
}

static unsigned fuzz(const char *seed_text, size_t nbytes, char *text, size_t room)
{
    struct vg_module *module;
    char error[256];
    size_t n = nbytes;
    memcpy(text, seed_text, nbytes);
    for (uint32_t i = 1 + random_below(8); i > 0; i--) n = mutate(text, n, room);
    char *copy = malloc(n + !n);
    if (!copy) return 0;
    memcpy(copy, text, n);
    const int result = vg_ptx_read(copy, n, &module, error);
    free(copy);
    if (result != 0) return 0;
    const bool sound = is_sound(module);
    vg_module_destroy(module);
    CHECK(sound);
    return 1;
}

TEST(vgpu_ptx_fuzz, mutated_texts_are_refused_or_read_soundly)
{
    static const char *const names[] = {"copy", "fold", "calls", "numbers", "forms"};
    const char *seconds = getenv("VGPU_FUZZ_S"), *first = getenv("VGPU_FUZZ_SEED");
    char *seeds[5];
    size_t nbytes[5], room = 0;
    for (unsigned i = 0; i < 5; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/vgpu/ptx/samples/%s.ptx", TUTTI_SOURCE_DIR, names[i]);
        seeds[i] = vg_test_file(path, &nbytes[i]);
        REQUIRE(seeds[i]);
        if (nbytes[i] + 1024 > room) room = nbytes[i] + 1024;
    }
    char *text = malloc(room);
    REQUIRE(text);
    const time_t end = time(NULL) + (seconds ? atoi(seconds) : 3);
    uint64_t seed = first ? strtoull(first, NULL, 10) : 1;
    unsigned taken = 0, n = 0;
    for (; n < 200 || time(NULL) < end; n++, seed++) {
        state = seed * UINT64_C(0x9e3779b97f4a7c15);
        taken += fuzz(seeds[seed % 5], nbytes[seed % 5], text, room);
        if (tt_test_failed()) {
            tt_test_fail(__FILE__, __LINE__, "VGPU_FUZZ_SEED=%llu", (unsigned long long)seed);
            break;
        }
    }
    printf("%u texts, %u of them taken\n", n, taken);
    CHECK(n < 1000 || (taken > n / 100 && taken < n));
    free(text);
    for (unsigned i = 0; i < 5; i++) free(seeds[i]);
}
