/* libnccl.so.2 as a C program uses it that was compiled with include/nccl.h, on memory of the host:
 * configs of every version, what the face refuses, groups, and that what comes later says so. */
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"
#include "nccl/device.h"
#include "pair.h"
#include "shim.h"

/* ---- Configs -------------------------------------------------------------------------------- */

/* What a program has that was compiled with the header of a version. */
static const struct {
    unsigned version;
    size_t nbytes;
} versions[] = {{21403, 24}, {21701, 40}, {21805, 48}, {22005, 48}, {22605, 48},  {22703, 72},
                {22809, 80}, {22907, 88}, {23003, 96}, {23007, 96}, {23102, 112}, {23203, 120}};
enum { NVERSIONS = sizeof versions / sizeof versions[0] };

/* Bytes behind the struct of an older version are the caller's own: they must not be looked at. */
static ncclConfig_t config_of(unsigned version, size_t nbytes)
{
    const ncclConfig_t undefined = NCCL_CONFIG_INITIALIZER;
    ncclConfig_t config;
    memset(&config, 0x5a, sizeof config);
    memcpy(&config, &undefined, nbytes);
    config.size = nbytes;
    config.version = version;
    return config;
}

static ncclResult_t init_with(ncclConfig_t *config, ncclComm_t *comm)
{
    ncclUniqueId id;
    const ncclResult_t result = ncclGetUniqueId(&id);
    return result ? result : ncclCommInitRankConfig(comm, 1, id, 0, config);
}

static void check_refused(ncclConfig_t config, const char *part)
{
    ncclComm_t comm = NULL;
    CHECK(init_with(&config, &comm) == ncclInvalidArgument);
    CHECK(comm == NULL);
    CHECK(says(part));
}

TEST(nccl_config, of_every_version_is_taken)
{
    for (int i = 0; i < NVERSIONS; i++) {
        ncclConfig_t config = config_of(versions[i].version, versions[i].nbytes);
        config.blocking = i % 2;
        if (versions[i].version >= 22700) config.commName = "named";
        ncclComm_t comm;
        CHECK(init_with(&config, &comm) == ncclSuccess);
        float value = 3;
        CHECK(ncclAllReduce(&value, &value, 1, ncclFloat, ncclSum, comm, NULL) == ncclSuccess);
        CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
}

/* 2.26 keeps trafficClass where 2.18 has padding, and 2.30.7 graphStreamOrdering where 2.30.3 has:
 * what lies there in a struct of the older version means nothing. */
TEST(nccl_config, padding_of_an_older_version_means_nothing)
{
    ncclConfig_t config = config_of(23003, 96);
    config.graphStreamOrdering = 77;
    ncclComm_t comm;
    CHECK(init_with(&config, &comm) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    config.version = 23007;
    check_refused(config, "graphStreamOrdering is 77");
}

TEST(nccl_config, of_a_wrong_size_is_refused)
{
    for (int i = 0; i < NVERSIONS; i++) {
        ncclConfig_t config = config_of(versions[i].version, versions[i].nbytes);
        for (size_t nbytes = 0; nbytes < versions[i].nbytes; nbytes += 8) {
            if (versions[i].version >= 23100 && nbytes >= 104) continue; /* some 2.31 may have it */
            config.size = nbytes;
            check_refused(config, "size");
        }
    }
    check_refused(config_of(22809, 88), "version 22809 of NCCL has 80 bytes");
}

TEST(nccl_config, of_a_wrong_magic_or_version_is_refused)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.magic = 0xdeadbeef;
    check_refused(config, "magic is 0xdeadbeef");
    check_refused(config_of(0, 24), "version is 0");
    check_refused(config_of(21399, 24), "version is 21399");
    check_refused(config_of(0xffffffff, 120), "version is 4294967295");
}

TEST(nccl_config, with_a_wrong_field_is_refused)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 2;
    check_refused(config, "blocking is 2: expected 0 to 1");
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = 4;
    check_refused(config, "CTAPolicy is 4");
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.minCTAs = 8;
    config.maxCTAs = 4;
    check_refused(config, "minCTAs is 8 and maxCTAs 4");
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.maxCTAs = 0;
    check_refused(config, "maxCTAs is 0");
}

