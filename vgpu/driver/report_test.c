/* Reports and settings as processes show them: the program of example/ and vgpu-info, with
 * variables set. */
#include <stdio.h>
#include <string.h>

#include <vgpu/tools/shell.h>

TEST(vgpu_report, a_program_without_a_mistake_ends_as_it_wants)
{
    CHECK_EQ(vt_shell(VGPU_BUILT "/pass"), 0);
    CHECK_HAS("block 1 got 42");
    CHECK(!vt_output_has("vgpu:"));
}

TEST(vgpu_report, a_race_is_reported_with_both_lines_and_the_seed_and_status_86)
{
    CHECK_EQ(vt_shell("VGPU_SEED=7 " VGPU_BUILT "/pass wrong"), 86);
    CHECK_HAS("vgpu: race: ");
    CHECK_HAS("pass.cu:5");
    CHECK_HAS("pass.cu:11");
    CHECK_HAS("VGPU_SEED=7");
    CHECK_HAS("vgpu: 1 report");
    CHECK_EQ(vt_shell("VGPU_EXIT=0 " VGPU_BUILT "/pass wrong"), 0);
    CHECK_EQ(vt_shell("VGPU_MODEL=0 " VGPU_BUILT "/pass wrong"), 0);
}

TEST(vgpu_report, a_report_is_also_a_line_of_json)
{
    const char *path = vt_temporary("reports");
    CHECK_EQ(vt_shell("VGPU_REPORT=%s " VGPU_BUILT "/pass wrong", path), 86);
    CHECK_EQ(vt_shell("VGPU_REPORT=%s " VGPU_BUILT "/pass wrong", path), 86);
    CHECK_EQ(vt_shell("cat %s; test $(wc -l < %s) = 2", path, path), 0);
    CHECK_HAS("{\"kind\": \"race\", \"seed\": 1, ");
    CHECK_HAS("{\"kernel\": \"pass\", \"place\": \"pass.cu:11\"}");
    CHECK_HAS("\\n");
}

TEST(vgpu_report, a_suppression_is_by_kind_kernel_and_place_and_its_uses_are_counted)
{
    const char *path = vt_temporary("suppressions");
    vt_write_file(path, "# known\nrace pa* pass.cu:11 # reads\nfault * *\n");
    CHECK_EQ(vt_shell("VGPU_SUPPRESS=%s " VGPU_BUILT "/pass wrong", path), 0);
    CHECK(!vt_output_has("race at"));
    CHECK_HAS(":2 (race pa* pass.cu:11): used 1 time\n");
    CHECK_HAS(":3 (fault * *): used 0 times\n");
    vt_write_file(path, "race pass pass.cu:12\nrace other *\nfault * *\n");
    CHECK_EQ(vt_shell("VGPU_SUPPRESS=%s " VGPU_BUILT "/pass wrong", path), 86);
}

TEST(vgpu_report, a_wrong_line_of_suppressions_is_named)
{
    const char *path = vt_temporary("suppressions");
    vt_write_file(path, "race *\n");
    CHECK_EQ(vt_shell("VGPU_SUPPRESS=%s " VGPU_BUILT "/pass", path), 1);
    CHECK_HAS("suppressions:1: expected three words, KIND KERNEL PLACE");
    CHECK_EQ(vt_shell("VGPU_SUPPRESS=/absent " VGPU_BUILT "/pass"), 1);
    CHECK_HAS("VGPU_SUPPRESS is \"/absent\"; expected a file");
    CHECK_EQ(vt_shell("VGPU_SUPPRESS=/ " VGPU_BUILT "/pass"), 1);
    CHECK_HAS("VGPU_SUPPRESS is \"/\"; expected a file that can be read: Is a directory");
}

