/* Fat binaries of nvcc 13.0, in each way of compressing, and damaged ones. */
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/fat/fat.h>

#define SAMPLES TUTTI_SOURCE_DIR "/vgpu/fat/samples/"

static unsigned char *read_sample(const char *mode, size_t *nbytes)
{
    char path[512];
    snprintf(path, sizeof path, SAMPLES "%s.fatbin", mode);
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = malloc(1 << 16);
    if (!file || !bytes) abort();
    *nbytes = fread(bytes, 1, 1 << 16, file);
    fclose(file);
    return bytes;
}

static void finds(const char *mode, uint32_t capability, const char *target)
{
    size_t nbytes, length = 0;
    char error[256] = "", *ptx = NULL;
    unsigned char *bytes = read_sample(mode, &nbytes);
    CHECK(vg_fat_is(bytes, nbytes));
    CHECK_MESSAGE(vg_fat_read(bytes, nbytes, capability, &ptx, &length, error) == 0, "%s: %s", mode,
                  error);
    if (ptx) {
        CHECK_EQ(strlen(ptx), length);
        CHECK_MESSAGE(strstr(ptx, target) && strstr(ptx, ".entry copy"), "%s for %u: %s", mode,
                      capability, ptx);
    }
    free(ptx);
    free(bytes);
}

TEST(vgpu_fat, the_ptx_of_the_highest_architecture_that_fits_is_found)
{
    finds("none", 75, ".target sm_75");
    finds("none", 89, ".target sm_75");
    finds("none", 90, ".target sm_90");
    finds("none", 120, ".target sm_90");
    finds("speed", 75, ".target sm_75");
    finds("speed", 90, ".target sm_90");
}

TEST(vgpu_fat, zstd_is_read_or_what_is_missing_is_said)
{
#ifdef VGPU_ZSTD
    finds("default", 75, ".target sm_75");
    finds("default", 90, ".target sm_90");
#else
    size_t nbytes, length;
    char error[256], *ptx;
    unsigned char *bytes = read_sample("default", &nbytes);
    CHECK_EQ(vg_fat_read(bytes, nbytes, 90, &ptx, &length, error), -1);
    CHECK_MESSAGE(strstr(error, "libzstd-dev") && strstr(error, "--no-compress"), "%s", error);
    free(bytes);
#endif
}

TEST(vgpu_fat, what_the_file_holds_is_said_where_nothing_fits)
{
    size_t nbytes, length;
    char error[256], *ptx;
    unsigned char *bytes = read_sample("none", &nbytes);
    CHECK_EQ(vg_fat_read(bytes, nbytes, 70, &ptx, &length, error), -1);
    CHECK_MESSAGE(strstr(error, "compute_75, compute_90, sm_90") && strstr(error, "7.0"), "%s",
                  error);
    CHECK_EQ(vg_fat_read("\177ELF, not a fat binary", 22, 90, &ptx, &length, error), -1);
    CHECK_MESSAGE(strstr(error, "magic"), "%s", error);
    free(bytes);
}

/* The text, or an error: whatever the bytes are. */
static void survives(const unsigned char *bytes, size_t nbytes)
{
    size_t length = 0;
    char error[256] = "", *ptx = NULL;
    unsigned char *exact =
        malloc(nbytes ? nbytes : 1); /* so that a sanitizer sees a read behind the end */
    if (!exact) abort();
    memcpy(exact, bytes, nbytes);
    const int status = vg_fat_read(exact, nbytes, 90, &ptx, &length, error);
    CHECK(status == 0 ? ptx != NULL && strlen(ptx) == length : error[0] != 0);
    free(ptx);
    free(exact);
}

TEST(vgpu_fat, every_truncation_is_an_error_or_a_text)
{
    static const char *const modes[] = {"none", "speed", "default"};
    for (int m = 0; m < 3; m++) {
        size_t nbytes;
        unsigned char *bytes = read_sample(modes[m], &nbytes);
        for (size_t n = 0; n < nbytes; n++) survives(bytes, n);
        free(bytes);
    }
}

/* VGPU_FUZZ_RUNS asks for more. */
TEST(vgpu_fat, damaged_files_are_errors_or_texts)
{
    static const char *const modes[] = {"none", "speed", "default"};
    const char *wanted = getenv("VGPU_FUZZ_RUNS");
    const unsigned runs = wanted ? (unsigned)atoi(wanted) : 20000;
    uint64_t state = 1;
    for (unsigned run = 0; run < runs; run++) {
        size_t nbytes;
        if (run % 64 == 0) state += run;
        unsigned char *bytes = read_sample(modes[run % 3], &nbytes);
        for (unsigned k = 0; k < 1 + run % 4; k++) {
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            const size_t near = run & 8 ? nbytes : 512; /* headers and beginnings more often */
            bytes[(state >> 40) % (near < nbytes ? near : nbytes)] = (unsigned char)(state >> 32);
        }
        survives(bytes, nbytes);
        free(bytes);
    }
}

TEST(vgpu_fat, lz4_blocks_decode_as_their_description_says)
{
    unsigned char to[64];
    static const unsigned char repeated[] = {0x13, 'a', 1, 0, 0x10, 'b'}; /* a, seven a, b */
    CHECK_EQ(vg_lz4_decode(repeated, sizeof repeated, to, 9), 0);
    CHECK(memcmp(to, "aaaaaaaab", 9) == 0);
    CHECK_EQ(vg_lz4_decode(repeated, sizeof repeated, to, 8), -1);
    CHECK_EQ(vg_lz4_decode(repeated, sizeof repeated, to, 10), -1);
    static const unsigned char before[] = {0x13, 'a',  2,
                                           0,    0x10, 'b'}; /* a copy from before the beginning */
    CHECK_EQ(vg_lz4_decode(before, sizeof before, to, 9), -1);
}
