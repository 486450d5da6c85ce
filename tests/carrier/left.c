/* The list of parts that were left to GPUs. */
#include "carrier/left.h"

#include <sys/wait.h>
#include <unistd.h>

#include "shim.h"

struct thing {
    struct tt_left_part left;
    bool is_used;
    int nfreed;
};

static bool is_unused(const void *part)
{
    return !((const struct thing *)part)->is_used;
}

static void count(void *part)
{
    ((struct thing *)part)->nfreed++;
}

static void leave(struct thing *thing, bool is_used)
{
    *thing = (struct thing){.left = {.part = thing, .is_unused = is_unused, .free = count},
                            .is_used = is_used};
    tt_left_add(&thing->left);
}

TEST(left, a_part_is_freed_once_when_it_is_unused)
{
    struct thing things[3];
    for (int i = 0; i < 3; i++) leave(&things[i], i == 1);
    tt_left_free(0);
    CHECK_EQ(things[0].nfreed, 1);
    CHECK_EQ(things[1].nfreed, 0);
    CHECK_EQ(things[2].nfreed, 1);
    things[1].is_used = false;
    tt_left_free(0);
    tt_left_free(0);
    for (int i = 0; i < 3; i++) CHECK_EQ(things[i].nfreed, 1);
}

/* The child leaves a part before it has freed any. */
TEST(left, a_child_made_by_fork_frees_its_own_parts_alone)
{
    struct thing inherited, own;
    leave(&inherited, true);
    const pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
        inherited.is_used = false;
        leave(&own, false);
        tt_left_free(0);
        _exit(own.nfreed == 1 && inherited.nfreed == 0 ? 0 : 1);
    }
    int status;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK_EQ(status, 0);
    inherited.is_used = false;
    tt_left_free(0);
    CHECK_EQ(inherited.nfreed, 1);
}

TEST(left, parts_of_another_gpu_stay)
{
    struct thing own, other;
    leave(&own, false);
    other =
        (struct thing){.left = {.part = &other, .gpu = 1, .is_unused = is_unused, .free = count}};
    tt_left_add(&other.left);
    tt_left_free(0);
    CHECK_EQ(own.nfreed, 1);
    CHECK_EQ(other.nfreed, 0);
    tt_left_free(1);
    CHECK_EQ(other.nfreed, 1);
}

static bool free_others(const void *part)
{
    tt_left_free(1);
    return is_unused(part);
}

static void count_and_free_others(void *part)
{
    tt_left_free(1);
    count(part);
}

/* What a GPU holds up holds up no other GPU: the lock is not held meanwhile. */
TEST(left, a_part_may_be_asked_and_freed_while_another_gpus_are)
{
    struct thing thing = {
        .left = {.part = &thing, .is_unused = free_others, .free = count_and_free_others}};
    tt_left_add(&thing.left);
    tt_left_free(0);
    CHECK_EQ(thing.nfreed, 1);
}
