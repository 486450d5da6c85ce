/* The log is opened once a process: these start log_child with other settings. */
#include "base/log.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim.h"

/* Runs log_child with `settings` before it; its pid, and what it wrote to stderr. */
static int run_child(const char *settings, const char *argument, char *text, size_t size)
{
    static char command[16384];
    char line[64] = "";
    snprintf(
        command, sizeof command,
        "env -u TUTTI_LOG -u TUTTI_LOG_FILE NCCL_CONF_FILE=/dev/null %s %s/tests/log_child %s 2>&1",
        settings, TUTTI_BINARY_DIR, argument);
    text[0] = '\0';
    FILE *pipe = popen(command, "r");
    if (!pipe || !fgets(line, sizeof line, pipe)) {
        tt_test_fail(__FILE__, __LINE__, "cannot run %s", command);
        if (pipe) pclose(pipe);
        return -1;
    }
    text[fread(text, 1, size - 1, pipe)] = '\0';
    CHECK_EQ(pclose(pipe), 0);
    return atoi(line);
}

static int count(const char *text, const char *word)
{
    int n = 0;
    while ((text = strstr(text, word))) text += strlen(word), n++;
    return n;
}

TEST(log, a_line_names_host_process_thread_level_and_place)
{
    char text[4096], host[HOST_NAME_MAX + 1] = "", expected[512];
    const int pid = run_child("", "", text, sizeof text);
    gethostname(host, sizeof host - 1);
    host[63] = '\0';
    snprintf(expected, sizeof expected, "%s:%d:%d tutti WARN log_child.c:", host, pid, pid);
    CHECK_MESSAGE(strncmp(text, expected, strlen(expected)) == 0, "expected %s at the start of: %s",
                  expected, text);
    CHECK(strstr(text, " a warning of 42\n"));
    CHECK(strstr(text, " a failure\n"));
}

TEST(log, levels_let_through_what_they_name)
{
    static const struct {
        const char *settings;
        int warnings, infos;
    } levels[] = {
        {"", 1, 0}, {"TUTTI_LOG=NONE", 0, 0}, {"TUTTI_LOG=WARN", 1, 0}, {"TUTTI_LOG=info", 1, 1}};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        char text[4096];
        (void)run_child(levels[i].settings, "", text, sizeof text);
        CHECK_EQ(count(text, "a warning of 42"), levels[i].warnings);
        CHECK_EQ(count(text, "some information"), levels[i].infos);
        CHECK_EQ(count(text, "a failure"), levels[i].warnings);
    }
}

TEST(log, the_files_name_holds_host_and_pid)
{
    char folder[] = "/tmp/tutti-log-XXXXXX", settings[256], path[512], text[4096] = "",
         host[64] = "";
    REQUIRE(mkdtemp(folder));
    snprintf(settings, sizeof settings, "TUTTI_LOG_FILE=%s/%%h.%%p.log", folder);
    const int pid = run_child(settings, "", text, sizeof text);
    CHECK_STR(text, "");
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/%s.%d.log", folder, host, pid);
    FILE *file = fopen(path, "r");
    CHECK_MESSAGE(file, "%s is not there", path);
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        CHECK_EQ(count(text, "a warning of 42"), 1);
    }
    unlink(path);
    CHECK_EQ(rmdir(folder), 0);
}

TEST(log, a_file_that_cannot_be_opened_is_said_and_stderr_is_used)
{
    char text[4096];
    (void)run_child("TUTTI_LOG_FILE=/nonexistent/log", "", text, sizeof text);
    CHECK(strstr(text,
                 "TUTTI_LOG_FILE=/nonexistent/log cannot be opened (No such file or directory)"));
    CHECK(strstr(text, "a warning of 42"));
}

static char log_path[64]; /* of the log file of run_with_file() */

/* Runs log_child with the log file that `make` puts at log_path, in a new folder. */
static void run_with_file(bool (*make)(const char *path), char *text, size_t size)
{
    char folder[] = "/tmp/tutti-log-XXXXXX", settings[256];
    text[0] = '\0';
    REQUIRE(mkdtemp(folder));
    snprintf(log_path, sizeof log_path, "%s/log", folder);
    CHECK(make(log_path));
    snprintf(settings, sizeof settings, "TUTTI_LOG_FILE=%s timeout -s KILL 30", log_path);
    (void)run_child(settings, "", text, size);
    if (unlink(log_path) != 0) (void)rmdir(log_path);
    CHECK_EQ(rmdir(folder), 0);
}

static bool make_pipe(const char *path)
{
    return mkfifo(path, 0600) == 0;
}

static bool make_folder(const char *path)
{
    return mkdir(path, 0700) == 0;
}

static bool make_anothers(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    const bool made = fd >= 0 && fchown(fd, 48213, 48213) == 0;
    close(fd);
    return made;
}

static int reader; /* of the pipe */

static bool make_full_pipe(const char *path)
{
    if (!make_pipe(path)) return false;
    reader = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    char block[4096] = {0};
    while (write(reader, block, sizeof block) > 0) {
    }
    return reader >= 0;
}

