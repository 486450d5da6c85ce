/* Memory that both ranks can address: messages are read, or written, in place. */
#include "ranks.h"
#include "shim.h"

static void check_uncopied(const char *hosts, const char *algorithm)
{
    static struct job job;
    const char *const args[] = {"uncopied", NULL}, *const extra[] = {algorithm, NULL};
    REQUIRE(job_start_on(&job, hosts, args, extra));
    CHECK_MESSAGE(job_wait(&job, 60000), "%s: some rank did not end", algorithm);
    job_check_exit(&job, 0);
}

/* With more than two ranks the ring and recursive halving send partial sums, which lie in no buffer
 * of the caller: these ranks copy them to slots. */
TEST(posts, no_byte_of_a_long_all_reduce_of_window_memory_is_copied_to_a_slot)
{
    static const char *const any[] = {"TUTTI_ALGORITHM=", "TUTTI_ALGORITHM=all_reduce:two_shot"};
    for (int i = 0; i < 2; i++) {
        check_uncopied("aa", any[i]);
        check_uncopied("aaaa", any[i]);
    }
    check_uncopied("aa", "TUTTI_ALGORITHM=all_reduce:recursive_halving");
    check_uncopied("aa", "TUTTI_ALGORITHM=all_reduce:ring");
}

/* Descriptors wait at a rank's socket, at most 128 of them, until it takes them. */
TEST(posts, windows_that_a_peer_never_looks_into_do_not_fill_its_socket)
{
    static const char *const ways[] = {"receive", "reduce"};
    for (int i = 0; i < 2; i++) {
        static struct job job;
        const char *const args[] = {"unread", ways[i], NULL};
        REQUIRE(job_start(&job, 2, args, NULL, NULL));
        CHECK_MESSAGE(job_wait(&job, 60000), "%s: some rank did not end", ways[i]);
        job_check_exit(&job, 0);
    }
}
