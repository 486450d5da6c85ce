/* libnccl.so.2 against odd and hostile use: what is refused, what ends a group, and what is left
 * behind. On memory of the host. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl.h"
#include "pair.h"
#include "shim.h"

static void sum_pair(ncclComm_t comms[2], int values[2])
{
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < 2; i++)
        CHECK(ncclAllReduce(&values[i], &values[i], 1, ncclInt, ncclSum, comms[i], NULL) ==
              ncclSuccess);
}

/* ---- Groups --------------------------------------------------------------------------------- */

TEST(nccl_hostile, a_simulated_end_ends_the_group_and_issues_nothing)
{
    ncclComm_t comms[2];
    int values[2] = {1, 2};
    make_pair(comms);
    CHECK(ncclGroupSimulateEnd(NULL) == ncclInvalidUsage); /* there is none */
    CHECK(says("without ncclGroupStart"));
    sum_pair(comms, values);
    CHECK(ncclGroupSimulateEnd(NULL) == ncclInvalidUsage);
    CHECK(says("is not there yet"));
    CHECK(values[0] == 1 && values[1] == 2);
    sum_pair(comms, values);
    CHECK(ncclAllReduce(values, values, 1, (ncclDataType_t)13, ncclSum, comms[0], NULL) ==
          ncclInvalidArgument);
    CHECK(ncclGroupSimulateEnd(NULL) == ncclInvalidArgument); /* the group's first failure */
    CHECK(says("type 13"));
    sum_pair(comms, values);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(values[0] == 3 && values[1] == 3);
    CHECK(ncclGroupEnd() == ncclInvalidUsage); /* there is none */
    CHECK(says("without ncclGroupStart"));
    destroy_pair(comms);
}

TEST(nccl_hostile, a_group_ends_with_its_first_failure)
{
    ncclComm_t comms[2];
    int values[2] = {1, 2};
    make_pair(comms);
    for (int first = 0; first < 2; first++) {
        sum_pair(comms, values);
        for (int i = 0; i < 2; i++) {
            const bool by_face = i == first;
            CHECK(ncclAllReduce(by_face ? values : NULL, values, 1,
                                by_face ? (ncclDataType_t)13 : ncclInt, ncclSum, comms[0],
                                NULL) == ncclInvalidArgument);
        }
        CHECK(ncclGroupEnd() == ncclInvalidArgument);
        CHECK(says(first == 0 ? "type 13" : "sendbuff is NULL"));
        CHECK(values[0] == 1 && values[1] == 2);
    }
    sum_pair(comms, values); /* no elements, on what is no communicator */
    CHECK(ncclAllReduce(values, values, 0, ncclInt, ncclSum, (ncclComm_t)values, NULL) ==
          ncclInvalidArgument);
    CHECK(says("ncclAllReduce: "));
    CHECK(says(" is no communicator"));
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(says("ncclAllReduce: "));
    CHECK(says(" is no communicator"));
    CHECK(values[0] == 1 && values[1] == 2);
    destroy_pair(comms);
}

