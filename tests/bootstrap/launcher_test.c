/* Tests of the variables that launchers set. */
#include <stdlib.h>
#include <string.h>

#include "bootstrap/bootstrap.h"
#include "bootstrap/slurm.h"
#include "shim.h"

/* Every variable that says something about the ranks. */
static const char *const names[] = {"RANK",
                                    "WORLD_SIZE",
                                    "LOCAL_RANK",
                                    "LOCAL_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_RANK",
                                    "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK",
                                    "OMPI_COMM_WORLD_LOCAL_SIZE",
                                    "PMI_RANK",
                                    "PMI_SIZE",
                                    "PMI_PORT",
                                    "MPI_LOCALRANKID",
                                    "MPI_LOCALNRANKS",
                                    "SLURM_JOB_ID",
                                    "SLURM_STEP_ID",
                                    "SLURM_PROCID",
                                    "SLURM_STEP_NUM_TASKS",
                                    "SLURM_NTASKS",
                                    "SLURM_LOCALID",
                                    "SLURM_NODEID",
                                    "SLURM_STEP_NODELIST",
                                    "SLURM_STEP_TASKS_PER_NODE",
                                    "SLURM_DISTRIBUTION",
                                    "MV2_COMM_WORLD_RANK",
                                    "MV2_COMM_WORLD_SIZE",
                                    "JSM_NAMESPACE_RANK",
                                    "JSM_NAMESPACE_SIZE",
                                    "JSM_NAMESPACE_LOCAL_RANK",
                                    "HOROVOD_RANK",
                                    "HOROVOD_SIZE",
                                    "FLUX_TASK_RANK",
                                    "FLUX_JOB_SIZE",
                                    "PMIX_RANK"};

static void clear(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) unsetenv(names[i]);
}

/* The variables of "NAME=value NAME=value ...", and no others of a launcher. */
static void set(const char *variables)
{
    char copy[512], *rest = copy, *word;
    clear();
    strncpy(copy, variables, sizeof copy - 1);
    copy[sizeof copy - 1] = '\0';
    while ((word = strsep(&rest, " "))) {
        char *value = strchr(word, '=');
        if (!value) continue;
        *value++ = '\0';
        setenv(word, value, 1);
    }
}

static tt_status detect(const char *variables, struct tt_launcher *launcher)
{
    set(variables);
    const tt_status status = tt_launcher_detect(launcher);
    clear();
    return status;
}

TEST(launcher, the_nearest_one_says_which_rank_this_is)
{
    static const struct {
        const char *variables, *found;
        int rank, nranks, local_rank, local_nranks;
        enum tt_place_source source;
    } cases[] = {
        {"", "none", 0, 1, 0, 1, TT_PLACE_FROM_NONE},
        {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4", "RANK", 5, 8, 1, 4,
         TT_PLACE_FROM_NONE},
        {"RANK=5 WORLD_SIZE=8", "RANK", 5, 8, 5, 8, TT_PLACE_FROM_NONE},
        {"RANK=5 WORLD_SIZE=8 LOCAL_RANK=5", "RANK", 5, 8, 5, 8, TT_PLACE_FROM_NONE},
        {"RANK=5 WORLD_SIZE=8 LOCAL_WORLD_SIZE=4", "RANK", 5, 8, 1, 4, TT_PLACE_FROM_NONE},
        {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=2 "
         "OMPI_COMM_WORLD_LOCAL_SIZE=3",
         "Open MPI", 1, 4, 2, 3, TT_PLACE_FROM_PMIX},
        {"PMI_RANK=3 PMI_SIZE=4 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "PMI", 3, 4, 1, 2,
         TT_PLACE_FROM_PMI},
        {"SLURM_STEP_ID=0 SLURM_PROCID=3 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=0 SLURM_NODEID=2 "
         "SLURM_STEP_TASKS_PER_NODE=2,1(x2)",
         "srun", 3, 4, 0, 1, TT_PLACE_FROM_PMIX},
        /* srun --mpi=pmi2: Slurm's word about the host counts, being about the same ranks. */
        {"PMI_RANK=1 PMI_SIZE=4 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 "
         "SLURM_LOCALID=1 SLURM_NODEID=0 SLURM_STEP_TASKS_PER_NODE=3,1",
         "PMI", 1, 4, 1, 3, TT_PLACE_FROM_PMI},
        /* mpirun's daemons are Slurm's tasks, its ranks are not. */
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 SLURM_STEP_ID=0 SLURM_PROCID=1 "
         "SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_STEP_TASKS_PER_NODE=1(x2)",
         "Open MPI", 3, 4, 3, 4, TT_PLACE_FROM_PMIX},
        {"RANK=1 WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=9 PMI_RANK=5", "RANK", 1,
         2, 1, 2, TT_PLACE_FROM_NONE},
        /* A batch script and salloc's shell are told of tasks that are not there. */
        {"SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_LOCALID=0", "none", 0, 1, 0, 1,
         TT_PLACE_FROM_NONE},
        {"SLURM_JOB_ID=7 SLURM_NTASKS=4", "none", 0, 1, 0, 1, TT_PLACE_FROM_NONE},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_launcher got;
        const tt_status status = detect(cases[i].variables, &got);
        CHECK_MESSAGE(status == TT_OK, "%s: %s", cases[i].variables, tt_last_error());
        if (status != TT_OK) continue;
        CHECK_MESSAGE(got.rank == cases[i].rank && got.nranks == cases[i].nranks &&
                          got.local_rank == cases[i].local_rank &&
                          got.local_nranks == cases[i].local_nranks &&
                          got.sources[0] == cases[i].source && strstr(got.found, cases[i].found),
                      "%s: rank %d of %d, local %d of %d, way %d, %s", cases[i].variables, got.rank,
                      got.nranks, got.local_rank, got.local_nranks, got.sources[0], got.found);
    }
}

