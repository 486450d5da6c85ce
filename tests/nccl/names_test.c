/* Functions of libnccl.so.2 that programs seldom call: each is called, and its result compared.
 * Three ranks of one thread, on memory of the host. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl.h"
#include "nccl/device.h"
#include "pair.h"
#include "shim.h"

/* ---- Collectives with a config -------------------------------------------------------------- */

enum { NRANKS = 3, COUNT = 2, ALL = NRANKS * COUNT, ROOT = 1 };

struct rank {
    ncclComm_t comm;
    int in[ALL], out[ALL]; /* in[i] of rank r is 100 r + i, out is -1 */
};

static void begin(struct rank ranks[NRANKS])
{
    for (int r = 0; r < NRANKS; r++)
        for (int i = 0; i < ALL; i++) {
            ranks[r].in[i] = 100 * r + i;
            ranks[r].out[i] = -1;
        }
    CHECK(ncclGroupStart() == ncclSuccess);
}

/* After the group: expected(r, i) is element i of rank r. */
static void end(const struct rank ranks[NRANKS], const char *name, int (*expected)(int r, int i))
{
    CHECK(ncclGroupEnd() == ncclSuccess);
    for (int r = 0; r < NRANKS; r++)
        for (int i = 0; i < ALL; i++)
            CHECK_MESSAGE(ranks[r].out[i] == expected(r, i), "%s: element %d of rank %d is %d",
                          name, i, r, ranks[r].out[i]);
}

static int gathered(int r, int i)
{
    (void)r;
    return 100 * (i / COUNT) + i % COUNT;
}

static int at_root(int r, int i)
{
    return r == ROOT ? gathered(r, i) : -1;
}

static int exchanged(int r, int i)
{
    return 100 * (i / COUNT) + COUNT * r + i % COUNT;
}

static int of_root(int r, int i)
{
    (void)r;
    return i < COUNT ? 100 * ROOT + i : -1;
}

static int scattered(int r, int i)
{
    return i < COUNT ? 100 * ROOT + COUNT * r + i : -1;
}

static int summed(int r, int i)
{
    (void)r;
    return i < COUNT ? 300 + 3 * i : -1;
}

static int summed_at_root(int r, int i)
{
    return r == ROOT ? summed(r, i) : -1;
}

static int summed_block(int r, int i)
{
    return i < COUNT ? 300 + 3 * (COUNT * r + i) : -1;
}

