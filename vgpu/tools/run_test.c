/* vgpu-run: what it sets, the status that it ends with, and the reports of all processes of a run.
 */
#include <stdio.h>

#include <vgpu/tools/shell.h>

#define RUN VGPU_BUILT "/vgpu-run "
#define PASS VGPU_BUILT "/pass"

TEST(vgpu_run_program, keeps_the_status_of_the_program)
{
    CHECK_EQ(vt_shell(RUN PASS), 0);
    CHECK_HAS("block 1 got 42");
    CHECK_HAS("vgpu-run: 1 process used virtual GPUs and began 1 kernel\n");
    CHECK(!vt_output_has("report"));
    CHECK_EQ(vt_shell(RUN "sh -c 'exit 7'"), 7);
    CHECK_EQ(vt_shell(RUN "sh -c 'kill -9 $$'"), 128 + 9);
    CHECK_EQ(vt_shell(RUN "-- sh -c 'exit 7' --strict"), 7);
}

TEST(vgpu_run_program, lists_a_report_and_keeps_the_status)
{
    CHECK_EQ(vt_shell(RUN PASS " wrong"), 0);
    CHECK_HAS("vgpu: race: ");
    CHECK_HAS("vgpu-run: 1 report by 1 process:\n  1 x race: pass at pass.cu:5, pass at "
              "pass.cu:11\n");
}

TEST(vgpu_run_program, strict_makes_a_report_a_failure)
{
    CHECK_EQ(vt_shell(RUN "--strict " PASS " wrong"), 86);
    CHECK_HAS("vgpu-run: --strict: status 86 because of reports\n");
    CHECK_EQ(vt_shell(RUN "--strict " PASS), 0);
    CHECK_EQ(vt_shell(RUN "--strict sh -c '%s wrong; exit 3'", PASS), 3);
    CHECK_HAS("1 x race");
}

/* So a run that takes another way than that over the GPU is no success. */
TEST(vgpu_run_program, strict_makes_a_run_without_a_kernel_a_failure)
{
    CHECK_EQ(vt_shell(RUN "--strict " VGPU_BUILT "/vgpu-info"), 86);
    CHECK_HAS("vgpu-run: 1 process used virtual GPUs and began 0 kernels\n");
    CHECK_HAS("vgpu-run: --strict: status 86 because no kernel ran\n");
    CHECK_EQ(vt_shell(RUN "--strict true"), 86);
    CHECK_HAS("the virtual GPU was not used: no process of true called cuInit");
    CHECK_EQ(vt_shell(RUN "true"), 0);
    CHECK_HAS("the virtual GPU was not used: no process of true called cuInit");
}

TEST(vgpu_run_program, sets_what_its_options_say)
{
    CHECK_EQ(vt_shell(RUN "--gpus 3 --seed 7 --strict " VGPU_BUILT "/vgpu-info"), 86);
    CHECK_HAS("\ndevice 2: ");
    CHECK(!vt_output_has("\ndevice 3: "));
    CHECK_HAS("VGPU_SEED=7\n");
    CHECK_HAS("VGPU_BLOCK_ORDER=shuffled\n");
    CHECK_HAS("VGPU_VECTOR=strict\n");
    CHECK_EQ(vt_shell("VGPU_DEVICES=2 VGPU_SEED=5 VGPU_VECTOR=whole " RUN
                      "--strict --seed=6 " VGPU_BUILT "/vgpu-info"),
             86);
    CHECK_HAS("\ndevice 1: ");
    CHECK_HAS("VGPU_SEED=6\n");
    CHECK_HAS("VGPU_VECTOR=whole\n");
    CHECK_EQ(vt_shell(RUN VGPU_BUILT "/vgpu-info"), 0);
    CHECK_HAS("VGPU_BLOCK_ORDER=index\n");
}

TEST(vgpu_run_program, puts_its_library_in_front)
{
    CHECK_EQ(vt_shell("LD_LIBRARY_PATH=/a:/b " RUN "sh -c 'echo =$LD_LIBRARY_PATH='"), 0);
    CHECK_HAS("=" VGPU_BUILT ":/a:/b=\n");
    CHECK_EQ(vt_shell("LD_LIBRARY_PATH= " RUN "sh -c 'echo =$LD_LIBRARY_PATH='"), 0);
    CHECK_HAS("=" VGPU_BUILT "=\n");
    CHECK_EQ(vt_shell("cp " VGPU_BUILT "/vgpu-run %s && %s true", vt_temporary("vgpu-run"),
                      vt_temporary("vgpu-run")),
             1);
    CHECK_HAS("/libcuda.so.1, which belongs beside vgpu-run, cannot be read: No such file");
}

