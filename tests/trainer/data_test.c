/* Tests of the trainer's random numbers, texts and samples. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/data.h"
#include "random.h"
#include "shim.h"
#include "watch/log.h"

TEST(random, philox_matches_its_authors_known_answers)
{
    /* Random123's kat_vectors, philox4x32 with 10 rounds: counter and key all zero, and all ones.
     */
    uint32_t out[4];
    tr_random_words(0, (enum tr_purpose)0, 0, 0, out);
    const uint32_t zeros[4] = {0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u};
    CHECK(!memcmp(out, zeros, sizeof out));
    tr_random_words(UINT64_MAX, (enum tr_purpose)0xffffffffu, UINT32_MAX, UINT64_MAX, out);
    const uint32_t ones[4] = {0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu};
    CHECK(!memcmp(out, ones, sizeof out));
}

TEST(data, the_order_of_an_epoch_is_a_permutation)
{
    static const uint64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 4096, 4097};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
        const uint64_t n = sizes[s];
        for (uint32_t epoch = 0; epoch < 3; ++epoch) {
            bool *seen = calloc(n, sizeof *seen);
            for (uint64_t i = 0; i < n; ++i) {
                const uint64_t at = tr_random_permute(1, epoch, i, n);
                CHECK_MESSAGE(at < n && !seen[at], "n %llu: %llu", (unsigned long long)n,
                              (unsigned long long)at);
                if (at < n) seen[at] = true;
            }
            free(seen);
        }
    }
}

TEST(data, the_order_differs_between_epochs_and_seeds)
{
    int same_epoch = 0, same_seed = 0;
    for (uint64_t i = 0; i < 1000; ++i) {
        same_epoch += tr_random_permute(1, 0, i, 1000) == tr_random_permute(1, 1, i, 1000);
        same_seed += tr_random_permute(1, 0, i, 1000) == tr_random_permute(2, 0, i, 1000);
    }
    CHECK(same_epoch < 20);
    CHECK(same_seed < 20);
}

/* A text in which byte i is i mod 251, so a window shows where it came from. */
static struct tr_text numbered(size_t n, size_t ntrain)
{
    struct tr_text text = {.bytes = malloc(n), .nbytes = n, .ntrain = ntrain};
    for (size_t i = 0; i < n; ++i) text.bytes[i] = (unsigned char)(i % 251);
    return text;
}

TEST(data, samples_are_windows_inside_the_training_part)
{
    for (size_t ntrain = 9; ntrain < 60; ++ntrain) {
        struct tr_text text = numbered(64, ntrain);
        int32_t tokens[8], targets[8];
        for (uint64_t sample = 0; sample < 50; ++sample) {
            tr_sampler_get(&text, 3, sample, 8, tokens, targets);
            CHECK(targets[7] < (int32_t)ntrain);
            for (int i = 0; i < 8; ++i) CHECK_EQ(targets[i], tokens[i] + 1);
        }
        tr_text_fini(&text);
    }
}

TEST(data, an_epoch_takes_every_window_once)
{
    struct tr_text text = numbered(200, 200);
    const uint64_t n = tr_sampler_windows(&text, 8);
    bool seen[200] = {false};
    for (uint64_t sample = n; sample < 2 * n; ++sample) {
        int32_t tokens[8], targets[8];
        tr_sampler_get(&text, 1, sample, 8, tokens, targets);
        for (int i = 0; i < 8; ++i) {
            CHECK(!seen[tokens[i]]);
            seen[tokens[i]] = true;
        }
    }
    tr_text_fini(&text);
}

TEST(data, held_out_windows_lie_behind_the_training_part)
{
    struct tr_text text = numbered(100, 80);
    CHECK_EQ(tr_sampler_held_out(&text, 8), 2);
    int32_t tokens[8], targets[8];
    tr_sampler_get_held_out(&text, 1, 8, tokens, targets);
    CHECK_EQ(tokens[0], 88);
    CHECK_EQ(targets[7], 96);
    tr_text_fini(&text);
}