TEST(nccl_config, with_a_field_of_2_31_and_later_is_checked)
{
    static const struct {
        size_t offset;
        int right[3], wrong[2];
        const char *says;
    } fields[] = {
        {offsetof(ncclConfig_t, launchOrderImplicit),
         {0, 1, 1},
         {-1, 7},
         "launchOrderImplicit is "},
        {offsetof(ncclConfig_t, numRmaSig), {0, 1, INT_MAX}, {-1, -4}, "numRmaSig is "},
        {offsetof(ncclConfig_t, rmaEagerInit), {0, 1, 1}, {-1, 9}, "rmaEagerInit is "},
        {offsetof(ncclConfig_t, hostCftMode), {1, 2, 3}, {0, 77}, "hostCftMode is "},
        {offsetof(ncclConfig_t, nvlsHostMode), {0, 3, INT_MAX}, {-3, 4}, "nvlsHostMode is "}};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        for (int k = 0; k < 3; k++) {
            ncclComm_t comm;
            memcpy((char *)&config + fields[i].offset, &fields[i].right[k], sizeof(int));
            CHECK(init_with(&config, &comm) == ncclSuccess);
            CHECK(ncclCommDestroy(comm) == ncclSuccess);
        }
        for (int k = 0; k < 2; k++) {
            memcpy((char *)&config + fields[i].offset, &fields[i].wrong[k], sizeof(int));
            check_refused(config, fields[i].says);
        }
        config.version = 23007; /* which has no such field */
        config.size = 96;
        ncclComm_t comm;
        CHECK(init_with(&config, &comm) == ncclSuccess);
        CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
}

TEST(nccl_config, of_a_call_is_checked)
{
    ncclComm_t comm;
    REQUIRE(init_with(NULL, &comm) == ncclSuccess);
    float value = 1;
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
#define WITH_CONFIG ncclAllReduceConfig(&value, &value, 1, ncclFloat, ncclSum, comm, NULL, &config)
    CHECK(WITH_CONFIG == ncclSuccess);
    config.algSelection = "ring";
    CHECK(WITH_CONFIG == ncclInvalidUsage);
    CHECK(says("selects the algorithm 'ring'"));
    config.forceAlgSelection = 0;
    CHECK(WITH_CONFIG == ncclSuccess);
    config.launchCompletionEvent = (cudaEvent_t)&value;
    CHECK(WITH_CONFIG == ncclInvalidUsage);
    config = (ncclCollConfig_t)NCCL_COLLCONFIG_INITIALIZER;
    config.maxCTAs = -1;
    CHECK(WITH_CONFIG == ncclInvalidArgument);
    CHECK(says("maxCTAs is -1"));
    config.magic = 0;
    CHECK(WITH_CONFIG == ncclInvalidArgument);
#undef WITH_CONFIG
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

/* ---- Names ---------------------------------------------------------------------------------- */

TEST(nccl_names, that_come_later_say_so)
{
    const ncclEncryptionMode_t mode = NCCL_ENCRYPTION_MODE_PSK;
    CHECK(mode == 1);
    static const struct {
        const char *name;
        void (*function)(void);
    } later[] = {
#define TT_LATER(name, what, parameters) {"nccl" #name, (void (*)(void))nccl##name},
#define TT_LATER_CALL TT_LATER
#include "nccl/names_table.h"
    };
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        CHECK(((ncclResult_t(*)(void))later[i].function)() == ncclInvalidUsage);
        CHECK(says(later[i].name));
        CHECK(says("is not there yet"));
    }
}

TEST(nccl_names, errors_name_the_function_by_its_name_in_nccl)
{
    ncclComm_t comm;
    REQUIRE(init_with(NULL, &comm) == ncclSuccess);
    float value = 1;
    CHECK(ncclAllReduce(NULL, &value, 1, ncclFloat, ncclSum, comm, NULL) == ncclInvalidArgument);
    CHECK(!strncmp(ncclGetLastError(comm), "ncclAllReduce: ", 15));
    CHECK(says("sendbuff is NULL"));
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    CHECK(ncclCommCount(comm, &(int){0}) == ncclInvalidArgument);
    CHECK(says("never made, or destroyed already"));
}

/* ---- What the face refuses ------------------------------------------------------------------ */

