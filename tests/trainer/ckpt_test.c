/* Tests of safetensors files and checkpoints, cut and flipped too. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ckpt/safetensors.h"
#include "shim.h"

/* Takes the place of the system's function in this program: fails with that number, if not 0. */
static int link_error;
int linkat(int from, const char *old, int to, const char *new, int flags)
{
    if (!link_error) return (int)syscall(SYS_linkat, from, old, to, new, flags);
    errno = link_error;
    return -1;
}

static const struct tr_metadata notes[] = {{"step", "12"}, {"quote", "a \"b\" \\ \n"}};

/* A file of two tensors in a folder of its own. */
struct bench {
    char folder[32], path[64], temporary[96];
    float a[6], b[5];
    struct tr_tensor tensors[2];
};

/* Writes both tensors of a bench. */
static tr_status write_file(const struct bench *b, const char *path)
{
    struct tr_safetensors_writer *writer;
    TR_TRY(tr_safetensors_create(&writer, path, b->tensors, 2, notes, 2, false));
    tr_status status = tr_safetensors_put(writer, 0, 0, b->a, 6);
    if (status == TR_OK) status = tr_safetensors_put(writer, 1, 0, b->b, 5);
    if (status == TR_OK) return tr_safetensors_commit(writer, &(bool){false});
    tr_safetensors_discard(writer);
    return status;
}

static bool setup(struct bench *b)
{
    strcpy(b->folder, "/tmp/tutti-ckpt-XXXXXX");
    if (!mkdtemp(b->folder)) return false;
    snprintf(b->path, sizeof b->path, "%s/file.safetensors", b->folder);
    snprintf(b->temporary, sizeof b->temporary, "%s.%ld.tmp", b->path, (long)getpid());
    for (int i = 0; i < 6; ++i) b->a[i] = (float)i / 7;
    for (int i = 0; i < 5; ++i) b->b[i] = -(float)i * 1e20f;
    b->tensors[0] = (struct tr_tensor){"first.weight", 2, {2, 3}, 6};
    b->tensors[1] = (struct tr_tensor){"second.bias", 1, {5}, 5};
    return write_file(b, b->path) == TR_OK;
}

static void teardown(const struct bench *b)
{
    unlink(b->path);
    unlink(b->temporary);
    rmdir(b->folder);
}

/* Opens and reads both tensors. */
static tr_status read_back(const struct bench *b, float *x, float *y)
{
    struct tr_safetensors *file;
    TR_TRY(tr_safetensors_open(&file, b->path));
    tr_status status = tr_safetensors_read(file, &b->tensors[0], x);
    if (status == TR_OK) status = tr_safetensors_read(file, &b->tensors[1], y);
    tr_safetensors_close(file);
    return status;
}

static long read_bytes(const char *path, unsigned char *bytes, long most)
{
    FILE *file = fopen(path, "rb");
    if (!file) return -1;
    const long n = (long)fread(bytes, 1, (size_t)most, file);
    fclose(file);
    return n;
}

static void write_bytes(const char *path, const unsigned char *bytes, long n)
{
    FILE *file = fopen(path, "wb");
    fwrite(bytes, 1, (size_t)n, file);
    fclose(file);
}

TEST(safetensors, what_is_written_is_read_back)
{
    struct bench b;
    REQUIRE(setup(&b));
    float x[6], y[5];
    CHECK_MESSAGE(read_back(&b, x, y) == TR_OK, "%s", tr_error());
    CHECK(!memcmp(x, b.a, sizeof x) && !memcmp(y, b.b, sizeof y));
    CHECK(access(b.temporary, F_OK) != 0);
    struct tr_safetensors *file;
    REQUIRE(tr_safetensors_open(&file, b.path) == TR_OK);
    CHECK_STR(tr_safetensors_metadata(file, "step"), "12");
    CHECK_STR(tr_safetensors_metadata(file, "quote"), notes[1].value);
    CHECK(tr_safetensors_metadata(file, "none") == NULL);
    tr_safetensors_close(file);
    teardown(&b);
}

TEST(safetensors, a_link_at_the_temporary_name_is_not_followed)
{
    struct bench b;
    REQUIRE(setup(&b));
    char other[64];
    snprintf(other, sizeof other, "%s/other", b.folder);
    write_bytes(other, (const unsigned char *)"kept", 4);
    REQUIRE(symlink(other, b.temporary) == 0);
    CHECK_MESSAGE(write_file(&b, b.path) == TR_OK, "%s", tr_error());
    unsigned char bytes[8] = {0};
    CHECK_EQ(read_bytes(other, bytes, sizeof bytes), 4);
    CHECK(!memcmp(bytes, "kept", 4));
    float x[6], y[5];
    CHECK_MESSAGE(read_back(&b, x, y) == TR_OK, "%s", tr_error());
    unlink(other);
    teardown(&b);
}

