/* Ranks that close descriptors of their process; they report on a copy of standard error. */
#include "standard.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tutti.h"

enum { COUNT = 100000, REPORT = 200, STANDARD = 3 };

static bool right = true;

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
    char text[1024] = "WRONG ";
    va_list args;
    va_start(args, format);
    vsnprintf(text + 6, sizeof text - 7, format, args);
    va_end(args);
    strcat(text, "\n");
    right = false;
    if (write(REPORT, text, strlen(text)) < 0) _exit(1);
}

/* ---- Standard streams that are closed -------------------------------------------------------- */

static atomic_bool stop;
static char seen[256]; /* by watch; "": nothing */

/* Whatever has one of the numbers, but for a placeholder, which can be neither read nor written. */
static void *watch(void *unused)
{
    for (int fd = 0; !atomic_load(&stop) && !seen[0]; fd = (fd + 1) % STANDARD) {
        char path[32], target[128] = "";
        const int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || flags & O_PATH) continue;
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) < 0) continue;
        snprintf(seen, sizeof seen, "%d was %s", fd, target);
    }
    return unused;
}

static void check_call(const char *name, tuttiResult_t result, tuttiResult_t expected)
{
    if (result != expected) complain("%s: result %d, %s", name, result, tuttiGetLastError(NULL));
}
#define CALL(call) check_call(#call, call, tuttiSuccess)

/* A line in the log, and nothing else. */
static void make_argument_error(tuttiComm_t comm)
{
    check_call("an argument error",
               tuttiAllReduce(NULL, NULL, COUNT, tuttiInt32, tuttiSum, comm, NULL),
               tuttiInvalidArgument);
}

static void fill(int *data, int rank)
{
    for (int i = 0; i < COUNT; i++) data[i] = rank + i % 10;
}