TEST(data, what_is_missing_or_too_short_is_named)
{
    struct tr_text text;
    CHECK(tr_text_read(&text, "/nonexistent/file", 5, 8) < 0);
    CHECK(strstr(tr_error(), "/nonexistent/file") != NULL);
    tr_text_fini(&text);
    CHECK(tr_text_read(&text, TUTTI_SOURCE_DIR "/LICENSE", 5, 1000000) < 0);
    CHECK(strstr(tr_error(), "--context=1000000") != NULL);
    CHECK_MESSAGE(strstr(tr_error(), " or less, or more text"), "%s", tr_error());
    tr_text_fini(&text);
    CHECK(tr_text_read(&text, "/dev/null", 5, 8) < 0);
    CHECK(strstr(tr_error(), "/dev/null") != NULL);
    tr_text_fini(&text);
}

TEST(data, a_fifo_is_refused_at_once)
{
    char folder[] = "/tmp/tutti-data-XXXXXX", path[64];
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/fifo", folder);
    REQUIRE(mkfifo(path, 0600) == 0);
    struct tr_text text;
    CHECK(tr_text_read(&text, path, 5, 8) < 0);
    CHECK_MESSAGE(strstr(tr_error(), path) && strstr(tr_error(), "regular file"), "%s", tr_error());
    tr_text_fini(&text);
    unlink(path);
    rmdir(folder);
}

TEST(data, a_folder_is_read_in_the_order_of_names_without_binaries)
{
    char folder[] = "/tmp/tutti-data-XXXXXX", path[64];
    REQUIRE(mkdtemp(folder) != NULL);
    static const char *const names[] = {"b.txt", "a.txt", ".hidden", "c.bin"};
    for (int i = 0; i < 4; ++i) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *file = fopen(path, "wb");
        REQUIRE(file != NULL);
        fwrite(names[i], 1, i == 3 ? 6 : 5, file); /* the last with its zero byte */
        fclose(file);
    }
    struct tr_text text;
    CHECK(tr_text_read(&text, folder, 0, 4) == TR_OK);
    CHECK_EQ(text.nbytes, 10);
    CHECK_EQ(text.nfiles, 2);
    CHECK(text.nbytes == 10 && !memcmp(text.bytes, "a.txtb.txt", 10));
    tr_text_fini(&text);
    for (int i = 0; i < 4; ++i) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* A text of the user's that is not read must not go unseen. */
/* Writes a file of `nbytes` letters that ends with `end`, reads it, and gives the warning. */
static void read_odd(size_t nbytes, const char *end, size_t length, char warning[512])
{
    char path[] = "/tmp/tutti-data-XXXXXX";
    struct tr_text text;
    FILE *file = fdopen(mkstemp(path), "wb");
    REQUIRE(file != NULL);
    for (size_t i = 0; i < nbytes; ++i) fputc('a', file);
    fwrite(end, 1, length, file);
    fclose(file);
    CHECK_MESSAGE(tr_text_read(&text, path, 0, 4) == TR_OK, "%s", tr_error());
    CHECK_EQ(text.nbytes, nbytes + length);
    CHECK(!text.warning[0] || strstr(text.warning, path));
    memcpy(warning, text.warning, 512);
    tr_text_fini(&text);
    unlink(path);
}