TEST(safetensors, the_header_is_what_the_format_says)
{
    struct bench b;
    REQUIRE(setup(&b));
    unsigned char bytes[4096];
    const long n = read_bytes(b.path, bytes, sizeof bytes);
    const long length = bytes[0] | bytes[1] << 8;
    CHECK_EQ(n, 8 + length + 44);
    CHECK_EQ(bytes[8], '{');
    CHECK_EQ(length % 8, 0);
    CHECK(!memcmp(bytes + 8 + length, b.a, sizeof b.a));
    bytes[8 + length] = 0;
    CHECK(strstr((char *)bytes + 8, "\"data_offsets\":[24,44]") != NULL);
    teardown(&b);
}

TEST(safetensors, a_file_cut_anywhere_is_refused)
{
    struct bench b;
    REQUIRE(setup(&b));
    unsigned char bytes[4096];
    const long n = read_bytes(b.path, bytes, sizeof bytes);
    for (long cut = 0; cut < n; ++cut) {
        float x[6], y[5];
        write_bytes(b.path, bytes, cut);
        CHECK_MESSAGE(read_back(&b, x, y) < 0, "cut to %ld of %ld bytes was taken", cut, n);
        CHECK_MESSAGE(strstr(tr_error(), b.path), "cut to %ld: %s", cut, tr_error());
    }
    teardown(&b);
}

TEST(safetensors, a_flipped_bit_in_a_tensor_is_found_and_named)
{
    struct bench b;
    REQUIRE(setup(&b));
    unsigned char bytes[4096];
    const long n = read_bytes(b.path, bytes, sizeof bytes);
    for (long at = n - 44; at < n; ++at) {
        float x[6], y[5];
        bytes[at] ^= 4;
        write_bytes(b.path, bytes, n);
        bytes[at] ^= 4;
        CHECK(read_back(&b, x, y) < 0);
        CHECK(strstr(tr_error(), at < n - 20 ? "first.weight" : "second.bias") != NULL);
        CHECK(strstr(tr_error(), "checksum") != NULL);
    }
    teardown(&b);
}

/* Whether the file can be read, and says what was written. */
static bool reads_as_written(const struct bench *b, bool *read)
{
    float x[6], y[5];
    struct tr_safetensors *file;
    *read = tr_safetensors_open(&file, b->path) == TR_OK;
    if (!*read) return false;
    bool same = true;
    for (size_t i = 0; i < sizeof notes / sizeof notes[0]; ++i) {
        const char *value = tr_safetensors_metadata(file, notes[i].key);
        same = same && value && !strcmp(value, notes[i].value);
    }
    *read = tr_safetensors_read(file, &b->tensors[0], x) == TR_OK &&
            tr_safetensors_read(file, &b->tensors[1], y) == TR_OK;
    tr_safetensors_close(file);
    return same && *read && !memcmp(x, b->a, sizeof x) && !memcmp(y, b->b, sizeof y);
}

TEST(safetensors, a_flipped_bit_in_the_header_changes_nothing_unseen)
{
    struct bench b;
    REQUIRE(setup(&b));
    unsigned char bytes[4096];
    bool read;
    const long n = read_bytes(b.path, bytes, sizeof bytes);
    CHECK(reads_as_written(&b, &read));
    for (long at = 0; at < n - 44; ++at)
        for (int bit = 0; bit < 8; ++bit) {
            bytes[at] ^= (unsigned char)(1 << bit);
            write_bytes(b.path, bytes, n);
            bytes[at] ^= (unsigned char)(1 << bit);
            const bool same = reads_as_written(&b, &read);
            CHECK_MESSAGE(same || !read, "bit %d of byte %ld, '%c', was taken", bit, at, bytes[at]);
        }
    teardown(&b);
}