TEST(nccl_names, collectives_with_a_config_do_what_those_without_do)
{
    struct rank ranks[NRANKS];
    ncclComm_t comms[NRANKS];
    const ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    REQUIRE(ncclCommInitAll(comms, NRANKS, NULL) == ncclSuccess);
    for (int r = 0; r < NRANKS; r++) ranks[r].comm = comms[r];
#define COLLECTIVE(name, expected, ...)                                                            \
    begin(ranks);                                                                                  \
    for (int r = 0; r < NRANKS; r++)                                                               \
        CHECK(name(ranks[r].in, ranks[r].out, COUNT, ncclInt, __VA_ARGS__ ranks[r].comm, NULL,     \
                   &config) == ncclSuccess);                                                       \
    end(ranks, #name, expected)
    COLLECTIVE(ncclAllReduceConfig, summed, ncclSum, );
    COLLECTIVE(ncclReduceConfig, summed_at_root, ncclSum, ROOT, );
    COLLECTIVE(ncclReduceScatterConfig, summed_block, ncclSum, );
    COLLECTIVE(ncclBroadcastConfig, of_root, ROOT, );
    COLLECTIVE(ncclAllGatherConfig, gathered, );
    COLLECTIVE(ncclAlltoAllConfig, exchanged, );
    COLLECTIVE(ncclGatherConfig, at_root, ROOT, );
    COLLECTIVE(ncclScatterConfig, scattered, ROOT, );
#undef COLLECTIVE
    for (int r = 0; r < NRANKS; r++) CHECK(ncclCommDestroy(comms[r]) == ncclSuccess);
}

TEST(nccl_names, collectives_with_a_wrong_config_are_refused)
{
    ncclComm_t comm;
    int value = 7;
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    config.maxCTAs = -1;
    REQUIRE(ncclCommInitAll(&comm, 1, NULL) == ncclSuccess);
#define REFUSED(name, ...)                                                                         \
    CHECK(name(&value, &value, 1, ncclInt, __VA_ARGS__ comm, NULL, &config) ==                     \
          ncclInvalidArgument);                                                                    \
    CHECK(says(#name ": the config's maxCTAs is -1"))
    REFUSED(ncclAllReduceConfig, ncclSum, );
    REFUSED(ncclReduceConfig, ncclSum, 0, );
    REFUSED(ncclReduceScatterConfig, ncclSum, );
    REFUSED(ncclBroadcastConfig, 0, );
    REFUSED(ncclAllGatherConfig, );
    REFUSED(ncclAlltoAllConfig, );
    REFUSED(ncclGatherConfig, 0, );
    REFUSED(ncclScatterConfig, 0, );
#undef REFUSED
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
}

/* ---- Teams ---------------------------------------------------------------------------------- */

static void check_team(struct ncclTeam team, int nranks, int rank)
{
    CHECK_EQ(team.nRanks, nranks);
    CHECK_EQ(team.rank, rank);
    CHECK_EQ(team.stride, 1);
}

TEST(nccl_names, teams_are_all_ranks_or_the_rank_alone)
{
    ncclComm_t comms[NRANKS];
    REQUIRE(ncclCommInitAll(comms, NRANKS, NULL) == ncclSuccess);
    for (int r = 0; r < NRANKS; r++) {
        check_team(ncclTeamWorld(comms[r]), NRANKS, r);
        check_team(ncclTeamRail(comms[r]), NRANKS, r);
        check_team(ncclTeamLsa(comms[r]), 1, 0);
        check_team(ncclTeamCft(comms[r], 0), 1, 0);
        check_team(ncclTeamCftMultimem(comms[r]), 1, 0);
        CHECK_EQ(ncclTeamRankToWorld(comms[r], ncclTeamLsa(comms[r]), 0), r);
        CHECK_EQ(ncclTeamRankToWorld(comms[r], ncclTeamRail(comms[r]), 2), 2);
        CHECK_EQ(ncclTeamRankToLsa(comms[r], ncclTeamLsa(comms[r]), 0), 0);
        CHECK_EQ(ncclTeamRankToLsa(comms[r], ncclTeamRail(comms[r]), r), 0);
    }
    CHECK_EQ(ncclLLA2ACalcSlots(1024, 8), 0);
    for (int r = 0; r < NRANKS; r++) CHECK(ncclCommDestroy(comms[r]) == ncclSuccess);
}

/* ---- Parameters ----------------------------------------------------------------------------- */

/* Before the settings are read. */
__attribute__((constructor)) static void set_variables(void)
{
    setenv("NCCL_IB_TC", "200", 1);
    setenv("NCCL_IB_GID_INDEX", "-1", 1);
    setenv("NCCL_BUFFSIZE", "70000", 1); /* has no effect */
}

/* A number of each width where it fits, and the number's refusal where it does not. */
TEST(nccl_names, parameters_are_numbers_of_every_width)
{
    static const struct {
        const char *name;
        int64_t number;
        bool fits[8]; /* I8, I16, I32, I64, U8, U16, U32, U64 */
    } all[] = {{"NCCL_IB_TC", 200, {0, 1, 1, 1, 1, 1, 1, 1}},
               {"NCCL_IB_GID_INDEX", -1, {1, 1, 1, 1, 0, 0, 0, 0}},
               {"NCCL_BUFFSIZE", 70000, {0, 0, 1, 1, 0, 0, 1, 1}}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        ncclParamHandle_t handle;
        REQUIRE(ncclParamBind(&handle, all[i].name) == ncclSuccess);
#define NUMBER(function, type, fits)                                                               \
    do {                                                                                           \
        type number = 7;                                                                           \
        CHECK(function(handle, &number) == ((fits) ? ncclSuccess : ncclInvalidArgument));          \
        CHECK(number == ((fits) ? (type)all[i].number : 7));                                       \
    } while (0)
        NUMBER(ncclParamGetI8, int8_t, all[i].fits[0]);
        NUMBER(ncclParamGetI16, int16_t, all[i].fits[1]);
        NUMBER(ncclParamGetI32, int32_t, all[i].fits[2]);
        NUMBER(ncclParamGetI64, int64_t, all[i].fits[3]);
        NUMBER(ncclParamGetU8, uint8_t, all[i].fits[4]);
        NUMBER(ncclParamGetU16, uint16_t, all[i].fits[5]);
        NUMBER(ncclParamGetU32, uint32_t, all[i].fits[6]);
        NUMBER(ncclParamGetU64, uint64_t, all[i].fits[7]);
#undef NUMBER
    }
}

/* ---- What has no effect --------------------------------------------------------------------- */

TEST(nccl_names, what_has_no_effect_leaves_settings_and_errors)
{
    ncclParamHandle_t handle;
    int32_t number = 0;
    CHECK(ncclGetVersion(NULL) == ncclInvalidArgument);
    ncclResetDebugInit();
    ncclResetDebugInitInternal();
    ncclParamDumpAll();
    CHECK(says("ncclGetVersion: version is NULL"));
    REQUIRE(ncclParamBind(&handle, "NCCL_IB_TC") == ncclSuccess);
    CHECK(ncclParamGetI32(handle, &number) == ncclSuccess && number == 200);
}

/* ---- Operations and names of communicators -------------------------------------------------- */

TEST(nccl_names, an_operation_is_that_of_its_communicator)
{
    ncclComm_t comms[2];
    ncclRedOp_t op;
    float factor = 2, value = 1;
    char text[128];
    make_pair(comms);
    REQUIRE(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, comms[0]) ==
            ncclSuccess);
    CHECK(ncclAllReduce(&value, &value, 1, ncclFloat, op, comms[1], NULL) == ncclInvalidArgument);
    snprintf(text, sizeof text, "operation %d was not made on communicator world, or destroyed",
             (int)op);
    CHECK(says("ncclAllReduce: ") && says(text));
    CHECK(ncclRedOpDestroy(op, comms[1]) == ncclInvalidArgument);
    CHECK(says("ncclRedOpDestroy: ") && says(text));
    CHECK(ncclRedOpDestroy(op, comms[0]) == ncclSuccess);
    CHECK(ncclRedOpDestroy(ncclSum, comms[0]) == ncclInvalidArgument);
    CHECK(says("ncclRedOpDestroy: operation 0 was not made on communicator world"));
    destroy_pair(comms);
}

TEST(nccl_names, a_split_has_the_name_of_its_parent)
{
    ncclUniqueId id;
    ncclComm_t parent, part;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER, other = NCCL_CONFIG_INITIALIZER;
    config.commName = "parent";
    other.commName = "other";
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    REQUIRE(ncclCommInitRankConfig(&parent, 1, id, 0, &config) == ncclSuccess);
    for (int named = 0; named < 2; named++) {
        REQUIRE(ncclCommSplit(parent, 0, 0, &part, named ? &other : NULL) == ncclSuccess);
        CHECK(ncclRedOpDestroy((ncclRedOp_t)256, part) == ncclInvalidArgument);
        CHECK(says(named ? "on communicator other" : "on communicator parent"));
        CHECK(ncclCommDestroy(part) == ncclSuccess);
    }
    CHECK(ncclCommDestroy(parent) == ncclSuccess);
}

TEST(nccl_names, of_a_sum_are_those_of_its_communicator)
{
    ncclComm_t comms[2];
    ncclRedOp_t ops[2];
    float factors[2] = {2, 5}, x = 1;
    for (int i = 0; i < 2; i++) {
        REQUIRE(ncclCommInitAll(&comms[i], 1, NULL) == ncclSuccess);
        REQUIRE(ncclRedOpCreatePreMulSum(&ops[i], &factors[i], ncclFloat, ncclScalarHostImmediate,
                                         comms[i]) == ncclSuccess);
        CHECK((int)ops[i] >= 256);
    }
    CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ops[0], comms[1], NULL) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "was not made on communicator"));
    CHECK(ncclRedOpDestroy(ops[0], comms[1]) == ncclInvalidArgument);
    for (int i = 0; i < 2; i++) {
        x = 1;
        CHECK(ncclAllReduce(&x, &x, 1, ncclFloat, ops[i], comms[i], NULL) == ncclSuccess);
        CHECK(x == factors[i]);
        CHECK(ncclRedOpDestroy(ops[i], comms[i]) == ncclSuccess);
        CHECK(ncclCommDestroy(comms[i]) == ncclSuccess);
    }
}