TEST(nccl_hostile, a_refusal_in_a_group_fails_it)
{
    ncclComm_t comm;
    float value = 1;
    REQUIRE(ncclCommInitAll(&comm, 1, NULL) == ncclSuccess);
    CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclAllReduce(&value, &value, 1, (ncclDataType_t)13, ncclSum, comm, NULL) ==
          ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

/* A refused call that a group would not hold leaves the group as it is. */
TEST(nccl_hostile, a_refusal_of_what_is_no_call_leaves_the_group)
{
    ncclComm_t comms[2];
    ncclUniqueId id;
    ncclResult_t state;
    int values[2] = {1, 2}, number;
    void *memory;
    make_pair(comms);
    sum_pair(comms, values);
    CHECK(ncclGetVersion(NULL) == ncclInvalidArgument);
    CHECK(ncclGetUniqueId(NULL) == ncclInvalidArgument);
    CHECK(ncclCommCount(NULL, &number) == ncclInvalidArgument);
    CHECK(ncclCommGetAsyncError(NULL, &state) == ncclInvalidArgument);
    CHECK(ncclMemAlloc(NULL, 1) == ncclInvalidArgument);
    CHECK(ncclCommRegister(comms[0], NULL, 1, &memory) == ncclInvalidArgument);
    CHECK(ncclCommGetUniqueId(comms[0], &id) == ncclInvalidUsage);
    CHECK(ncclParamGetI8(NULL, NULL) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(values[0] == 3 && values[1] == 3);
    destroy_pair(comms);
}

TEST(nccl_hostile, what_comes_later_and_is_a_call_fails_the_group)
{
    ncclComm_t comms[2];
    int values[2] = {1, 2};
    make_pair(comms);
    sum_pair(comms, values);
    CHECK(ncclSignal(0, 0, 0, 0, comms[0], NULL) == ncclInvalidUsage);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    CHECK(says("ncclSignal: one-sided communication is not there yet"));
    CHECK(values[0] == 1 && values[1] == 2);
    sum_pair(comms, values);
    CHECK(ncclCommRevoke(comms[0], 0) == ncclInvalidUsage);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    CHECK(says("ncclCommRevoke: revoking a communicator is not there yet"));
    destroy_pair(comms);
}

TEST(nccl_hostile, a_window_that_is_refused_fails_the_group)
{
    ncclComm_t comms[2];
    ncclWindow_t window;
    int values[2] = {1, 2};
    make_pair(comms);
    for (int i = 0; i < 2; i++) {
        sum_pair(comms, values);
        CHECK(ncclCommWindowRegister(i ? NULL : comms[0], values, sizeof values, i ? &window : NULL,
                                     0) == ncclInvalidArgument);
        CHECK(ncclGroupEnd() == ncclInvalidArgument);
        CHECK(says(i ? "the communicator is NULL" : "ncclCommWindowRegister: win is NULL"));
        CHECK(values[0] == 1 && values[1] == 2);
    }
    destroy_pair(comms);
}

TEST(nccl_hostile, what_would_make_a_communicator_later_leaves_null)
{
    ncclComm_t comm, made = (ncclComm_t)0x7;
    ncclUniqueId id;
    int gone = 0;
    REQUIRE(ncclCommInitAll(&comm, 1, NULL) == ncclSuccess);
    CHECK(ncclCommShrink(comm, &gone, 1, &made, NULL, 0) == ncclInvalidUsage && !made);
    made = (ncclComm_t)0x7;
    memset(&id, 0, sizeof id);
    CHECK(ncclCommGrow(comm, 2, &id, 1, &made, NULL) == ncclInvalidUsage && !made);
    CHECK(ncclCommShrink(comm, &gone, 1, NULL, NULL, 0) == ncclInvalidUsage);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

/* ---- Splits --------------------------------------------------------------------------------- */

struct split {
    ncclComm_t parent, made;
    ncclResult_t result;
    char error[512];
    _Atomic bool has_ended;
};

static void *split_well(void *argument)
{
    struct split *self = argument;
    self->result = ncclCommSplit(self->parent, 0, 0, &self->made, NULL);
    snprintf(self->error, sizeof self->error, "%s", ncclGetLastError(NULL));
    self->has_ended = true;
    return NULL;
}

/* Rank 0's is refused, with this text, and rank 1 learns it; others NULL: as one that could not
 * take part, else with that text. */
static void split_badly(ncclComm_t comms[2], int color, ncclComm_t *newcomm, ncclConfig_t *config,
                        bool in_group, const char *text, const char *others)
{
    struct split other = {.parent = comms[1]};
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, split_well, &other) == 0);
    if (in_group) CHECK(ncclGroupStart() == ncclSuccess);
    CHECK(ncclCommSplit(comms[0], color, 0, newcomm, config) == ncclInvalidArgument);
    CHECK(says(text));
    if (in_group) CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(says(text));
    for (int i = 0; i < 10000 && !other.has_ended; i++) usleep(1000);
    CHECK(other.has_ended);
    if (!other.has_ended) CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
    pthread_join(thread, NULL);
    CHECK(other.result == ncclInvalidArgument && !other.made);
    if (others)
        CHECK_MESSAGE(strstr(other.error, others), "%s", other.error);
    else
        CHECK_MESSAGE(strstr(other.error, "rank 0 could not take part in the split: ") &&
                          strstr(other.error, strchr(text, ':') + 2),
                      "%s", other.error);
}

static const char bad_config[] = "ncclCommSplit: the config's blocking is 7: expected";

TEST(nccl_hostile, a_split_that_one_rank_refuses_waits_on_no_rank)
{
    ncclComm_t comms[2], made = (ncclComm_t)0x7;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int values[2] = {1, 2};
    make_pair(comms);
    config.blocking = 7;
    split_badly(comms, 0, &made, &config, false, bad_config, NULL);
    CHECK(!made);
    split_badly(comms, 0, NULL, NULL, false, "ncclCommSplit: newcomm is NULL", NULL);
    sum_pair(comms, values); /* the parent goes on */
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(values[0] == 3 && values[1] == 3);
    destroy_pair(comms);
}

TEST(nccl_hostile, every_negative_color_but_one_is_refused_by_its_value)
{
    static const int colors[] = {-2, -3, -4, -2147483647, -2147483647 - 1};
    ncclComm_t comms[2], made;
    char text[128];
    make_pair(comms);
    for (size_t i = 0; i < sizeof colors / sizeof colors[0]; i++) {
        snprintf(text, sizeof text,
                 "ncclCommSplit: color %d: expected 0 or more, or NCCL_SPLIT_NOCOLOR (-1)",
                 colors[i]);
        CHECK(ncclGetVersion(NULL) == ncclInvalidArgument); /* an older error */
        split_badly(comms, colors[i], &made, NULL, false, text, NULL);
    }
    split_badly(comms, -3, &made, NULL, true, "ncclCommSplit: color -3: expected",
                "color -3: expected");
    destroy_pair(comms);
}

/* The parent fails, and its error has the reason on both ranks. */
TEST(nccl_hostile, a_split_that_one_rank_refuses_in_a_group_waits_on_no_rank)
{
    ncclComm_t comms[2], made = (ncclComm_t)0x7;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int values[2] = {1, 2};
    config.blocking = 7;
    make_pair(comms);
    split_badly(comms, 0, &made, &config, true, bad_config, bad_config);
    CHECK(!made);
    for (int i = 0; i < 2; i++) {
        CHECK(ncclAllReduce(&values[i], &values[i], 1, ncclInt, ncclSum, comms[i], NULL) ==
              ncclInvalidArgument);
        CHECK_MESSAGE(says("rank 0 (") && says(bad_config), "%s", ncclGetLastError(NULL));
    }
    destroy_pair(comms);
}

/* What one test logs, in a process of its own: the standard error is that of the process when it
 * began. */
static void run_test(const char *name, char *log, size_t size)
{
    char path[512] = "", command[1024];
    REQUIRE(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    snprintf(command, sizeof command, "NCCL_DEBUG=WARN '%s' --gtest_filter=*.%s 2>&1", path, name);
    FILE *output = popen(command, "re");
    REQUIRE(output != NULL);
    log[fread(log, 1, size - 1, output)] = 0;
    CHECK(pclose(output) == 0);
    const char *begin = strstr(log, "[ RUN ");
    REQUIRE(begin != NULL);
    memmove(log, begin, strlen(begin) + 1);
}

static int times_in(const char *text, const char *part)
{
    int times = 0;
    while ((text = strstr(text, part))) text++, times++;
    return times;
}

TEST(nccl_hostile, a_refusal_is_logged_once_by_its_own_sentence)
{
    char log[16384];
    run_test("a_refusal_in_a_group_fails_it", log, sizeof log);
    CHECK_MESSAGE(times_in(log, "NCCL WARN ncclAllReduce: type 13 is none of") == 1 &&
                      times_in(log, "NCCL WARN") == 1,
                  "the log is: %s", log);
    run_test("a_refusal_of_what_is_no_call_leaves_the_group", log, sizeof log);
    CHECK_MESSAGE(times_in(log, "NCCL WARN ncclGetVersion: version is NULL") == 1 &&
                      times_in(log, "NCCL WARN") == 8,
                  "the log is: %s", log);
    run_test("a_split_that_one_rank_refuses_waits_on_no_rank", log, sizeof log);
    CHECK_MESSAGE(times_in(log, "NCCL WARN ncclCommSplit: the config's blocking is 7") == 1 &&
                      times_in(log, "NCCL WARN rank 0 could not take part") == 2 &&
                      times_in(log, "NCCL WARN") == 4,
                  "the log is: %s", log);
}

TEST(nccl_hostile, the_log_has_the_names_of_nccl_only)
{
    char log[16384];
    run_test("errors_have_the_names_of_nccl_only", log, sizeof log);
    CHECK_MESSAGE(times_in(log, "NCCL WARN") == 8 &&
                      times_in(log, "that ncclGetUniqueId made") == 1 &&
                      times_in(log, "NCCL_SPLIT_NOCOLOR") == 1 && !times_in(log, "tuttiC") &&
                      !times_in(log, "tuttiG"),
                  "the log is: %s", log);
}

/* ---- Texts ---------------------------------------------------------------------------------- */

TEST(nccl_hostile, errors_have_the_names_of_nccl_only)
{
    ncclComm_t comm, made;
    ncclUniqueId id = {{0}};
    void *memory;
    int value = 1;
    REQUIRE(ncclCommInitAll(&comm, 1, NULL) == ncclSuccess);
    CHECK(ncclCommInitRank(&made, 2, id, 2) == ncclInvalidArgument);
    CHECK(says("ncclCommInitRank: rank 2"));
    CHECK(ncclCommInitRank(&made, 1, id, 0) == ncclInvalidArgument);
    CHECK(says("the one that ncclGetUniqueId made"));
    CHECK(ncclCommCuDevice(NULL, &value) == ncclInvalidArgument);
    CHECK(says("ncclCommCuDevice: "));
    CHECK(ncclCommSplit(comm, -7, 0, &made, NULL) == ncclInvalidArgument);
    CHECK(says("color -7: expected 0 or more, or NCCL_SPLIT_NOCOLOR (-1)"));
    CHECK(ncclMemAlloc(&memory, SIZE_MAX) == ncclInvalidArgument);
    CHECK(says("ncclMemAlloc: "));
    CHECK(ncclBcast(&value, 1, ncclInt, 5, comm, NULL) == ncclInvalidArgument);
    CHECK(says("ncclBcast: root 5"));
    CHECK(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comm, (cudaStream_t)&value) ==
          ncclInvalidArgument);
    CHECK(says("ncclAllReduce: stream "));
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    CHECK(says("ncclGroupEnd without ncclGroupStart"));
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST(nccl_hostile, what_is_null_or_empty_is_taken_as_nccl_takes_it)
{
    ncclComm_t comm, *const place = &comm;
    ncclWindow_t window = (ncclWindow_t)place;
    int value = 1;
    REQUIRE(ncclCommInitAll(place, 1, NULL) == ncclSuccess);
    CHECK(ncclCommFinalize(NULL) == ncclSuccess);
    CHECK(ncclCommInitAll(place, 0, NULL) == ncclSuccess);
    CHECK(ncclCommInitAll(NULL, 0, NULL) == ncclInvalidArgument);
    CHECK(ncclCommDeregister(comm, NULL) == ncclSuccess);
    CHECK(ncclCommWindowRegister(comm, &value, sizeof value, &window, 0) == ncclSuccess);
    CHECK(window == NULL);
    CHECK(ncclCommWindowDeregister(comm, window) == ncclSuccess);
    CHECK(ncclCommWindowDeregister(comm, (ncclWindow_t)place) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister(comm, &value, sizeof value, NULL, 0) == ncclInvalidArgument);
    CHECK(ncclCommWindowRegister(NULL, &value, sizeof value, &window, 0) == ncclInvalidArgument);
    CHECK(says("ncclCommWindowRegister: "));
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

/* ---- Calls ---------------------------------------------------------------------------------- */

TEST(nccl_hostile, a_wrong_root_is_refused_without_elements_too)
{
    ncclComm_t comm;
    REQUIRE(ncclCommInitAll(&comm, 1, NULL) == ncclSuccess);
    for (int root = -1; root < 2; root++) {
        const ncclResult_t expected = root == 0 ? ncclSuccess : ncclInvalidArgument;
        CHECK(ncclBroadcast(NULL, NULL, 0, ncclInt, root, comm, NULL) == expected);
        CHECK(ncclBcast(NULL, 0, ncclInt, root, comm, NULL) == expected);
        CHECK(ncclReduce(NULL, NULL, 0, ncclInt, ncclSum, root, comm, NULL) == expected);
        CHECK(ncclGather(NULL, NULL, 0, ncclInt, root, comm, NULL) == expected);
        CHECK(ncclScatter(NULL, NULL, 0, ncclInt, root, comm, NULL) == expected);
    }
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST(nccl_hostile, memory_of_no_bytes_is_null)
{
    void *memory = &memory;
    CHECK(ncclMemAlloc(&memory, 0) == ncclSuccess);
    CHECK(!memory);
    CHECK(ncclMemFree(memory) == ncclSuccess);
}

/* ---- Parameters ----------------------------------------------------------------------------- */

/* Before the settings are read; they have no effect here. The first call of all is an error, which
 * reads them. */
__attribute__((constructor)) static void set_variables(void)
{
    setenv("NCCL_IB_TC", " -5", 1);
    setenv("NCCL_IB_SL", "-1", 1);
    (void)ncclCommCount(NULL, NULL);
}

TEST(nccl_hostile, a_parameter_handle_that_is_none_is_refused)
{
    const ncclParamHandle_t none[] = {NULL, (ncclParamHandle_t)1, (ncclParamHandle_t)UINTPTR_MAX,
                                      (ncclParamHandle_t)(uintptr_t) "NCCL_IB_TC"};
    int8_t small;
    const char *text;
    char raw[8];
    int length;
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        CHECK(ncclParamGetI8(none[i], &small) == ncclInvalidArgument);
        CHECK(says("is no handle"));
        CHECK(ncclParamGetStr(none[i], &text) == ncclInvalidArgument);
        CHECK(ncclParamGet(none[i], raw, sizeof raw, &length) == ncclInvalidArgument);
    }
}

TEST(nccl_hostile, a_negative_parameter_is_no_unsigned_number)
{
    ncclParamHandle_t handle;
    uint64_t number;
    int64_t signed_number;
    REQUIRE(ncclParamBind(&handle, "NCCL_IB_SL") == ncclSuccess);
    CHECK(ncclParamGetU64(handle, &number) == ncclInvalidArgument);
    CHECK(ncclParamGetI64(handle, &signed_number) == ncclSuccess && signed_number == -1);
    REQUIRE(ncclParamBind(&handle, "NCCL_IB_TC") == ncclSuccess);
    CHECK(ncclParamGetU64(handle, &number) == ncclInvalidArgument);
    CHECK(says("is ' -5': expected a number"));
}

/* ---- Communicators -------------------------------------------------------------------------- */

TEST(nccl_hostile, a_negative_number_of_a_gpu_is_refused)
{
    const int devices[2] = {0, -2};
    ncclComm_t comms[2];
    CHECK(ncclCommInitAll(comms, 2, devices) == ncclInvalidArgument);
    CHECK(says("devlist[1] is -2"));
    CHECK(ncclGroupStart() == ncclSuccess); /* a call that the group would hold */
    CHECK(ncclCommInitAll(comms, 2, devices) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(says("devlist[1] is -2"));
}

TEST(nccl_hostile, a_failure_outlives_the_communicator_and_older_sentences_do_not_hide_it)
{
    ncclComm_t comms[2];
    ncclResult_t state;
    int value = 1;
    char copy[1024];
    make_pair(comms);
    CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
    CHECK(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[0], NULL) == ncclRemoteError);
    const char *text = ncclGetLastError(comms[0]);
    snprintf(copy, sizeof copy, "%s", text);
    CHECK(strstr(copy, "aborted"));

    CHECK(ncclGetVersion(NULL) == ncclInvalidArgument); /* another sentence of this thread */
    CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess && state == ncclRemoteError);
    text = ncclGetLastError(comms[0]);
    CHECK(!strcmp(text, copy));
    CHECK(ncclCommAbort(comms[0]) == ncclSuccess);
    for (int i = 0; i < 64; i++) { /* takes what was freed */
        void *taken = malloc((size_t)64 * (size_t)(i + 1));
        REQUIRE(taken);
        memset(taken, 'x', (size_t)64 * (size_t)(i + 1));
        free(taken);
    }
    CHECK(!strcmp(text, copy));
    CHECK(ncclGetVersion(NULL) == ncclInvalidArgument);
    CHECK(!strcmp(ncclGetLastError(comms[0]), copy)); /* the communicator has ended */
}

TEST(nccl_hostile, a_rank_that_leaves_names_no_failure_of_an_earlier_communicator)
{
    for (int i = 0; i < 3; i++) {
        ncclComm_t comms[2];
        int value = 1;
        make_pair(comms);
        CHECK(ncclCommDestroy(comms[0]) == ncclSuccess);
        CHECK(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[1], NULL) ==
              ncclRemoteError);
        const char *text = ncclGetLastError(comms[1]);
        const char *left = strstr(text, ") has left: it destroyed its communicator");
        CHECK_MESSAGE(left && !strcmp(left, ") has left: it destroyed its communicator"), "%s",
                      text);
        CHECK(ncclCommAbort(comms[1]) == ncclSuccess);
    }
}

TEST(nccl_hostile, the_handle_of_what_has_ended_replaces_no_sentence)
{
    ncclComm_t comms[2];
    make_pair(comms);
    destroy_pair(comms);
    CHECK(ncclGetVersion(NULL) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(comms[0]), "version is NULL"));
    CHECK(strstr(ncclGetLastError((ncclComm_t)0x7), "version is NULL"));
    CHECK(says("version is NULL"));
}

