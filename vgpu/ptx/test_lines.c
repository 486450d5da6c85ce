/* lines/lines.txt: instructions, right and wrong, and what ptxas says of each. lines/make-lines
 * makes the list. What ptxas takes must be read; what it refuses must be refused, when the module
 * is loaded or when its kernel is launched. VGPU_LINES: another list. */
#include <shim.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vgpu/ptx/testing.h>

#ifdef __SANITIZE_ADDRESS__
enum { EVERY = 8 }; /* reading is slow there: one line of 8 */
#else
enum { EVERY = 1 };
#endif
enum { SHOWN = 40, LINE = 512 };
#define FOLDER TUTTI_SOURCE_DIR "/vgpu/ptx/lines/"

enum verdict { RUNS, KERNEL_REFUSED, REFUSED };

static enum verdict read_line(const char *head, const char *line, char error[256])
{
    char text[4096];
    struct vg_module *module = NULL;
    const int n = snprintf(text, sizeof text,
                           HEAD ".global .align 32 .b8 gv[64];\n.const .align 16 .b8 cv[64];\n"
                                "%s%s\nL: ret;\n}\n",
                           head, line);
    if (vg_ptx_read(text, (size_t)n, &module, error) != 0) return REFUSED;
    const bool refused = module->functions[0].unsupported != NULL;
    vg_module_destroy(module);
    return refused ? KERNEL_REFUSED : RUNS;
}

TEST(vgpu_ptx_lines, what_ptxas_takes_is_read_and_what_it_refuses_is_refused)
{
    const char *path = getenv("VGPU_LINES");
    char line[LINE], error[256];
    unsigned n[2] = {0}, wrong[2] = {0}, refused = 0;
    size_t nbytes;
    char *head = vg_test_file(FOLDER "head.ptx", &nbytes);
    FILE *file = fopen(path ? path : FOLDER "lines.txt", "r");
    REQUIRE(head && file);
    head[nbytes] = '\0';
    for (unsigned number = 0; fgets(line, sizeof line, file); number++) {
        if (number % EVERY != 0) continue;
        const bool right = *line == '+';
        line[strcspn(line, "\n")] = '\0';
        const enum verdict verdict = read_line(head, line + 2, error);
        const bool bad = right ? verdict == REFUSED : verdict == RUNS;
        n[right]++;
        wrong[right] += bad;
        refused += right && verdict == KERNEL_REFUSED;
        if (bad && (path || wrong[right] < SHOWN))
            printf("%s %s%s\n", right ? "refused:" : "taken:", line + 2, right ? error : "");
    }
    fclose(file);
    free(head);
    printf("%u right lines, %u of them refused, %u more by kernel; %u wrong lines, %u taken\n",
           n[1], wrong[1], refused, n[0], wrong[0]);
    CHECK_EQ(wrong[0], 0);
    CHECK_EQ(wrong[1], 0);
    CHECK(n[0] > 1000 / EVERY && n[1] > 1000 / EVERY);
}
