/* TUTTI_COST_FILE: the constants by which a communicator chooses its algorithms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config.h"
#include "communicator/communicator.h"
#include "integration/ranks.h"
#include "shim.h"

static char path[] = "/tmp/tutti-costs-XXXXXX";

/* The next communicators read a file with this text. */
static void use_file(const char *text)
{
    strcpy(path, "/tmp/tutti-costs-XXXXXX");
    const int fd = mkstemp(path);
    REQUIRE(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    setenv("TUTTI_COST_FILE", path, 1);
    tt_config_reload();
}

static void forget_file(void)
{
    unlink(path);
    unsetenv("TUTTI_COST_FILE");
    tt_config_reload();
}

/* What 4 ranks choose for an all-reduce of 8 bytes. */
static void look(int rank, tuttiComm_t comm, void *arg)
{
    const char *name = NULL;
    CHECK_EQ(tuttiCommGetAlgorithm(comm, tuttiCollAllReduce, 8, &name), tuttiSuccess);
    if (rank == 0) *(const char **)arg = name;
    int one = 1;
    CHECK_EQ(tuttiAllReduce(&one, &one, 1, tuttiInt32, tuttiSum, comm, NULL), tuttiSuccess);
    CHECK_EQ(one, 4);
}

/* Where links cost next to nothing and a meeting a lot, nobody meets. */
static const char cheap_links[] = "link = 1e-6\nturn_link = 1e-6\naction = 1e-6\n"
                                  "meeting = 100\nturn_meeting = 100\n";

TEST(costs, a_file_of_constants_changes_the_choice)
{
    const char *shipped = NULL, *changed = NULL;
    as_threads(4, NULL, look, &shipped);
    CHECK_STR(shipped, "meet");
    use_file(cheap_links);
    as_threads(4, NULL, look, &changed);
    CHECK(changed && strcmp(changed, "meet") != 0);
    forget_file();
    as_threads(4, NULL, look, &shipped);
    CHECK_STR(shipped, "meet");
}

static void split(int rank, tuttiComm_t comm, void *arg)
{
    tuttiComm_t part = NULL;
    (void)arg;
    CHECK_EQ(tuttiBarrier(comm, NULL), tuttiSuccess);
    if (rank == 0) unlink(path);
    CHECK_EQ(tuttiCommSplit(comm, 0, rank, &part, NULL), tuttiSuccess);
    CHECK(part && part->costs.at[TT_COST_MEETING].value == 100);
    CHECK_EQ(tuttiCommDestroy(part), tuttiSuccess);
}

TEST(costs, a_split_has_those_of_its_parent_even_if_the_file_is_gone)
{
    use_file(cheap_links);
    as_threads(4, NULL, split, NULL);
    forget_file();
}

TEST(costs, a_file_that_is_wrong_fails_the_init)
{
    tuttiComm_t comms[2] = {NULL, NULL};
    use_file("link = fast\n");
    CHECK_EQ(tuttiCommInitAll(comms, 2, NULL), tuttiInvalidArgument);
    const char *error = tuttiGetLastError(NULL);
    CHECK_MESSAGE(strstr(error, path) && strstr(error, "line 1") && strstr(error, "'fast'"), "%s",
                  error);
    unlink(path);
    CHECK_EQ(tuttiCommInitAll(comms, 2, NULL), tuttiInvalidArgument);
    CHECK(strstr(tuttiGetLastError(NULL), "No such file"));
    forget_file();
    CHECK_EQ(tuttiCommInitAll(comms, 2, NULL), tuttiSuccess);
    for (int rank = 0; rank < 2; rank++) CHECK_EQ(tuttiCommDestroy(comms[rank]), tuttiSuccess);
}

static char described[8192];

static void keep_line(void *arg, const char *line)
{
    (void)arg;
    const size_t used = strlen(described);
    snprintf(described + used, sizeof described - used, "%s\n", line);
}

TEST(costs, a_description_says_where_the_constants_come_from)
{
    char from[64], shipped[64];
    described[0] = '\0';
    CHECK_EQ(tuttiDescribe(tuttiDescribeCosts, NULL, keep_line, NULL), tuttiSuccess);
    CHECK(strstr(described, "constants of the host: as shipped\n"));
    CHECK(!strstr(described, "shipped: "));
    use_file("link = 0.75\n");
    described[0] = '\0';
    CHECK_EQ(tuttiDescribe(tuttiDescribeCosts, NULL, keep_line, NULL), tuttiSuccess);
    snprintf(shipped, sizeof shipped, "shipped: %.6f us", tt_shipped_costs.at[TT_COST_LINK].value);
    snprintf(from, sizeof from, "constants of the host: TUTTI_COST_FILE=%s\n", path);
    CHECK_MESSAGE(strstr(described, from) && strstr(described, "link           0.750000 us") &&
                      strstr(described, shipped),
                  "%s", described);
    unlink(path);
    CHECK_EQ(tuttiDescribe(tuttiDescribeCosts, NULL, keep_line, NULL), tuttiInvalidArgument);
    forget_file();
}
