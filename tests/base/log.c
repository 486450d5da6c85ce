/* The log is opened once a process: these start log_child with other settings. */
#include "base/log.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

/* Runs log_child with `settings` before it; its pid, and what it wrote to stderr. */
static int run_child(const char *settings, const char *argument, char *text, size_t size)
{
    char command[1024], line[64] = "";
    snprintf(command, sizeof command,
             "env -u TUTTI_LOG -u TUTTI_LOG_FILE %s %s/tests/log_child %s 2>&1", settings,
             TUTTI_BINARY_DIR, argument);
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