TEST(data, a_file_that_is_not_text_is_read_with_a_warning_of_the_place)
{
    enum { MIB = 1 << 20 };
    static const struct {
        size_t nbytes;
        const char *end;
        size_t length;
        const char *says; /* NULL: no warning */
    } cases[] = {
        {9, "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", 9, NULL},
        {9, "\0z", 2,
         " is not text: a zero byte at offset 9; its bytes are trained on as they are"},
        {9, "\xE4z", 2,
         " is not text: the byte 0xE4, not UTF-8, at offset 9; its bytes are trained on as they "
         "are"},
        {9, "\xC3\xA4\xE2\x82", 4, "0xE2, not UTF-8, at offset 11;"},
        {9, "\xC0\x80zz", 4, "0xC0, not UTF-8, at offset 9;"},
        {MIB - 1, "\xC3\xA4", 2, NULL}, /* begins within the MiB and ends behind it */
        {MIB - 1, "\xC3z", 2, "0xC3, not UTF-8, at offset 1048575;"},
        {MIB, "\xFF", 1, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        char warning[512];
        read_odd(cases[i].nbytes, cases[i].end, cases[i].length, warning);
        CHECK_MESSAGE(cases[i].says ? strstr(warning, cases[i].says) != NULL : !warning[0],
                      "%zu: \"%s\"", i, warning);
    }
}

TEST(data, files_that_begin_with_build_are_read_and_what_is_passed_over_is_counted)
{
    char folder[] = "/tmp/tutti-data-XXXXXX", path[64];
    REQUIRE(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/build-x", folder);
    REQUIRE(mkdir(path, 0700) == 0);
    static const char *const names[] = {"building.txt", "build-x/a", ".hidden", "c.bin"};
    for (int i = 0; i < 4; ++i) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FILE *file = fopen(path, "wb");
        REQUIRE(file != NULL);
        fwrite("abcdefgh", 1, i == 3 ? 9 : 8, file); /* the last with its zero byte */
        fclose(file);
    }
    snprintf(path, sizeof path, "%s/link", folder);
    REQUIRE(symlink("building.txt", path) == 0);
    struct tr_text text;
    CHECK_MESSAGE(tr_text_read(&text, folder, 0, 4) == TR_OK, "%s", tr_error());
    CHECK_EQ(text.nbytes, 8);
    CHECK_EQ(text.nfiles, 1);
    CHECK_EQ(text.nleft, 4);
    tr_text_fini(&text);
    snprintf(path, sizeof path, "%s/building.txt", folder);
    unlink(path);
    CHECK(tr_text_read(&text, folder, 0, 4) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "4 files and folders were passed over"), "%s", tr_error());
    tr_text_fini(&text);
    static const char *const rest[] = {"build-x/a", ".hidden", "c.bin", "link"};
    for (int i = 0; i < 4; ++i) {
        snprintf(path, sizeof path, "%s/%s", folder, rest[i]);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/build-x", folder);
    rmdir(path);
    rmdir(folder);
}

TEST(log, text_of_any_language_is_shown_and_what_no_terminal_should_get_is_not)
{
    static const char *const cases[][2] = {
        {"a\tb\n", "a\tb\n"},
        {"gr\303\274\303\237e \346\227\245 \360\237\230\200", /* 2, 3 and 4 bytes */
         "gr\303\274\303\237e \346\227\245 \360\237\230\200"},
        {"\033[2J\177\r", ".[2J.."},
        {"\302\233x", "..x"}, /* U+009B: a terminal's command */
        {"\300\257 \340\200\257 \360\200\200\257", ".. ... ...."}, /* longer than need be */
        {"\355\240\200 \364\220\200\200 \377", "... .... ."},      /* no characters */
        {"\303", "."},                                             /* cut off */
        {"\346\227", ".."},
        {"\346a\227", ".a."},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        char *shown = NULL;
        size_t n = 0;
        FILE *out = open_memstream(&shown, &n);
        tr_log_text(out, (const unsigned char *)cases[i][0], (long)strlen(cases[i][0]));
        fclose(out);
        CHECK_STR(shown, cases[i][1]);
        free(shown);
    }
}

TEST(log, a_file_that_another_run_writes_is_refused_and_keeps_its_lines)
{
    char path[] = "/tmp/tutti-log-XXXXXX", line[64] = "";
    const int fd = mkstemp(path);
    struct tr_log log, other;
    REQUIRE(fd >= 0 && tr_log_open(&log, true, 1, path, false) == TR_OK);
    tr_log_run(&log, 0, "{\"kind\": \"run\", \"version\": 1}");
    for (int append = 0; append < 2; ++append) {
        CHECK(tr_log_open(&other, true, 1, path, append) < 0);
        CHECK_MESSAGE(strstr(tr_error(), "another run writes its log there"), "%s", tr_error());
    }
    tr_log_close(&log);
    CHECK(read(fd, line, sizeof line - 1) > 0);
    CHECK_STR(line, "{\"kind\": \"run\", \"version\": 1}\n");
    CHECK(tr_log_open(&other, true, 1, path, true) == TR_OK);
    tr_log_close(&other);
    CHECK(tr_log_open(&other, true, 1, "/tmp", true) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "expected the name of a file"), "%s", tr_error());
    close(fd);
    unlink(path);
}