TEST(nccl_calls, with_types_and_operations_of_tutti_are_refused)
{
    ncclComm_t comm;
    REQUIRE(init_with(NULL, &comm) == ncclSuccess);
    int value = 1, out = 7;
    for (int type = -1; type < 16; type++) {
        if (type >= 0 && type < ncclNumTypes) continue;
        CHECK(ncclAllGather(&value, &out, 1, (ncclDataType_t)type, comm, NULL) ==
              ncclInvalidArgument);
        CHECK(says("is none of 0 to 11"));
    }
    for (int op = ncclNumOps; op < 256; op++) {
        CHECK(ncclAllReduce(&value, &out, 1, ncclInt32, (ncclRedOp_t)op, comm, NULL) ==
              ncclInvalidArgument);
        CHECK(says("ncclRedOpCreatePreMulSum"));
    }
    CHECK(ncclAllReduce(&value, &out, 1, ncclInt32, (ncclRedOp_t)256, comm, NULL) ==
          ncclInvalidArgument);
    CHECK(out == 7);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

TEST(nccl_calls, a_refusal_in_a_group_is_the_groups_error_and_nothing_is_issued)
{
    ncclComm_t comms[2];
    make_pair(comms);
    int value[2] = {1, 2}, out[2] = {7, 7};
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(ncclAllReduce(&value[0], &out[0], 1, ncclInt, ncclSum, comms[0], NULL) == ncclSuccess);
    CHECK(ncclAllReduce(&value[1], &out[1], 1, (ncclDataType_t)13, ncclSum, comms[1], NULL) ==
          ncclInvalidArgument);
    CHECK(ncclAllReduce(NULL, &out[1], 1, ncclInt, ncclSum, comms[1], NULL) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(says("type 13 is none of 0 to 11"));
    CHECK(out[0] == 7 && out[1] == 7);

    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < 2; i++)
        CHECK(ncclAllReduce(&value[i], &out[i], 1, ncclInt, ncclSum, comms[i], NULL) ==
              ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    CHECK(out[0] == 3 && out[1] == 3);
    destroy_pair(comms);
}

/* One rank alone would wait for the other one for ever. */
TEST(nccl_calls, of_no_elements_return_at_once)
{
    ncclComm_t comms[2];
    make_pair(comms);
    CHECK(ncclAllReduce(NULL, NULL, 0, ncclInt, ncclSum, comms[0], NULL) == ncclSuccess);
    CHECK(ncclReduce(NULL, NULL, 0, ncclInt, ncclSum, 1, comms[0], NULL) == ncclSuccess);
    CHECK(ncclBroadcast(NULL, NULL, 0, ncclInt, 1, comms[0], NULL) == ncclSuccess);
    CHECK(ncclBcast(NULL, 0, ncclInt, 1, comms[0], NULL) == ncclSuccess);
    CHECK(ncclReduceScatter(NULL, NULL, 0, ncclInt, ncclSum, comms[0], NULL) == ncclSuccess);
    CHECK(ncclAllGather(NULL, NULL, 0, ncclInt, comms[0], NULL) == ncclSuccess);
    CHECK(ncclAlltoAll(NULL, NULL, 0, ncclInt, comms[0], NULL) == ncclSuccess);
    CHECK(ncclGather(NULL, NULL, 0, ncclInt, 1, comms[0], NULL) == ncclSuccess);
    CHECK(ncclScatter(NULL, NULL, 0, ncclInt, 1, comms[0], NULL) == ncclSuccess);
    CHECK(ncclAllReduce(NULL, NULL, 0, ncclInt, ncclSum, NULL, NULL) == ncclInvalidArgument);
    CHECK(ncclAllReduce(NULL, NULL, 0, (ncclDataType_t)12, ncclSum, comms[0], NULL) ==
          ncclInvalidArgument);
    CHECK(ncclCommFinalize(comms[0]) == ncclSuccess);
    CHECK(ncclAllReduce(NULL, NULL, 0, ncclInt, ncclSum, comms[0], NULL) == ncclInvalidUsage);
    CHECK(says("was finalized"));
    destroy_pair(comms);
}

TEST(nccl_calls, an_empty_message_is_a_message)
{
    ncclComm_t comms[2];
    make_pair(comms);
    int value = 1;
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(ncclSend(NULL, 0, ncclInt, 1, comms[0], NULL) == ncclSuccess);
    CHECK(ncclRecv(&value, 1, ncclInt, 0, comms[1], NULL) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    destroy_pair(comms);
}

TEST(nccl_calls, take_buffers_that_overlap)
{
    ncclComm_t comms[2];
    make_pair(comms);
    int data[2][8] = {{0}};
    for (int how = 0; how < 2; how++) {
        REQUIRE(ncclGroupStart() == ncclSuccess);
        for (int i = 0; i < 2; i++)
            CHECK(ncclAlltoAll(data[i], data[i] + how, 3, ncclInt, comms[i], NULL) == ncclSuccess);
        CHECK(ncclGroupEnd() == ncclSuccess);
    }
    destroy_pair(comms);
}

/* ---- Communicators -------------------------------------------------------------------------- */

TEST(nccl_communicators, end_with_the_group_in_which_they_are_destroyed_or_aborted)
{
    for (int aborts = 0; aborts < 2; aborts++) {
        ncclComm_t comms[2];
        make_pair(comms);
        int value[2] = {1, 2}, count;
        REQUIRE(ncclGroupStart() == ncclSuccess);
        for (int i = 0; i < 2; i++) {
            CHECK(ncclAllReduce(&value[i], &value[i], 1, ncclInt, ncclSum, comms[i], NULL) ==
                  ncclSuccess);
            CHECK((aborts ? ncclCommAbort : ncclCommDestroy)(comms[i]) == ncclSuccess);
        }
        CHECK(ncclCommCount(comms[0], &count) == ncclSuccess);
        CHECK(ncclGroupEnd() == ncclSuccess);
        CHECK(value[0] == 3 && value[1] == 3);
        for (int i = 0; i < 2; i++) CHECK(ncclCommCount(comms[i], &count) == ncclInvalidArgument);
    }
    CHECK(ncclCommDestroy(NULL) == ncclSuccess);
    CHECK(ncclCommAbort(NULL) == ncclSuccess);
}

/* As programs do that have all GPUs in one thread: no group, so none may wait for the next. */
TEST(nccl_communicators, of_one_thread_are_finalized_one_after_another)
{
    ncclComm_t comms[2];
    float values[2] = {1, 2};
    make_pair(comms);
    CHECK(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < 2; i++)
        CHECK(ncclAllReduce(&values[i], &values[i], 1, ncclFloat, ncclSum, comms[i], NULL) ==
              ncclSuccess);
    CHECK(ncclGroupEnd() == ncclSuccess);
    for (int i = 0; i < 2; i++) {
        CHECK(ncclCommFinalize(comms[i]) == ncclSuccess);
        CHECK(ncclAllReduce(&values[i], &values[i], 1, ncclFloat, ncclSum, comms[i], NULL) ==
              ncclInvalidUsage);
        CHECK(says("finalized: only destroy may follow"));
        CHECK(ncclCommDestroy(comms[i]) == ncclSuccess);
        CHECK(values[i] == 3);
    }
}

TEST(nccl_communicators, are_made_with_one_of_several_ids)
{
    ncclUniqueId ids[2];
    ncclComm_t comm;
    for (int i = 0; i < 2; i++) REQUIRE(ncclGetUniqueId(&ids[i]) == ncclSuccess);
    CHECK(ncclCommInitRankScalable(&comm, 1, 0, 1, ids, NULL) == ncclSuccess);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
    CHECK(ncclCommInitRankScalable(&comm, 1, 0, 0, ids, NULL) == ncclInvalidArgument);
    CHECK(ncclCommInitRankScalable(&comm, 1, 0, 2, ids, NULL) == ncclInvalidArgument);
    CHECK(says("nId is 2"));
    ncclComm_t comms[2];
    REQUIRE(ncclGetUniqueId(&ids[0]) == ncclSuccess);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int i = 0; i < 2; i++)
        CHECK(ncclCommInitRankScalable(&comms[i], 2, i, 2, ids, NULL) == ncclSuccess);
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    int rank, count, device;
    CHECK(ncclCommUserRank(comms[1], &rank) == ncclSuccess && rank == 1);
    CHECK(ncclCommCount(comms[1], &count) == ncclSuccess && count == 2);
    CHECK(ncclCommCuDevice(comms[1], &device) == ncclSuccess);
    ncclResult_t state = ncclInternalError;
    CHECK(ncclCommGetAsyncError(comms[0], &state) == ncclSuccess && state == ncclSuccess);
    destroy_pair(comms);
}

TEST(nccl_communicators, tell_a_device_program_that_a_rank_reaches_only_itself)
{
    ncclComm_t comms[2];
    make_pair(comms);
    struct ncclCommProperties properties = {.size = sizeof properties, .magic = NCCL_API_MAGIC};
    REQUIRE(ncclCommQueryProperties(comms[1], &properties) == ncclSuccess);
    CHECK(properties.rank == 1 && properties.nRanks == 2 && !properties.deviceApiSupport);
    CHECK(properties.nLsaTeams == 2);
    properties.size = 40; /* of NCCL 2.29.2, which ends before nLsaTeams */
    properties.nLsaTeams = -1;
    CHECK(ncclCommQueryProperties(comms[1], &properties) == ncclSuccess);
    CHECK(properties.nRanks == 2 && properties.nLsaTeams == -1);
    properties.magic = 0;
    CHECK(ncclCommQueryProperties(comms[1], &properties) == ncclInvalidArgument);
    const struct ncclTeam world = ncclTeamWorld(comms[1]), lsa = ncclTeamLsa(comms[1]);
    CHECK(world.nRanks == 2 && world.rank == 1 && world.stride == 1);
    CHECK(lsa.nRanks == 1 && lsa.rank == 0);
    CHECK(ncclTeamRankToWorld(comms[1], lsa, 0) == 1);
    CHECK(ncclTeamRankToWorld(comms[1], world, 0) == 0);
    destroy_pair(comms);
}

/* ---- Memory --------------------------------------------------------------------------------- */

TEST(nccl_memory, is_allocated_registered_and_freed)
{
    ncclComm_t comm;
    void *memory, *handle;
    REQUIRE(init_with(NULL, &comm) == ncclSuccess);
    REQUIRE(ncclMemAlloc(&memory, 1 << 16) == ncclSuccess);
    CHECK(ncclCommRegister(comm, memory, 1 << 16, &handle) == ncclSuccess);
    CHECK(ncclCommDeregister(comm, handle) == ncclSuccess);
    CHECK(ncclMemFree(memory) == ncclSuccess);
    CHECK(ncclMemFree(NULL) == ncclSuccess);
    CHECK(ncclMemAlloc(NULL, 16) == ncclInvalidArgument);
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

/* ---- Settings ------------------------------------------------------------------------------- */

/* Before the settings are read; it has no effect here. */
__attribute__((constructor)) static void set_variable(void)
{
    setenv("NCCL_IB_TC", "104", 1);
}

TEST(nccl_parameters, are_the_variables_as_they_were_given)
{
    const char **keys, *text;
    int nkeys, length, found = 0;
    REQUIRE(ncclParamGetAllParameterKeys(&keys, &nkeys) == ncclSuccess);
    for (int i = 0; i < nkeys; i++) found += !strcmp(keys[i], "NCCL_IB_TC");
    CHECK(found == 1 && nkeys > 50);
    ncclParamHandle_t handle;
    int8_t small = 0;
    uint64_t large = 0;
    char raw[8];
    REQUIRE(ncclParamBind(&handle, "NCCL_IB_TC") == ncclSuccess);
    CHECK(ncclParamGetI8(handle, &small) == ncclSuccess && small == 104);
    CHECK(ncclParamGetU64(handle, &large) == ncclSuccess && large == 104);
    CHECK(ncclParamGetStr(handle, &text) == ncclSuccess && !strcmp(text, "104"));
    CHECK(ncclParamGet(handle, raw, sizeof raw, &length) == ncclSuccess && length == 4);
    CHECK(!strcmp(raw, "104"));
    length = -1;
    CHECK(ncclParamGet(handle, raw, 3, &length) == ncclInvalidArgument);
    CHECK(length == 4); /* what it takes */
    CHECK(ncclParamGetParameter("NCCL_IB_TC", &text, &length) == ncclSuccess && length == 3);
    CHECK(ncclParamGetParameter("NCCL_NO_SUCH", &text, &length) == ncclInvalidArgument);
    CHECK(says("NCCL_NO_SUCH"));
    CHECK(ncclParamBind(&handle, "NCCL_ALGO_TYPO") == ncclInvalidArgument);
    REQUIRE(ncclParamBind(&handle, "NCCL_SOCKET_NTHREADS") == ncclSuccess);
    CHECK(ncclParamGetI32(handle, &length) == ncclInvalidArgument); /* is not set */
    CHECK(says("expected a number"));
}