static bool make_read_pipe(const char *path)
{
    reader = make_pipe(path) ? open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK) : -1;
    return reader >= 0;
}

TEST(log, what_is_no_file_of_this_user_is_said_and_stderr_is_used)
{
    static const struct {
        bool (*make)(const char *path);
        const char *why;
    } others[] = {{make_pipe, "No such device or address"}, /* nobody reads it */
                  {make_folder, "Is a directory"},
                  {make_anothers, "it belongs to another user"}};
    const size_t n = sizeof others / sizeof *others - (geteuid() != 0); /* only root can chown */
    for (size_t i = 0; i < n; i++) {
        char text[4096], expected[256];
        run_with_file(others[i].make, text, sizeof text);
        snprintf(expected, sizeof expected, "TUTTI_LOG_FILE=%s cannot be opened (%s); using stderr",
                 log_path, others[i].why);
        CHECK_MESSAGE(strstr(text, expected), "expected %s in: %s", expected, text);
        CHECK_EQ(count(text, "a warning of 42"), 1);
    }
}

TEST(log, a_pipe_gets_lines_and_a_full_one_stalls_nobody)
{
    char text[4096];
    run_with_file(make_full_pipe, text, sizeof text);
    CHECK_STR(text, "");
    close(reader);
    run_with_file(make_read_pipe, text, sizeof text);
    CHECK_STR(text, "");
    const ssize_t n = read(reader, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    CHECK_EQ(count(text, "a warning of 42"), 1);
    close(reader);
}

/* A file has one place where the next line goes for each time that it was opened. */
TEST(log, a_standard_stream_by_its_path_keeps_the_programs_lines_and_the_logs)
{
    static const char *const paths[] = {"/dev/stdout", "/dev/stderr",     "/dev/fd/1",
                                        "/dev/fd/2",   "/proc/self/fd/1", "/proc/self/fd/2"};
    char path[] = "/tmp/tutti-log-XXXXXX";
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char text[4096], settings[128], argument[256];
        snprintf(settings, sizeof settings, "TUTTI_LOG_FILE=%s", paths[i]);
        snprintf(argument, sizeof argument, "between >%s 2>&1; cat %s", path, path);
        (void)run_child(settings, argument, text, sizeof text);
        CHECK_EQ(count(text, "a line of the program's own, between those of the log\n"), 4);
        CHECK_EQ(count(text, "a warning of 42\n"), 1);
        CHECK_EQ(count(text, "a failure\n"), 1);
        CHECK_EQ(count(text, "\n"), 6);
    }
    unlink(path);
}

TEST(log, a_path_that_is_too_long_is_not_cut)
{
    static char text[16384], settings[8192] = "TUTTI_LOG_FILE=/tmp";
    while (strlen(settings) < 4200) strcat(settings, "/.");
    (void)run_child(settings, "", text, sizeof text);
    CHECK(strstr(text, "cannot be opened (File name too long); using stderr"));
    CHECK_EQ(count(text, "a warning of 42"), 1);
}

TEST(log, a_line_for_a_reader_that_has_gone_ends_nobody)
{
    char text[4096];
    (void)run_child("", "gone", text, sizeof text);
    CHECK_STR(text, "");
}

TEST(log, a_file_of_the_program_under_the_logs_number_gets_no_line)
{
    char text[4096];
    (void)run_child("TUTTI_LOG_FILE=/dev/null", "closed", text, sizeof text);
    CHECK_EQ(count(text, "a warning of 42"), 1); /* on stderr, after the program closed the file */
    CHECK_EQ(count(text, "a failure"), 1);
}

TEST(log, a_line_that_is_too_long_is_cut_and_still_ends)
{
    char text[8192];
    (void)run_child("", "long", text, sizeof text);
    CHECK(strlen(text) > 1000 && strlen(text) < 2000);
    CHECK_EQ(count(text, "\n"), 1);
    CHECK(text[strlen(text) - 1] == '\n');
}

TEST(log, control_characters_are_shown_as_escapes)
{
    char text[4096];
    (void)run_child("", "control", text, sizeof text);
    CHECK_EQ(count(text, "\n"), 1);
    CHECK(strstr(text, "a line\\nforged, and \\x1b[2J\n"));
}

/* ---- NCCL's form ---------------------------------------------------------------------------- */

TEST(log, in_nccls_form_a_line_names_host_process_thread_and_device)
{
    char text[4096], host[HOST_NAME_MAX + 1] = "", expected[512];
    const int pid = run_child("NCCL_DEBUG=INFO", "nccl", text, sizeof text);
    gethostname(host, sizeof host - 1);
    host[63] = '\0';
    snprintf(expected, sizeof expected,
             "%s:%d:%d [0] NCCL WARN a warning of 42 (log_child.c:", host, pid, pid);
    CHECK_MESSAGE(strstr(text, expected), "expected %s in: %s", expected, text);
    snprintf(expected, sizeof expected, "%s:%d:%d [0] NCCL INFO some information\n", host, pid,
             pid);
    CHECK_MESSAGE(strstr(text, expected), "expected %s in: %s", expected, text);
    CHECK(strstr(text, " NCCL WARN a failure ("));
    CHECK(strstr(text, " [0] NCCL INFO NCCL version 2.30.7+test\n"));
    CHECK_EQ(count(text, "NCCL version"), 1);
    CHECK_EQ(count(text, "tutti "), 0);
    CHECK(strstr(text, " NCCL INFO NCCL_DEBUG set by environment to INFO (TUTTI_LOG=INFO)\n"));
}