TEST(vgpu_run_program, counts_and_lists_all_processes_that_the_program_starts)
{
    CHECK_EQ(vt_shell(RUN "--strict sh -c '%s wrong & %s wrong; wait; %s'", PASS, PASS, PASS), 86);
    CHECK_HAS("vgpu-run: 3 processes used virtual GPUs and began 3 kernels\n");
    CHECK_HAS("vgpu-run: 2 reports by 2 processes:\n  2 x race: pass at");
}

TEST(vgpu_run_program, adds_to_the_file_of_reports_and_lists_those_of_this_run)
{
    const char *path = vt_temporary("reports-of-runs");
    for (int i = 0; i < 2; i++) {
        CHECK_EQ(vt_shell("VGPU_REPORT=%s " RUN PASS " wrong", path), 0);
        CHECK_HAS("vgpu-run: 1 report by 1 process:\n");
    }
    CHECK_EQ(vt_shell("test $(wc -l <%s) = 2", path), 0);
    CHECK_EQ(vt_shell("VGPU_REPORT=/absent/file " RUN PASS), 1);
    CHECK_HAS("vgpu-run: VGPU_REPORT is '/absent/file'; expected a file to append to: No such");
    CHECK_EQ(vt_shell("VGPU_REPORT=/dev/null " RUN PASS), 1);
    CHECK_HAS("vgpu-run: VGPU_REPORT is '/dev/null'; expected a file to append to, and this is");
}

TEST(vgpu_run_program, names_a_value_that_cannot_be)
{
    CHECK_EQ(vt_shell(RUN "--gpus 17 true"), 2);
    CHECK_HAS("vgpu-run: --gpus is '17'; expected 0 to 16\n");
    CHECK_EQ(vt_shell(RUN "--gpus= true"), 2);
    CHECK_HAS("vgpu-run: --gpus is ''; expected 0 to 16\n");
    CHECK_EQ(vt_shell(RUN "--seed -1 true"), 2);
    CHECK_HAS("vgpu-run: --seed is '-1'; expected 0 to 18446744073709551615\n");
    CHECK_EQ(vt_shell(RUN "--seed"), 2);
    CHECK_HAS("vgpu-run: --seed lacks its number");
    CHECK_EQ(vt_shell(RUN "--fast true"), 2);
    CHECK_HAS("vgpu-run: '--fast' is no option; vgpu-run --help lists them\n");
    CHECK_EQ(vt_shell(RUN), 2);
    CHECK_HAS("vgpu-run: no program is given");
    CHECK_EQ(vt_shell("VGPU_SMS=0 " RUN "true"), 1);
    CHECK_HAS("vgpu-run: VGPU_SMS is \"0\"; expected 1 to 1024\n");
    CHECK_EQ(vt_shell(RUN "/absent"), 127);
    CHECK_HAS("vgpu-run: /absent cannot be started: No such file or directory\n");
    CHECK_EQ(vt_shell(RUN "/"), 126);
    CHECK_HAS("vgpu-run: / cannot be started: Permission denied\n");
    CHECK_EQ(vt_shell("VGPU_COUNTS=/absent " PASS), 1);
    CHECK_HAS("VGPU_COUNTS is \"/absent\"; expected a file that vgpu-run made: No such file");
}

TEST(vgpu_run_program, the_help_names_every_option)
{
    CHECK_EQ(vt_shell(RUN "--help"), 0);
    CHECK_HAS("usage: vgpu-run [--gpus N] [--seed S] [--strict] PROGRAM [ARGUMENTS...]\n");
    CHECK_EQ(vt_shell(RUN "--help >/dev/full"), 1);
    CHECK_HAS("vgpu-run: standard output cannot be written (No space left on device)\n");
}

/* A few seconds at most, for a signal to come. */
#define WAIT "i=0; while [ $i -lt 3000000 ]; do i=$((i + 1)); done; echo no signal came"

TEST(vgpu_run_program, passes_a_signal_on_and_ends_its_program_when_it_is_killed)
{
    CHECK_EQ(vt_shell(RUN "sh -c 'trap \"exit 9\" TERM; kill -TERM $PPID; " WAIT "'"), 9);
    CHECK_EQ(vt_shell(RUN "sh -c 'trap \"echo the end; exit\" TERM; kill -KILL $PPID; " WAIT "'"),
             128 + 9);
    CHECK_HAS("the end");
}

TEST(vgpu_run_program, works_with_standard_descriptors_closed)
{
    CHECK_EQ(vt_shell(RUN "--strict " PASS " <&- >&- 2>&-"), 0);
    CHECK_EQ(vt_shell(RUN "--strict " PASS " wrong <&- >&- 2>&-"), 86);
}