TEST(vgpu_report, a_kind_that_no_report_has_is_refused_in_the_suppressions)
{
    const char *path = vt_temporary("suppressions");
    vt_write_file(path, "race * *\n\nraces my_kernel *\n");
    CHECK_EQ(vt_shell("VGPU_SUPPRESS=%s " VGPU_BUILT "/pass", path), 1);
    CHECK_HAS("suppressions:3: no report is of kind \"races\"; expected race, fault, deadlock, "
              "stall, leak or *");
    vt_write_file(path, "a_kind_longer_than_any * *\n");
    CHECK_EQ(vt_shell("VGPU_SUPPRESS=%s " VGPU_BUILT "/pass", path), 1);
    CHECK_HAS("suppressions:1: no report is of kind \"a_kind_longer_than_any\"");
    vt_write_file(path, "* other *\nstall * *\ndeadlock * *\nleak * *\n");
    CHECK_EQ(vt_shell("VGPU_SUPPRESS=%s " VGPU_BUILT "/pass", path), 0);
}

/* A FIFO would hold the process until somebody reads it. */
TEST(vgpu_report, a_path_that_is_no_file_is_refused_at_once)
{
    const char *path = vt_temporary("fifo");
    CHECK_EQ(vt_shell("mkfifo %s", path), 0);
    CHECK_EQ(vt_shell("VGPU_REPORT=%s timeout 20 " VGPU_BUILT "/pass wrong", path), 1);
    CHECK_HAS("fifo\"; expected a file to append to: it is a pipe that nobody reads");
    CHECK_EQ(vt_shell("VGPU_REPORT=/dev/stdout " VGPU_BUILT "/pass wrong"), 1);
    CHECK_HAS("VGPU_REPORT is \"/dev/stdout\"; expected a file to append to: it is a pipe");
    CHECK_EQ(vt_shell("VGPU_REPORT=/ " VGPU_BUILT "/pass wrong"), 1);
    CHECK_HAS("VGPU_REPORT is \"/\"; expected a file to append to: Is a directory");
    CHECK_EQ(vt_shell("VGPU_REPORT=/absent/file " VGPU_BUILT "/pass wrong"), 1);
    CHECK_HAS("VGPU_REPORT is \"/absent/file\"; expected a file to append to: No such file");
}

TEST(vgpu_report, memory_that_is_not_freed_is_reported_when_asked_for)
{
    CHECK_EQ(vt_shell("VGPU_LEAKS=1 " VGPU_BUILT "/pass"), 86);
    CHECK_HAS("1 allocation of 12 bytes was not freed");
}