/* Without a checksum nothing tells whether a tensor is what was written. */
TEST(safetensors, a_tensor_without_a_checksum_is_refused)
{
    struct bench b;
    REQUIRE(setup(&b));
    unsigned char bytes[4096];
    const long n = read_bytes(b.path, bytes, sizeof bytes - 1);
    bytes[n] = 0;
    /* A file that an older tutti-train wrote, whose header has no checksum. */
    unsigned char *header = (unsigned char *)strstr((char *)bytes + 8, "\"header\"");
    if (header) header[1] = 'H';
    bool read;
    write_bytes(b.path, bytes, n);
    CHECK(reads_as_written(&b, &read));
    unsigned char *key = (unsigned char *)strstr((char *)bytes + 8, "checksum.second");
    REQUIRE(key != NULL);
    *key = 'C';
    write_bytes(b.path, bytes, n);
    reads_as_written(&b, &read);
    CHECK(!read);
    CHECK_MESSAGE(strstr(tr_error(), "no checksum of tensor second.bias"), "%s", tr_error());
    teardown(&b);
}

/* Writes a file of this header and 8 bytes of data. */
static void write_header(const char *path, const char *header)
{
    unsigned char bytes[512] = {(unsigned char)strlen(header)};
    memcpy(bytes + 8, header, strlen(header));
    write_bytes(path, bytes, 8 + (long)strlen(header) + 8);
}

TEST(safetensors, a_header_of_wrong_types_is_refused)
{
    static const char *const headers[] = {
        "null",
        "[]",
        "{\"x\":null}",
        "{\"x\":{\"dtype\":null,\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"x\":{\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"x\":{\"dtype\":[\"F32\"],\"shape\":[2],\"data_offsets\":[0,8]}}",
        "{\"x\":{\"dtype\":\"F32\",\"shape\":null,\"data_offsets\":[0,8]}}",
        "{\"x\":{\"dtype\":\"F32\",\"shape\":[null],\"data_offsets\":[0,8]}}",
        "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":null}}",
        "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,null]}}",
    };
    struct bench b;
    REQUIRE(setup(&b));
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; ++i) {
        struct tr_safetensors *file;
        write_header(b.path, headers[i]);
        CHECK_MESSAGE(tr_safetensors_open(&file, b.path) < 0, "%s was taken", headers[i]);
        CHECK_MESSAGE(strstr(tr_error(), b.path), "%s: %s", headers[i], tr_error());
    }
    struct tr_safetensors *file;
    write_header(b.path, "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}");
    CHECK_MESSAGE(tr_safetensors_open(&file, b.path) == TR_OK, "%s", tr_error());
    if (!tt_test_failed()) tr_safetensors_close(file);
    teardown(&b);
}

TEST(safetensors, another_shape_or_name_is_refused_with_both_sides)
{
    struct bench b;
    REQUIRE(setup(&b));
    float x[6];
    struct tr_safetensors *file;
    REQUIRE(tr_safetensors_open(&file, b.path) == TR_OK);
    const struct tr_tensor turned = {"first.weight", 2, {3, 2}, 6}, other = {"third", 1, {6}, 6};
    CHECK(tr_safetensors_read(file, &turned, x) < 0);
    CHECK(strstr(tr_error(), "[2, 3]") && strstr(tr_error(), "[3, 2]"));
    CHECK(tr_safetensors_read(file, &other, x) < 0);
    CHECK(strstr(tr_error(), "third") != NULL);
    tr_safetensors_close(file);
    teardown(&b);
}

TEST(safetensors, a_file_that_is_not_complete_leaves_the_old_one)
{
    struct bench b;
    REQUIRE(setup(&b));
    struct tr_safetensors_writer *writer;
    const float other[6] = {1, 2, 3, 4, 5, 6};
    REQUIRE(tr_safetensors_create(&writer, b.path, b.tensors, 2, notes, 2, false) == TR_OK);
    CHECK(tr_safetensors_put(writer, 0, 0, other, 6) == TR_OK);
    CHECK(tr_safetensors_commit(writer, &(bool){false}) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "0 of 5 numbers of second.bias"), "%s", tr_error());
    CHECK(access(b.temporary, F_OK) != 0);
    float x[6], y[5];
    CHECK_MESSAGE(read_back(&b, x, y) == TR_OK, "%s", tr_error());
    CHECK(!memcmp(x, b.a, sizeof x));
    teardown(&b);
}

/* Where the file system has files without names, as nearly all have, nothing is left to remove. */
TEST(safetensors, a_process_that_dies_while_it_writes_leaves_no_file)
{
    struct bench b;
    REQUIRE(setup(&b));
    const int probe = open(b.folder, O_TMPFILE | O_WRONLY, 0600);
    const pid_t child = fork();
    if (child == 0) {
        struct tr_safetensors_writer *writer;
        bool ready =
            tr_safetensors_create(&writer, b.path, b.tensors, 2, notes, 2, false) == TR_OK &&
            tr_safetensors_put(writer, 0, 0, b.a, 6) == TR_OK;
        if (ready) raise(SIGKILL);
        _exit(1);
    }
    int status;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    char other[96];
    snprintf(other, sizeof other, "%s.%ld.tmp", b.path, (long)child);
    CHECK_EQ(access(other, F_OK) == 0, probe < 0);
    float x[6], y[5];
    CHECK_MESSAGE(read_back(&b, x, y) == TR_OK, "%s", tr_error());
    if (probe >= 0) close(probe);
    unlink(other);
    teardown(&b);
}

