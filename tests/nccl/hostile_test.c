/* libnccl.so.2 against odd and hostile use: what is refused, what ends a group, and what is left
 * behind. On memory of the host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    CHECK(ncclGroupSimulateEnd(NULL) == ncclInvalidUsage);
    CHECK(says("is not there yet"));
    sum_pair(comms, values);
    CHECK(ncclGroupSimulateEnd(NULL) == ncclInvalidUsage);
    CHECK(values[0] == 1 && values[1] == 2);
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
    CHECK(says(" is no communicator"));
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
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

/* The standard error is that of the process when it began: so another one runs the test above. */
TEST(nccl_hostile, a_refusal_in_a_group_is_logged_once_by_its_own_sentence)
{
    char path[512] = "", command[1024], log[8192];
    REQUIRE(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    snprintf(command, sizeof command, "'%s' --gtest_filter=*.a_refusal_in_a_group_fails_it 2>&1",
             path);
    FILE *output = popen(command, "re");
    REQUIRE(output != NULL);
    log[fread(log, 1, sizeof log - 1, output)] = 0;
    CHECK(pclose(output) == 0);
    const char *begin = strstr(log, "[ RUN "), *first = begin ? strstr(begin, "type 13") : NULL;
    CHECK_MESSAGE(first != NULL && !strstr(first + 1, "type 13") && !strstr(begin, "is NULL"),
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
    CHECK(says("not NCCL_SPLIT_NOCOLOR"));
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
}