TEST(vgpu_settings, a_value_that_cannot_be_is_named_with_what_was_expected)
{
    static const char *const wrong[][3] = {
        {"VGPU_SEED", "x", "0 to 18446744073709551615"},
        {"VGPU_DEVICES", "17", "0 to 16"},
        {"VGPU_CAPABILITY", "9.1", "7.5, 8.0, 8.6, 8.7, 8.9 or 9.0"},
        {"VGPU_MEMORY", "1G1", "16M to 512G"},
        {"VGPU_BLOCK_ORDER", "Index", "index, shuffled"},
        {"VGPU_READS", "", "random, newest, oldest"},
        {"VGPU_MODEL", "yes", "0 or 1"},
        {"VGPU_DMABUF", "ordered", "on, unordered, unflushed, off"},
        {"VGPU_QUEUES", "33", "1 to 32"},
        {"VGPU_DRIVER_LOCK", "1", "off, on, strict"},
        {"VGPU_PEER_BROKEN", "0-1,2", "pairs of GPUs 0 to 15, as 0-1,1-0"},
        {"VGPU_TOPOLOGY", "0,16", "groups of GPUs 0 to 15, as 0,1|2,3"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char expected[256];
        snprintf(expected, sizeof expected, "%s is \"%s\"; expected %s", wrong[i][0], wrong[i][1],
                 wrong[i][2]);
        CHECK_EQ(vt_shell("%s=%s " VGPU_BUILT "/pass", wrong[i][0], wrong[i][1]), 1);
        CHECK_HAS(expected);
        CHECK_EQ(vt_shell("%s=%s " VGPU_BUILT "/vgpu-info", wrong[i][0], wrong[i][1]), 1);
        CHECK_HAS(expected);
    }
}

TEST(vgpu_settings, a_variable_that_does_not_exist_is_a_warning)
{
    CHECK_EQ(vt_shell("VGPU_SED=3 " VGPU_BUILT "/pass"), 0);
    CHECK_HAS("no variable is called VGPU_SED; vgpu-info --help lists them");
}

TEST(vgpu_settings, values_are_read_in_the_units_that_they_have)
{
    CHECK_EQ(vt_shell("VGPU_MEMORY=2g VGPU_CAPABILITY=8.6 VGPU_DEVICES=2 VGPU_SMS=4 "
                      "VGPU_READS=oldest VGPU_DMABUF=unflushed " VGPU_BUILT "/vgpu-info"),
             0);
    CHECK_HAS("VGPU_MEMORY=2048M\n");
    CHECK_HAS("VGPU_CAPABILITY=8.6\n");
    CHECK_HAS("VGPU_READS=oldest\n");
    CHECK_HAS("VGPU_DMABUF=unflushed\n");
    CHECK_HAS("device 1: tutti virtual GPU 8.6, 7f00:01:00.0, 4 multiprocessors, 2048 MiB\n");
}

TEST(vgpu_settings, cuda_visible_devices_chooses_and_orders)
{
    CHECK_EQ(vt_shell("VGPU_DEVICES=4 CUDA_VISIBLE_DEVICES=3,1,9,0 " VGPU_BUILT "/vgpu-info"), 0);
    CHECK_HAS("device 0: tutti virtual GPU 9.0, 7f00:03:00.0");
    CHECK_HAS("device 1: tutti virtual GPU 9.0, 7f00:01:00.0");
    CHECK(!vt_output_has("device 2"));
    CHECK_EQ(vt_shell("CUDA_VISIBLE_DEVICES= " VGPU_BUILT "/vgpu-info"), 0);
    CHECK_HAS("no device\n");
}

TEST(vgpu_settings, cuda_device_max_connections_says_how_many_queues_there_are)
{
    CHECK_EQ(vt_shell(VGPU_BUILT "/vgpu-info"), 0);
    CHECK_HAS("VGPU_QUEUES=8\n");
    CHECK_EQ(vt_shell("CUDA_DEVICE_MAX_CONNECTIONS=3 " VGPU_BUILT "/vgpu-info"), 0);
    CHECK_HAS("VGPU_QUEUES=3\n");
    CHECK_EQ(vt_shell("CUDA_DEVICE_MAX_CONNECTIONS=64 " VGPU_BUILT "/vgpu-info"), 0);
    CHECK_HAS("VGPU_QUEUES=32\n");
    CHECK_EQ(vt_shell("CUDA_DEVICE_MAX_CONNECTIONS=0 " VGPU_BUILT "/vgpu-info"), 0);
    CHECK_HAS("VGPU_QUEUES=8\n");
    CHECK_EQ(vt_shell("CUDA_DEVICE_MAX_CONNECTIONS=3 VGPU_QUEUES=5 " VGPU_BUILT "/vgpu-info"), 0);
    CHECK_HAS("VGPU_QUEUES=5\n");
}

TEST(vgpu_settings, the_help_lists_every_variable)
{
    char names[4096];
    CHECK_EQ(vt_shell(VGPU_BUILT "/vgpu-info"), 0);
    snprintf(names, sizeof names, "%.*s", (int)sizeof names - 1, vt_output());
    CHECK_EQ(vt_shell(VGPU_BUILT "/vgpu-info --help"), 0);
    unsigned n = 0;
    for (char *line = strtok(names, "\n"); line; line = strtok(NULL, "\n")) {
        char *equals = strchr(line, '=');
        if (strncmp(line, "VGPU_", 5) != 0 || !equals) continue;
        *equals = 0;
        CHECK_HAS(line);
        n++;
    }
    CHECK(n > 20);
}