/* By AppArmor, say, or a file system of FUSE. */
TEST(safetensors, a_file_is_written_where_one_without_a_name_can_never_get_one)
{
    static const int errors[] = {EPERM, EXDEV, EOPNOTSUPP};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; ++i) {
        struct bench b;
        float x[6], y[5];
        REQUIRE(setup(&b) && unlink(b.path) == 0);
        link_error = errors[i];
        const tr_status status = write_file(&b, b.path);
        link_error = 0;
        CHECK_MESSAGE(status == TR_OK, "%s", tr_error());
        CHECK_MESSAGE(read_back(&b, x, y) == TR_OK, "%s", tr_error());
        CHECK(access(b.temporary, F_OK) != 0);
        teardown(&b);
    }
}

/* As a process of the same number does, in another container. */
TEST(safetensors, a_file_whose_temporary_name_was_taken_gets_no_name)
{
    struct bench b;
    float x[6], y[5];
    struct tr_safetensors_writer *writer;
    REQUIRE(setup(&b));
    REQUIRE(tr_safetensors_create(&writer, b.path, b.tensors, 2, notes, 2, true) == TR_OK);
    REQUIRE(tr_safetensors_put(writer, 0, 0, b.a, 6) == TR_OK);
    REQUIRE(tr_safetensors_put(writer, 1, 0, b.b, 5) == TR_OK);
    REQUIRE(unlink(b.temporary) == 0);
    write_bytes(b.temporary, (const unsigned char *)"other", 5);
    CHECK(tr_safetensors_commit(writer, &(bool){false}) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "was removed or replaced while it was written"), "%s",
                  tr_error());
    CHECK_EQ(access(b.temporary, F_OK), 0);
    CHECK_MESSAGE(read_back(&b, x, y) == TR_OK, "%s", tr_error());
    teardown(&b);
}

TEST(safetensors, a_folder_in_the_place_of_a_file_is_named_with_what_helps)
{
    struct bench b;
    REQUIRE(setup(&b));
    REQUIRE(unlink(b.path) == 0 && mkdir(b.path, 0777) == 0);
    CHECK(write_file(&b, b.path) < 0);
    CHECK_MESSAGE(strstr(tr_error(), "where the checkpoint is to be: rename or remove it"), "%s",
                  tr_error());
    CHECK(rmdir(b.path) == 0);
    teardown(&b);
}

TEST(safetensors, a_file_gets_the_rights_that_the_umask_leaves)
{
    struct bench b;
    REQUIRE(setup(&b));
    const mode_t before = umask(0027);
    CHECK_MESSAGE(write_file(&b, b.path) == TR_OK, "%s", tr_error());
    umask(before);
    struct stat st;
    CHECK_EQ(stat(b.path, &st), 0);
    CHECK_EQ(st.st_mode & 0777, 0640);
    teardown(&b);
}

TEST(safetensors, numbers_behind_a_tensor_are_refused)
{
    struct bench b;
    REQUIRE(setup(&b));
    struct tr_safetensors_writer *writer;
    REQUIRE(tr_safetensors_create(&writer, b.path, b.tensors, 2, notes, 2, false) == TR_OK);
    CHECK(tr_safetensors_put(writer, 0, 0, b.a, 6) == TR_OK);
    CHECK(tr_safetensors_put(writer, 1, 0, b.b, 5) == TR_OK);
    CHECK(tr_safetensors_put(writer, 1, 5, b.b, 1) < 0);
    tr_safetensors_discard(writer);
    CHECK(access(b.temporary, F_OK) != 0);
    teardown(&b);
}

TEST(safetensors, a_folder_that_is_not_there_is_an_error)
{
    struct bench b;
    REQUIRE(setup(&b));
    CHECK(write_file(&b, "/nonexistent/x") < 0);
    CHECK(strstr(tr_error(), "/nonexistent/x") != NULL);
    struct tr_safetensors *file;
    CHECK(tr_safetensors_open(&file, "/nonexistent/x") < 0);
    teardown(&b);
}