TEST(log, nccls_levels_let_through_what_they_name)
{
    static const struct {
        const char *settings;
        int versions, warnings, infos;
    } levels[] = {{"", 0, 1, 0},
                  {"NCCL_DEBUG=NONE", 0, 0, 0},
                  {"NCCL_DEBUG=VERSION", 1, 0, 0},
                  {"NCCL_DEBUG=WARN", 1, 1, 0},
                  {"NCCL_DEBUG=info", 1, 1, 1},
                  {"NCCL_DEBUG=ABORT", 1, 1, 1},
                  {"NCCL_DEBUG=TRACE", 1, 1, 1},
                  {"NCCL_DEBUG=TRACE TUTTI_LOG=NONE", 0, 0, 0}};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        char text[4096];
        (void)run_child(levels[i].settings, "nccl", text, sizeof text);
        CHECK_EQ(count(text, "NCCL version 2.30.7+test\n"), levels[i].versions);
        CHECK_EQ(count(text, "a warning of 42"), levels[i].warnings);
        CHECK_EQ(count(text, "some information"), levels[i].infos);
    }
    char text[4096];
    (void)run_child("NCCL_DEBUG=VERSION", "nccl", text, sizeof text);
    CHECK_STR(text, "NCCL version 2.30.7+test\n");
    (void)run_child("NCCL_DEBUG=INFO", "", text, sizeof text); /* nobody asked for NCCL's */
    CHECK_EQ(count(text, "NCCL"), 0);
}

TEST(log, lines_that_nccls_variable_asks_for_go_to_standard_output)
{
    char text[4096];
    (void)run_child("NCCL_DEBUG=WARN", "nccl 2>/dev/null | cat", text, sizeof text);
    CHECK_EQ(count(text, "NCCL WARN a warning of 42"), 1);
    (void)run_child("", "nccl 2>/dev/null | cat", text, sizeof text); /* others stay on stderr */
    CHECK_STR(text, "");
}

TEST(log, nccls_log_file_and_subsystems_are_taken)
{
    char folder[] = "/tmp/tutti-log-XXXXXX", settings[256], path[512], text[4096] = "",
         host[64] = "";
    REQUIRE(mkdtemp(folder));
    snprintf(settings, sizeof settings,
             "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=ENV NCCL_DEBUG_FILE=%s/%%h.%%%%.%%p", folder);
    const int pid = run_child(settings, "nccl", text, sizeof text);
    CHECK_STR(text, "");
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/%s.%%.%d", folder, host, pid);
    FILE *file = fopen(path, "r");
    CHECK_MESSAGE(file, "%s is not there", path);
    if (file) {
        text[fread(text, 1, sizeof text - 1, file)] = '\0';
        fclose(file);
        CHECK_EQ(count(text, "NCCL WARN a warning of 42"), 1);
        CHECK_EQ(count(text, "NCCL_DEBUG_SUBSYS set by environment to ENV"), 1);
    }
    unlink(path);
    CHECK_EQ(rmdir(folder), 0);
    (void)run_child("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=NET,WIND", "nccl", text, sizeof text);
    CHECK_EQ(count(text, "set by environment"), 0); /* of ENV */
    CHECK_MESSAGE(strstr(text, "NCCL_DEBUG_SUBSYS=NET,WIND: 'WIND' is no subsystem"), "%s", text);
    (void)run_child("NCCL_DEBUG_FILE=/nonexistent/log", "nccl", text, sizeof text);
    CHECK(strstr(text, "NCCL_DEBUG_FILE=/nonexistent/log cannot be opened"));
    CHECK(strstr(text, "using stderr"));
    (void)run_child("NCCL_DEBUG=WARN NCCL_DEBUG_FILE=/nonexistent/log", "nccl", text, sizeof text);
    CHECK(strstr(text, "using stdout"));
}

TEST(log, what_has_no_effect_is_warned_about_once)
{
    char text[4096];
    (void)run_child("NCCL_NET_PLUGIN=ofi NCCL_BUFFSIZE=1", "nccl", text, sizeof text);
    CHECK_EQ(count(text, "NCCL WARN NCCL_NET_PLUGIN=ofi (environment) has no effect"), 1);
    CHECK_EQ(count(text, "NCCL_BUFFSIZE"), 0);
    (void)run_child("NCCL_BUFFSIZE=1 NCCL_DEBUG=INFO", "nccl", text, sizeof text);
    CHECK_EQ(count(text, "NCCL INFO NCCL_BUFFSIZE=1 (environment) has no effect"), 1);
}