static void check_sum(tuttiComm_t comm, int *data, tuttiStream_t stream)
{
    int nranks = 1, rank = 0;
    CALL(tuttiCommCount(comm, &nranks));
    CALL(tuttiCommUserRank(comm, &rank));
    fill(data, rank);
    CALL(tuttiAllReduce(data, data, COUNT, tuttiInt32, tuttiSum, comm, stream));
    if (stream) CALL(tuttiStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        if (data[i] != nranks * (nranks - 1) / 2 + i % 10 * nranks) {
            complain("element %d is %d", i, data[i]);
            return;
        }
}

static void use(tuttiComm_t comm)
{
    static int own[COUNT];
    tuttiComm_t other = NULL;
    tuttiStream_t stream = NULL;
    int *window = NULL;
    make_argument_error(comm);
    check_sum(comm, own, NULL);
    CALL(tuttiMemAlloc((void **)&window, sizeof own));
    if (window) check_sum(comm, window, NULL);
    CALL(tuttiCommSplit(comm, 0, 0, &other, NULL));
    CALL(tuttiStreamCreate(&stream));
    if (other && stream) check_sum(other, own, stream);
    CALL(tuttiStreamDestroy(stream));
    CALL(tuttiCommDestroy(other));
    CALL(tuttiMemFree(window));
}

static void open_report(void)
{
    if (dup3(STDERR_FILENO, REPORT, O_CLOEXEC) != REPORT) exit(1);
}

bool works_with_closed_standard_streams(void)
{
    int files[STANDARD];
    pthread_t watcher;
    tuttiComm_t comm = NULL;
    open_report();
    for (int fd = 0; fd < STANDARD; fd++) close(fd);
    if (pthread_create(&watcher, NULL, watch, NULL)) return false;
    CALL(tuttiCommInitEnv(&comm, NULL, NULL));
    if (comm) use(comm);
    atomic_store(&stop, true);
    pthread_join(watcher, NULL);
    if (seen[0]) complain("descriptor %s", seen);
    for (int fd = 0; fd < STANDARD; fd++)
        if (fcntl(fd, F_GETFD) >= 0) complain("descriptor %d is open", fd);
    for (int i = 0; i < STANDARD; i++) files[i] = memfd_create("the program's", MFD_CLOEXEC);
    if (comm) use(comm);
    for (int i = 0; i < STANDARD; i++) {
        struct stat file;
        if (files[i] != i || fstat(i, &file) != 0 || file.st_size)
            complain("file %d of the program is not as it was", i);
    }
    CALL(tuttiCommDestroy(comm));
    return right;
}

/* ---- All descriptors closed ------------------------------------------------------------------ */

enum { FIRST_OWN = STANDARD, LAST_OWN = 60, OWN_BYTES = 65536 };

/* closefrom(3), but for the descriptor of the report; then a file of its own under each number. */
static void take_all_descriptors(void)
{
    static char bytes[OWN_BYTES];
    memset(bytes, 'x', sizeof bytes);
    if (close_range(FIRST_OWN, REPORT - 1, 0) || close_range(REPORT + 1, ~0u, 0)) _exit(1);
    for (int fd = FIRST_OWN; fd <= LAST_OWN; fd++)
        if (memfd_create("the program's", MFD_CLOEXEC) != fd ||
            write(fd, bytes, sizeof bytes) != sizeof bytes)
            _exit(1);
}

static void check_own_files(void)
{
    static char bytes[OWN_BYTES + 1], expected[OWN_BYTES];
    memset(expected, 'x', sizeof expected);
    for (int fd = FIRST_OWN; fd <= LAST_OWN; fd++) {
        const ssize_t n = pread(fd, bytes, sizeof bytes, 0);
        if (n != OWN_BYTES || memcmp(bytes, expected, sizeof expected) != 0)
            complain("file %d of the program is not as it was: %zd bytes", fd, n);
    }
}

/* The call works, or fails for what the last rank has done; that rank knows it. */
static void check_after_close(const char *name, tuttiResult_t result, tuttiComm_t comm,
                              bool has_closed, int last)
{
    char expected[32];
    const char *text = tuttiGetLastError(comm);
    if (result == tuttiSuccess) return;
    snprintf(expected, sizeof expected, "rank %d", last);
    if (has_closed ? result != tuttiInvalidUsage || !strstr(text, "has closed the descriptor")
                   : !strstr(text, expected))
        complain("%s: result %d, %s", name, result, text);
}

bool survives_closefrom(void)
{
    static int own[COUNT];
    tuttiComm_t comm = NULL, other = NULL;
    int *window = NULL, *more = NULL, rank = 0, nranks = 0;
    open_report();
    CALL(tuttiCommInitEnv(&comm, NULL, NULL));
    CALL(tuttiMemAlloc((void **)&window, sizeof own));
    CALL(tuttiMemAlloc((void **)&more, sizeof own)); /* not shown to the peers yet */
    if (!comm || !window || !more) return false;
    CALL(tuttiCommUserRank(comm, &rank));
    CALL(tuttiCommCount(comm, &nranks));
    const int last = nranks - 1;
    const bool closes = rank == last;
    fill(own, rank);
    if (closes)
        check_sum(comm, own, NULL);
    else
        check_after_close("the first all-reduce",
                          tuttiAllReduce(own, own, COUNT, tuttiInt32, tuttiSum, comm, NULL), comm,
                          false, last);
    if (closes) take_all_descriptors();
    int *const buffers[] = {own, window, more};
    for (int i = 0; i < 3; i++)
        check_after_close(
            "all-reduce",
            tuttiAllReduce(buffers[i], buffers[i], COUNT, tuttiInt32, tuttiMax, comm, NULL), comm,
            closes, last);
    check_after_close("split", tuttiCommSplit(comm, 0, 0, &other, NULL), NULL, closes, last);
    CALL(tuttiMemFree(window));
    CALL(tuttiMemFree(more));
    if (other) CALL(tuttiCommDestroy(other));
    CALL(tuttiCommDestroy(comm));
    if (closes) check_own_files();
    return right;
}