TEST(launcher, one_that_is_not_known_is_told_with_what_to_set)
{
    static const struct {
        const char *variables, *texts[3]; /* texts[0] NULL: nothing to tell */
    } cases[] = {
        {"MV2_COMM_WORLD_RANK=3 MV2_COMM_WORLD_SIZE=4",
         {"MV2_COMM_WORLD_RANK=3 and MV2_COMM_WORLD_SIZE=4 say", "rank 0 of 1",
          "Set RANK=$MV2_COMM_WORLD_RANK, WORLD_SIZE=$MV2_COMM_WORLD_SIZE, and the same "
          "MASTER_ADDR and MASTER_PORT"}},
        {"JSM_NAMESPACE_RANK=0 JSM_NAMESPACE_SIZE=2 JSM_NAMESPACE_LOCAL_RANK=0",
         {"jsrun", "LOCAL_RANK=$JSM_NAMESPACE_LOCAL_RANK", "WORLD_SIZE=$JSM_NAMESPACE_SIZE"}},
        {"PMIX_RANK=1", {"PMIX_RANK=1 say", "WORLD_SIZE=the number of processes", "PMIx"}},
        {"HOROVOD_RANK=0 HOROVOD_SIZE=1", {NULL}},
        {"MV2_COMM_WORLD_SIZE=4", {NULL}},
        {"FLUX_TASK_RANK=x FLUX_JOB_SIZE=2", {NULL}},
        {"", {NULL}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512] = "";
        set(cases[i].variables);
        const bool found = tt_launcher_find_unknown(text, sizeof text);
        clear();
        CHECK_EQ(found, cases[i].texts[0] != NULL);
        for (int k = 0; k < 3 && cases[i].texts[0]; k++)
            CHECK_MESSAGE(strstr(text, cases[i].texts[k]), "'%s' is not in '%s'", cases[i].texts[k],
                          text);
    }
}

