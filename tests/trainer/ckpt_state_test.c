/* What a checkpoint says of itself beside its tensors: it is refused when it is impossible or a bit
 * of the header has flipped; a checkpoint whose beginning finds no memory; options of any bytes. */
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "ckpt/safetensors.h"
#include "config.h"
#include "shim.h"
#include "utf8.h"

static const struct tr_tensor tensor = {"x", 1, {2, 1}, 2};

/* Writes a checkpoint of these steps, of which some were skipped; the path in path[64]. */
static tr_status write_state(char *path, const char *step, const char *skipped)
{
    const struct tr_metadata rows[] = {{"tutti-train", "3"}, {"step", step},
                                       {"samples", "8"},     {"data", "00000000000000ff"},
                                       {"losses", "1.5 "},   {"skipped", skipped}};
    struct tr_safetensors_writer *writer;
    const float numbers[2] = {1, 2};
    strcpy(path, "/tmp/tutti-state-XXXXXX");
    const int fd = mkstemp(path);
    if (fd < 0) return tr_fail("no file");
    close(fd);
    TR_TRY(tr_safetensors_create(&writer, path, &tensor, 1, rows, 6, false));
    const tr_status status = tr_safetensors_put(writer, 0, 0, numbers, 2);
    if (status == TR_OK) return tr_safetensors_commit(writer, &(bool){false});
    tr_safetensors_discard(writer);
    return status;
}

TEST(checkpoint, numbers_that_no_run_can_have_are_refused)
{
    static const struct {
        const char *step, *skipped, *says;
    } cases[] = {
        {"5", "5", NULL},
        {"5", "6", "\"skipped\" is 6, expected at most \"step\", which is 5"},
        {"5", "18446744073709551615", "\"skipped\" is 18446744073709551615, expected at most"},
        {"5", "-1", "\"skipped\" is \"-1\", expected a number"},
        {"5", " 1", "\"skipped\" is \" 1\", expected a number"},
        {"5", "", "\"skipped\" is \"\", expected a number"},
        {"-5", "0", "\"step\" is \"-5\", expected a number"},
        {"9223372036854775808", "0", "\"step\" is 9223372036854775808, expected at most"},
        {"99999999999999999999", "0", "\"step\" is \"99999999999999999999\", expected a number"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        char path[64];
        struct tr_state state;
        REQUIRE(write_state(path, cases[i].step, cases[i].skipped) == TR_OK);
        const tr_status status = tr_ckpt_read_state(path, &state);
        CHECK_MESSAGE((status == TR_OK) == !cases[i].says, "step %s, skipped %s", cases[i].step,
                      cases[i].skipped);
        if (status < 0 && cases[i].says)
            CHECK_MESSAGE(strstr(tr_error(), cases[i].says), "%s", tr_error());
        unlink(path);
    }
}

/* A bit may flip in the name of the header's checksum, too: then the file has none. */
TEST(checkpoint, any_flipped_bit_of_the_header_is_found)
{
    char path[64];
    unsigned char bytes[4096];
    struct tr_state state;
    REQUIRE(write_state(path, "5", "0") == TR_OK);
    FILE *file = fopen(path, "r+b");
    REQUIRE(file != NULL);
    const long n = (long)fread(bytes, 1, sizeof bytes, file) - (long)sizeof(float[2]);
    CHECK_MESSAGE(tr_ckpt_read_state(path, &state) == TR_OK, "%s", tr_error());
    for (long at = 0; at < n; ++at)
        for (int bit = 0; bit < 8; ++bit) {
            fseek(file, at, SEEK_SET);
            fputc(bytes[at] ^ 1 << bit, file);
            fflush(file);
            CHECK_MESSAGE(tr_ckpt_read_state(path, &state) < 0, "bit %d of byte %ld, '%c'", bit, at,
                          bytes[at]);
            fseek(file, at, SEEK_SET);
            fputc(bytes[at], file);
        }
    fclose(file);
    CHECK_MESSAGE(tr_ckpt_read_state(path, &state) == TR_OK, "%s", tr_error());
    unlink(path);
}

/* A path may have any bytes; JSON is text in UTF-8. */
TEST(checkpoint, options_that_are_no_text_come_back_from_json_that_is_text)
{
    static const char *const values[] = {"d\xff\xfe.txt",
                                         "\xe9",
                                         "caf\xc3\xa9 \xf0\x9f\x99\x82",
                                         "\xed\xa0\x80\xc3",
                                         "\\udcff \\\\udcff \\",
                                         "\\\xff\"\n\x01\x80"};
    for (size_t i = 0; i < sizeof values / sizeof *values; ++i) {
        struct tr_config saved, config;
        tr_config_init(&saved);
        tr_config_init(&config);
        REQUIRE(tr_config_set(&saved, "data", values[i], TR_FROM_COMMAND_LINE) == TR_OK);
        char *json = tr_config_to_json(&saved);
        REQUIRE(json != NULL);
        size_t at = 0;
        for (int n; json[at]; at += (size_t)n) {
            n = tr_utf8_length((const unsigned char *)json + at, strlen(json + at));
            if (!n) break;
        }
        CHECK_MESSAGE(!json[at], "%zu: byte %zu is no UTF-8: %s", i, at, json);
        CHECK_MESSAGE(tr_config_restore(&config, json, "file") == TR_OK, "%s", tr_error());
        CHECK_STR(config.data, values[i]);
        free(json);
    }
}

/* The linker puts this in the place of the function of json-c (--wrap). While it counts, the first
 * object is kept, and there is no memory for a second one. */
static int objects = -1;
static struct json_object *kept;
struct json_object *__real_json_object_new_object(void);
struct json_object *__wrap_json_object_new_object(void);
struct json_object *__wrap_json_object_new_object(void)
{
    if (objects < 0) return __real_json_object_new_object();
    if (objects++ > 0) return NULL;
    return kept = json_object_get(__real_json_object_new_object());
}

TEST(checkpoint, a_header_without_memory_leaks_none)
{
    char path[64];
    REQUIRE(write_state(path, "5", "0") == TR_OK);
    struct tr_safetensors_writer *writer = NULL;
    objects = 0;
    const tr_status status = tr_safetensors_create(&writer, path, &tensor, 1, NULL, 0, false);
    objects = -1;
    CHECK(status < 0 && strstr(tr_error(), "out of memory"));
    CHECK_MESSAGE(json_object_put(kept) == 1, "somebody still holds the first object");
    unlink(path);
}
