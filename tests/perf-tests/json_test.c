/* Tests of the perf tests' JSON files. */
#include "common/json.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shim.h"

static void read_all(const char *path, char *to, size_t nbytes)
{
    FILE *file = fopen(path, "r");
    size_t got = file == NULL ? 0 : fread(to, 1, nbytes - 1, file);
    to[got] = '\0';
    if (file != NULL) fclose(file);
}

TEST(perf_json, items_are_separated_and_strings_escaped)
{
    char folder[] = "/tmp/perf-json-XXXXXX";
    char path[64];
    char used[64];
    char text[512];
    struct perf_json json;
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/a", folder);
    REQUIRE(perf_json_open(&json, path, used, sizeof(used)));
    perf_json_object(&json, NULL);
    perf_json_string(&json, "text", "a\"b\\c\n");
    perf_json_list(&json, "list");
    perf_json_integer(&json, NULL, -3);
    perf_json_number(&json, NULL, 0.5);
    perf_json_number(&json, NULL, NAN);
    perf_json_object(&json, NULL);
    perf_json_end(&json);
    perf_json_end(&json);
    perf_json_bool(&json, "yes", true);
    perf_json_string(&json, "nothing", NULL);
    perf_json_list(&json, "open");
    CHECK(perf_json_close(&json));
    read_all(path, text, sizeof(text));
    CHECK_STR(text, "{\"text\":\"a\\\"b\\\\c\\u000a\",\"list\":[-3,0.500000,\"nan\",{}],"
                    "\"yes\":\"true\",\"nothing\":null,\"open\":[]}\n");
    unlink(path);
    rmdir(folder);
}

TEST(perf_json, a_file_that_is_there_is_not_overwritten)
{
    char folder[] = "/tmp/perf-json-XXXXXX";
    char path[64];
    char used[3][64];
    struct perf_json json;
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/a", folder);
    for (int i = 0; i < 3; i++) {
        REQUIRE(perf_json_open(&json, path, used[i], sizeof(used[i])));
        CHECK(perf_json_close(&json));
    }
    CHECK_STR(used[0], path);
    CHECK_STR(used[1] + strlen(path), ".0");
    CHECK_STR(used[2] + strlen(path), ".1");
    for (int i = 0; i < 3; i++) unlink(used[i]);
    rmdir(folder);
}

TEST(perf_json, a_folder_that_is_not_there_is_an_error)
{
    struct perf_json json;
    char used[64];
    CHECK(!perf_json_open(&json, "/nonexistent/a", used, sizeof(used)));
    CHECK_EQ(errno, ENOENT);
    perf_json_object(&json, NULL);
    CHECK(perf_json_close(&json));
}