TEST(launcher, what_is_missing_or_wrong_is_named)
{
    static const struct {
        const char *variables, *text;
    } cases[] = {
        {"RANK=1", "RANK is set but WORLD_SIZE is not"},
        {"WORLD_SIZE=2", "WORLD_SIZE is set but RANK is not"},
        {"LOCAL_RANK=0 LOCAL_WORLD_SIZE=2", "LOCAL_RANK is set but RANK and WORLD_SIZE are not"},
        {"OMPI_COMM_WORLD_RANK=1", "OMPI_COMM_WORLD_RANK is set but OMPI_COMM_WORLD_SIZE is not"},
        {"PMI_SIZE=2", "PMI_SIZE is set but PMI_RANK is not"},
        {"PMI_PORT=host:1", "PMI_PORT is set but PMI_RANK is not: start mpiexec without -pmi-port"},
        {"SLURM_STEP_ID=0 SLURM_PROCID=1", "SLURM_PROCID is set but SLURM_STEP_NUM_TASKS is not"},
        {"RANK=one WORLD_SIZE=2 LOCAL_RANK=0", "RANK=one is not a whole number"},
        {"RANK=0x1 WORLD_SIZE=2", "RANK=0x1 is not a whole number"},
        {"RANK= WORLD_SIZE=2", "RANK= is not a whole number"},
        {"RANK=2 WORLD_SIZE=2", "RANK=2 is out of range: it must be 0 to 1"},
        {"RANK=-1 WORLD_SIZE=2", "RANK=-1 is out of range"},
        {"RANK=0 WORLD_SIZE=0", "WORLD_SIZE=0 is out of range: it must be 1 to"},
        {"RANK=0 WORLD_SIZE=99999999999999999999", "WORLD_SIZE=99999999999999999999 is not"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_RANK=2 LOCAL_WORLD_SIZE=2",
         "LOCAL_RANK=2 is out of range: it must be 0 to 1"},
        {"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3",
         "LOCAL_WORLD_SIZE=3 is out of range: it must be 1 to 2"},
        {"SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=2 SLURM_LOCALID=0 SLURM_NODEID=1 "
         "SLURM_STEP_TASKS_PER_NODE=2",
         "SLURM_STEP_TASKS_PER_NODE='2' says nothing about node 1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tt_launcher launcher;
        CHECK_EQ(detect(cases[i].variables, &launcher), TT_ERR_ARGUMENT);
        CHECK_MESSAGE(strstr(tt_last_error(), cases[i].text), "'%s' is not in '%s'", cases[i].text,
                      tt_last_error());
    }
}

TEST(slurm, the_first_host_of_a_list_is_found)
{
    static const struct {
        const char *list, *host;
    } cases[] = {{"n0", "n0"},
                 {"n0,n1", "n0"},
                 {"n[0-2,7]", "n0"},
                 {"n[003-017]", "n003"},
                 {"n[7,9]", "n7"},
                 {"a01,b[03-04]", "a01"},
                 {"rack-2-[5-6]-ib,x", "rack-2-5-ib"},
                 {"node[12].cluster.org", "node12.cluster.org"},
                 {"cpn-m[11-12]-[01-02]", "cpn-m11-01"},
                 {"a[01-02]-[1-3],z9", "a01-1"},
                 {"r[0,4]n[0-3]c[2]x,z[1-2]", "r0n0c2x"},
                 {"[3-7,9]", "3"}};
    char host[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        REQUIRE(tt_slurm_first_host(host, sizeof host, cases[i].list) == TT_OK);
        CHECK_STR(host, cases[i].host);
    }
    static const char *const bad[] = {
        "",
        ",a",
        "n[",
        "n[]",
        "n[0-2",
        "r[0-1]n[",
        "r[0-1]n[]",
        "r[0-1]n[x]",
        "r0]",
        "r[0[1]]",
        "a-name-of-a-host-that-does-not-fit-into-the-sixty-four-bytes-there-are"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_EQ(tt_slurm_first_host(host, sizeof host, bad[i]), TT_ERR_ARGUMENT);
}

TEST(slurm, the_tasks_of_a_node_are_found)
{
    static const int expected[] = {2, 2, 1, 5, 5, 5};
    int ntasks = 0;
    for (int node = 0; node < 6; node++) {
        REQUIRE(tt_slurm_tasks_of_node(&ntasks, "2(x2),1,5(x3)", node) == TT_OK);
        CHECK_EQ(ntasks, expected[node]);
    }
    static const char *const bad[] = {"", "2(x2),1,5(x2)", "x", "2(x", "2(x0)", "0(x9)", "2;3"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_EQ(tt_slurm_tasks_of_node(&ntasks, bad[i], 5), TT_ERR_ARGUMENT);
}

TEST(slurm, a_step_has_a_port_and_a_name_of_its_own)
{
    struct tt_place place, other;
    const struct tt_launcher one = {.nranks = 4, .local_nranks = 4},
                             several = {.nranks = 4, .local_nranks = 2};
    set("SLURM_JOB_ID=7 SLURM_STEP_ID=2 SLURM_STEP_NODELIST=n[3-4]");
    REQUIRE(tt_slurm_place(&place, &several) == TT_OK);
    CHECK_STR(place.host, "n3");
    CHECK_STR(place.job, "slurm 7.2");
    CHECK(place.port >= 20000 && place.port < 30000 && !place.has_secret);
    REQUIRE(tt_slurm_place(&other, &one) == TT_OK); /* nobody else needs to get there */
    CHECK_STR(other.host, "127.0.0.1");
    set("SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_STEP_NODELIST=n[3-4]");
    REQUIRE(tt_slurm_place(&other, &several) == TT_OK);
    CHECK(other.port != place.port && strcmp(other.job, place.job) != 0);
    set("SLURM_JOB_ID=7 SLURM_STEP_ID=3 SLURM_STEP_NODELIST=n[3-4] SLURM_DISTRIBUTION=arbitrary");
    CHECK_EQ(tt_slurm_place(&other, &several), TT_ERR_USAGE);
    CHECK(strstr(tt_last_error(), "add --mpi=pmi2 or --mpi=pmix"));
    clear();
}