TEST(log, to_a_pipe_that_nobody_reads_is_refused_at_once)
{
    char path[] = "/tmp/tutti-log-XXXXXX", line[64] = "";
    struct tr_log log;
    REQUIRE(mkdtemp(path));
    char pipe[64];
    snprintf(pipe, sizeof pipe, "%s/pipe", path);
    REQUIRE(mkfifo(pipe, 0600) == 0);
    CHECK(tr_log_open(&log, true, 1, pipe, true) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "nobody reads this pipe"), "%s", tr_error());
    const int reader = open(pipe, O_RDONLY | O_NONBLOCK);
    REQUIRE(reader >= 0 && tr_log_open(&log, true, 1, pipe, true) == TR_OK);
    CHECK_EQ(fcntl(fileno(log.json.file), F_GETFL) & O_NONBLOCK, 0);
    tr_log_run(&log, 0, "{}");
    tr_log_close(&log);
    CHECK(read(reader, line, sizeof line - 1) > 0);
    CHECK_STR(line, "{}\n");
    close(reader);
    unlink(pipe);
    rmdir(path);
}

TEST(log, to_a_pipe_whose_reader_stands_still_holds_nothing_up)
{
    char path[] = "/tmp/tutti-log-XXXXXX", pipe[64], line[1001] = "";
    struct tr_log log;
    REQUIRE(mkdtemp(path));
    snprintf(pipe, sizeof pipe, "%s/pipe", path);
    memset(line, 'x', sizeof line - 1);
    REQUIRE(mkfifo(pipe, 0600) == 0);
    const int reader = open(pipe, O_RDONLY | O_NONBLOCK);
    REQUIRE(reader >= 0 && tr_log_open(&log, true, 1, pipe, true) == TR_OK);
    for (int i = 0; i < 300; ++i) tr_log_run(&log, i, line);
    CHECK(log.json.has_lost);
    long whole = 0;
    for (ssize_t n; (n = read(reader, line, sizeof line)) > 0; ++whole) CHECK_EQ(n, 1001);
    CHECK(whole > 0 && whole < 300);
    tr_log_run(&log, 300, "{}"); /* there is room again */
    CHECK_EQ(read(reader, line, sizeof line), 3);
    tr_log_close(&log);
    close(reader);
    unlink(pipe);
    rmdir(path);
}

TEST(log, a_perplexity_beyond_all_numbers_is_null)
{
    char path[] = "/tmp/tutti-log-XXXXXX", line[256] = "";
    const int fd = mkstemp(path);
    struct tr_log log;
    REQUIRE(fd >= 0 && tr_log_open(&log, true, 1, path, false) == TR_OK);
    tr_log_held_out(&log, 3, 800, 1.5);
    tr_log_close(&log);
    CHECK(read(fd, line, sizeof line - 1) > 0);
    CHECK_MESSAGE(!strcmp(line, "{\"kind\": \"held_out\", \"step\": 3, \"held_out_loss\": 800, "
                                "\"perplexity\": null, \"seconds\": 1.500}\n"),
                  "%s", line);
    close(fd);
    unlink(path);
}
