/* What nvcc makes of kernels: the samples' PTX, which is committed beside the sources, and that of
 * vgpu/probes where nvcc is found; of lowered.cu, which takes a minute, with VGPU_PROBES=all.
 */
#include <dirent.h>
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <vgpu/compute/compute.h>
#include <vgpu/ptx/testing.h>

/* Instructions that belong to the machine: nobody in compute/ has them. */
static bool is_machines(const struct vg_instr *in)
{
    return in->op == VG_SPECIAL || in->op == VG_ADDRESS_LOCAL || in->op >= VG_CVTA;
}

static void check(const char *name, const struct vg_module *module, unsigned *ninstrs)
{
    for (uint32_t i = 0; i < module->nfunctions; i++) {
        const struct vg_function *function = &module->functions[i];
        CHECK_MESSAGE(!function->unsupported, "%s, %s: %s", name, function->name,
                      function->unsupported);
        for (uint32_t j = 0; j < function->ninstrs; j++) {
            const struct vg_instr *in = &function->code[j];
            CHECK_MESSAGE(is_machines(in) || vg_compute_find(in), "%s: nobody computes line %u",
                          name, in->line);
            ++*ninstrs;
        }
    }
}

static unsigned read_file(const char *path)
{
    size_t nbytes;
    unsigned ninstrs = 0;
    struct vg_module *module;
    char error[256];
    char *text = vg_test_file(path, &nbytes);
    CHECK_MESSAGE(text, "%s cannot be read", path);
    if (!text) return 0;
    const int result = vg_ptx_read(text, nbytes, &module, error);
    free(text);
    CHECK_MESSAGE(result == 0, "%s: %s", path, error);
    if (result != 0) return 0;
    check(path, module, &ninstrs);
    vg_module_destroy(module);
    return ninstrs;
}

TEST(vgpu_ptx_samples, every_instruction_of_the_samples_is_known_to_somebody)
{
    static const char *const samples[] = {"copy", "fold", "calls", "numbers"};
    unsigned ninstrs = 0;
    for (unsigned i = 0; i < sizeof samples / sizeof *samples; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/vgpu/ptx/samples/%s.ptx", TUTTI_SOURCE_DIR, samples[i]);
        ninstrs += read_file(path);
    }
    CHECK_MESSAGE(ninstrs > 400, "only %u instructions", ninstrs);
}

static const struct vg_function *function_of(const struct vg_module *module, const char *name)
{
    for (uint32_t i = 0; i < module->nfunctions; i++)
        if (strcmp(module->functions[i].name, name) == 0) return &module->functions[i];
    return NULL;
}

TEST(vgpu_ptx_samples, a_line_of_the_source_stands_with_each_instruction)
{
    size_t nbytes;
    struct vg_module *module;
    char error[256];
    char *text = vg_test_file(TUTTI_SOURCE_DIR "/vgpu/ptx/samples/fold.ptx", &nbytes);
    REQUIRE(text);
    const int result = vg_ptx_read(text, nbytes, &module, error);
    free(text);
    REQUIRE(result == 0);
    const struct vg_function *flags = function_of(module, "flags");
    bool found = false, inlined = false;
    for (uint32_t i = 0; flags && i < flags->ninstrs; i++) {
        if (flags->code[i].place == UINT32_MAX) continue;
        const struct vg_place *place = &module->places[flags->code[i].place];
        found |= flags->code[i].op == VG_LD && flags->code[i].order == VG_ACQUIRE &&
                 place->line == 35 && strcmp(module->files[place->file], "fold.cu") == 0;
    }
    const struct vg_function *shuffles = function_of(module, "fold_warp");
    for (uint32_t i = 0; shuffles && i < shuffles->ninstrs; i++) {
        if (shuffles->code[i].op != VG_SHFL || shuffles->code[i].place == UINT32_MAX) continue;
        const struct vg_place *place = &module->places[shuffles->code[i].place];
        inlined |= place->function && place->inlined_at != UINT32_MAX;
        while (place->inlined_at != UINT32_MAX) place = &module->places[place->inlined_at];
        CHECK_STR(module->files[place->file], "fold.cu");
    }
    CHECK(found);
    CHECK(inlined);
    vg_module_destroy(module);
}

static bool find_nvcc(char *path, size_t room)
{
    FILE *pipe = popen("command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null", "r");
    if (!pipe) return false;
    const bool found = fgets(path, (int)room, pipe);
    path[strcspn(path, "\n")] = '\0';
    pclose(pipe);
    return found;
}

TEST(vgpu_ptx_samples, what_nvcc_makes_of_the_probes_holds_nothing_unsupported)
{
    char nvcc[256] = "";
    if (!find_nvcc(nvcc, sizeof nvcc)) SKIP("no nvcc in PATH or /usr/local/cuda/bin");
    static const char probes[] = TUTTI_SOURCE_DIR "/vgpu/probes";
    char ptx[] = "/tmp/vgpu_ptx_XXXXXX";
    const int fd = mkstemp(ptx);
    REQUIRE(fd >= 0);
    close(fd);
    DIR *dir = opendir(probes);
    unsigned nfiles = 0, ninstrs = 0;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        const size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 3, ".cu") != 0) continue;
        if (strcmp(entry->d_name, "lowered.cu") == 0 && !getenv("VGPU_PROBES")) continue;
        char command[2048];
        snprintf(
            command, sizeof command,
            "%s -std=c++17 -O3 -lineinfo -fmad=false -I%s/src -arch=compute_%s -ptx -o %s %s/%s",
            nvcc, TUTTI_SOURCE_DIR, nfiles % 2 ? "90" : "75", ptx, probes, entry->d_name);
        CHECK_MESSAGE(system(command) == 0, "%s fails", command);
        ninstrs += read_file(ptx);
        nfiles++;
    }
    if (dir) closedir(dir);
    unlink(ptx);
    CHECK_MESSAGE(nfiles >= 5 && ninstrs > 3000, "%u files, %u instructions", nfiles, ninstrs);
}