TEST(nccl_hostile, the_handle_of_what_has_ended_logs_nothing)
{
    char log[16384];
    run_test("the_handle_of_what_has_ended_replaces_no_sentence", log, sizeof log);
    CHECK_MESSAGE(times_in(log, "NCCL WARN") == 1, "the log is: %s", log);
}

TEST(nccl_hostile, who_asks_for_an_asynchronous_error_gets_it)
{
    ncclComm_t comms[3];
    ncclResult_t state;
    int value = 1;
    REQUIRE(ncclCommInitAll(comms, 3, NULL) == ncclSuccess);
    CHECK(ncclCommAbort(comms[2]) == ncclSuccess);
    CHECK(ncclAllReduce(&value, &value, 1, ncclInt, ncclSum, comms[0], NULL) == ncclRemoteError);
    for (int i = 0; i < 4; i++)
        CHECK(ncclCommGetAsyncError(comms[i % 2], &state) == ncclSuccess &&
              state == ncclRemoteError);
    for (int i = 0; i < 2; i++) CHECK(ncclCommAbort(comms[i]) == ncclSuccess);
}

TEST(nccl_hostile, an_asynchronous_error_is_logged_once_by_each_rank_that_has_it)
{
    char log[16384];
    run_test("who_asks_for_an_asynchronous_error_gets_it", log, sizeof log);
    for (int i = 0; i < 2; i++) {
        const char *const line = i ? "NCCL WARN rank 1: rank 2 (" : "NCCL WARN rank 0: rank 2 (";
        CHECK_MESSAGE(times_in(log, line) == 1, "the log is: %s", log);
    }
    CHECK_MESSAGE(times_in(log, "NCCL WARN rank") == 2, "the log is: %s", log);
}

/* ---- Registrations -------------------------------------------------------------------------- */

/* NCCL's registration is a hint: the memory stays the process's own, and may be used meanwhile. */
TEST(nccl_hostile, registered_memory_stays_private)
{
    enum { NBYTES = 1 << 20 };
    ncclComm_t comm;
    void *handle = NULL;
    int status = -1;
    char *memory = aligned_alloc(4096, NBYTES);
    REQUIRE(memory && ncclCommInitAll(&comm, 1, NULL) == ncclSuccess);
    memset(memory, 1, NBYTES);
    CHECK(ncclCommRegister(comm, memory, NBYTES, &handle) == ncclSuccess);
    CHECK(handle);
    const pid_t child = fork();
    if (child == 0) {
        memset(memory, 7, NBYTES);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(memory[0] == 1 && memory[NBYTES / 2] == 1 && memory[NBYTES - 1] == 1);
    CHECK(ncclCommDeregister(comm, handle) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    free(memory);
}
