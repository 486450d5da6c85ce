/* Wrong schedules, one for each way to be wrong; each must be refused for the right reason. */
#include <string.h>

#include "hand.h"
#include "shim.h"

/* A test with the steps given and the text expected. Lines follow the text. */
#define REFUTED(sentence, hand_shape, hand_blocks, hand_scratch, count, text, ...)                 \
    TEST(refuted, sentence)                                                                        \
    {                                                                                              \
        static const struct line lines[] = {__VA_ARGS__};                                          \
        const struct hand hand = {                                                                 \
            .shape = hand_shape, .nblocks = hand_blocks, .nscratch = hand_scratch, LINES(lines)};  \
        EXPECT_REFUTED(hand, count, text);                                                         \
    }
/* clang-format off */
#define SHAPE(of, ranks, at) {.collective = (of), .nranks = (ranks), .root = (at)}
#define REDUCE2 SHAPE(TT_REDUCE, 2, 0)
#define ALL2 SHAPE(TT_ALL_REDUCE, 2, 0)
#define GATHER2 SHAPE(TT_ALL_GATHER, 2, 0)
#define CAST2 SHAPE(TT_BROADCAST, 2, 0)
#define CAST3 SHAPE(TT_BROADCAST, 3, 0)
#define BARRIER3 SHAPE(TT_BARRIER, 3, 0)
#define SEND_1_TO_0 {1, 0, {.local = IN(0), .send = PEER(0)}}
#define ROOT_FOLDS {0, 0, {.recv = PEER(1), .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}}
#define ROOT_CASTS {0, 0, {.local = IN(0), .dst = OUT(0), .send = PEER(1)}}
#define TAKES {1, 0, {.recv = PEER(0), .dst = OUT(0)}}
#define MEET .kind = TT_STEP_MEET, .recv = PEERS(0, 2)

/* Rank 0 is on one host, rank 1 on another. */
static int32_t each_its_own[] = {0, 1}, no_place[] = {0, 0}, begins[] = {0, 1, 2};
static const struct tt_hosts two_hosts = {2, 2, 1, 1, each_its_own, no_place, begins, each_its_own, each_its_own, false};

/* Ranks 0 and 1 are on one host, rank 2 on another. */
static int32_t first_two[] = {0, 0, 1}, locals[] = {0, 1, 0}, begins_two[] = {0, 2, 3}, in_order[] = {0, 1, 2}, lane[] = {0, 2};
static const struct tt_hosts two_and_one = {3, 2, 1, 2, first_two, locals, begins_two, in_order, lane, false};

/* ---- The result ---- */
REFUTED(a_contribution_is_missing, REDUCE2, 1, 0, 5,
        "rank 0 channel 0 step 0: finishes block 0, which lacks the contribution of rank 1",
        {0, 0, {.local = IN(0), .finish = true, .dst = OUT(0)}})
REFUTED(a_contribution_is_missing_at_the_end, REDUCE2, 1, 0, 5,
        "rank 0 channel 0 step 0: OUTPUT[0] lacks the contribution of rank 1",
        {0, 0, {.local = IN(0), .dst = OUT(0)}})
REFUTED(a_contribution_counts_twice, REDUCE2, 1, 0, 5,
        "rank 0 channel 0 step 1: counts the contribution of rank 1 to block 0 twice",
        SEND_1_TO_0, SEND_1_TO_0,
        {0, 0, {.recv = PEER(1), .op = TT_FOLD, .local = IN(0), .dst = OUT(0)}},
        {0, 0, {.recv = PEER(1), .op = TT_FOLD, .local = OUT(0), .finish = true, .dst = OUT(0)}})
REFUTED(the_result_is_never_finished, REDUCE2, 1, 0, 5,
        "rank 0 channel 0 step 0: OUTPUT[0] is never finished", SEND_1_TO_0,
        {0, 0, {.recv = PEER(1), .op = TT_FOLD, .local = IN(0), .dst = OUT(0)}})
REFUTED(the_result_is_finished_twice, REDUCE2, 1, 0, 5,
        "rank 0 channel 0 step 1: finishes block 0 a second time", SEND_1_TO_0, ROOT_FOLDS,
        {0, 0, {.local = OUT(0), .finish = true, .dst = OUT(0)}})
REFUTED(a_finished_result_is_reduced_further, ALL2, 1, 0, 5,
        "rank 1 channel 0 step 1: reduces block 0, which is finished already", SEND_1_TO_0,
        {0, 0, {.recv = PEER(1), .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0), .send = PEER(1)}},
        {1, 0, {.recv = PEER(0), .op = TT_FOLD, .local = IN(0), .dst = OUT(0)}})
REFUTED(a_block_ends_in_the_place_of_another, GATHER2, 0, 0, 5,
        "rank 1 channel 0 step 1: OUTPUT[0] ends as block 1 of rank 1, expected block 0 of rank 0",
        {0, 0, {.local = IN(0), .dst = OUT(0)}}, {0, 0, {.recv = PEER(1), .dst = OUT(1)}},
        {1, 0, {.local = IN(1), .dst = OUT(1), .send = PEER(0)}},
        {1, 0, {.local = IN(1), .dst = OUT(0)}})
REFUTED(a_block_of_another_receiver_arrives, SHAPE(TT_ALL_TO_ALL, 2, 0), 0, 0, 5,
        "rank 0 channel 0 step 1: OUTPUT[1] ends as block 1 of rank 1, expected block 0 of rank 1",
        {0, 0, {.local = IN(0), .dst = OUT(0)}}, {0, 0, {.recv = PEER(1), .dst = OUT(1)}},
        {1, 0, {.local = IN(1), .dst = OUT(1), .send = PEER(0)}},
        {1, 0, {.local = IN(0), .dst = OUT(0)}})
REFUTED(a_block_of_a_reduction_ends_in_the_place_of_another, SHAPE(TT_ALL_REDUCE, 1, 0), 2, 0, 4,
        "rank 0 channel 0 step 1: OUTPUT[1] ends as block 0",
        {0, 0, {.local = IN(0), .finish = true, .dst = OUT(0)}},
        {0, 0, {.local = OUT(0), .dst = OUT(1)}})
REFUTED(an_output_is_never_written, CAST3, 1, 0, 5,
        "rank 2 channel 0: OUTPUT[0] is never written", ROOT_CASTS, TAKES)
REFUTED(two_blocks_are_reduced_with_each_other, REDUCE2, 2, 0, 4,
        "rank 0 channel 0 step 0: reduces block 0 with block 1",
        {1, 0, {.local = IN(1), .send = PEER(0)}}, ROOT_FOLDS)
REFUTED(a_barrier_lets_a_rank_go_too_early, BARRIER3, 0, 0, 0,
        "rank 1 channel 0: may leave before rank 2 has come",
        {0, 0, {.send = PEER(1)}}, {0, 0, {.recv = PEER(2)}},
        {1, 0, {.recv = PEER(0), .send = PEER(2)}}, {2, 0, {.recv = PEER(1), .send = PEER(0)}})

/* ---- Memory ---- */
REFUTED(output_is_read_before_it_is_written, CAST2, 1, 0, 5,
        "rank 0 channel 0 step 0: reads OUTPUT[0], which nothing has written",
        {0, 0, {.local = OUT(0), .send = PEER(1)}}, {0, 0, {.local = IN(0), .dst = OUT(0)}}, TAKES)
REFUTED(scratch_is_read_before_it_is_written, CAST2, 1, 2, 5,
        "rank 0 channel 0 step 1: reads SCRATCH slot 1, which nothing has written",
        {0, 0, {.local = IN(0), .dst = SLOT(0, 0)}}, {0, 0, {.local = SLOT(0, 1), .dst = OUT(0), .send = PEER(1)}}, TAKES)
REFUTED(scratch_is_read_as_a_block_of_another_length, SHAPE(TT_BROADCAST, 1, 0), 2, 1, 5,
        "rank 0 channel 0 step 1: reads SCRATCH slot 0 as block 1, but it was written as block 0, which has another length",
        {0, 0, {.local = IN(0), .dst = SLOT(0, 0)}}, {0, 0, {.local = SLOT(1, 0), .dst = OUT(1)}})
REFUTED(a_block_is_stored_as_one_of_another_length, SHAPE(TT_BROADCAST, 1, 0), 2, 0, 5,
        "rank 0 channel 0 step 0: stores block 0 as block 1, which has another length",
        {0, 0, {.local = IN(0), .dst = OUT(1)}})
REFUTED(input_is_used_where_it_is_not_significant, CAST2, 1, 0, 5,
        "rank 1 channel 0 step 0: a span beyond what this rank's INPUT holds", ROOT_CASTS,
        {1, 0, {.local = IN(0), .dst = OUT(0)}})
REFUTED(output_is_used_where_it_is_not_significant, REDUCE2, 1, 0, 5,
        "rank 1 channel 0 step 0: a span beyond what this rank's OUTPUT holds",
        {1, 0, {.local = IN(0), .dst = OUT(0), .send = PEER(0)}}, ROOT_FOLDS)
REFUTED(input_of_another_rank_is_used, GATHER2, 0, 0, 5,
        "rank 0 channel 0 step 0: a span beyond what this rank's INPUT holds",
        {0, 0, {.local = IN(1), .dst = OUT(1)}})
REFUTED(input_is_written, CAST2, 1, 0, 5, "rank 0 channel 0 step 0: writes to INPUT",
        {0, 0, {.local = IN(0), .dst = IN(0)}})
REFUTED(a_span_has_more_blocks_than_there_are, CAST2, 2, 0, 5,
        "rank 0 channel 0 step 0: a span of more blocks than there are",
        {0, 0, {.local = SPAN(TT_INPUT, 0, 3), .dst = SPAN(TT_OUTPUT, 0, 3)}})
REFUTED(a_span_is_negative, CAST2, 2, 0, 5, "a span of a negative number of blocks",
        {0, 0, {.local = SPAN(TT_INPUT, 0, -1), .send = PEER(1)}})
REFUTED(a_span_has_no_run, CAST2, 2, 0, 5, "a span whose run is below 1",
        {0, 0, {.local = {.buffer = TT_INPUT, .first = 0, .number = 1, .run = 0, .stride = 0}, .send = PEER(1)}})
REFUTED(a_slot_is_beyond_the_scratch, CAST2, 2, 2, 5,
        "rank 0 channel 0 step 0: a span beyond the SCRATCH slots",
        {0, 0, {.local = SPAN(TT_INPUT, 0, 2), .dst = {.buffer = TT_SCRATCH, .first = 0, .number = 2, .run = 2, .stride = 0, .slot_rule = TT_SLOT_IN_ORDER, .slot = 1}}})
REFUTED(a_slot_by_name_is_beyond_the_scratch, CAST2, 2, 1, 5, "a span beyond the SCRATCH slots",
        {0, 0, {.local = IN(1), .dst = {.buffer = TT_SCRATCH, .first = 1, .number = 1, .run = 1, .stride = 0}}})
REFUTED(a_barrier_has_data, BARRIER3, 0, 0, 0, "a span in a collective without data",
        {0, 0, {.local = IN(0), .send = PEER(1)}})
REFUTED(a_span_names_its_destination_twice, SHAPE(TT_BROADCAST, 1, 0), 4, 0, 8,
        "rank 0 channel 0 step 0: writes OUTPUT[0] twice",
        {0, 0, {.local = SPAN(TT_INPUT, 0, 3), .dst = {.buffer = TT_OUTPUT, .first = 0, .number = 3, .run = 1, .stride = 2}}})
REFUTED(a_step_shifts_blocks_within_one_memory, SHAPE(TT_BROADCAST, 1, 0), 3, 0, 192,
        "writes OUTPUT[1], the 0-th block of dst, and reads the same memory as the 1-th of local",
        {0, 0, {.local = SPAN(TT_INPUT, 0, 3), .dst = SPAN(TT_OUTPUT, 0, 3)}},
        {0, 0, {.local = SPAN(TT_OUTPUT, 0, 2), .dst = SPAN(TT_OUTPUT, 1, 2)}})
REFUTED(in_place_the_input_is_gone, ALL2, 1, 1, 5,
        "rank 0 channel 0 step 1 (in place): reads INPUT[0], which step 0 has overwritten through OUTPUT[0]",
        {0, 0, {.recv = PEER(1), .dst = OUT(0)}},
        {0, 0, {.local = IN(0), .dst = SLOT(0, 0), .send = PEER(1)}},
        {0, 0, {.recv = PEER(1), .dst = OUT(0)}},
        {1, 0, {.local = IN(0), .send = PEER(0)}},
        {1, 0, {.recv = PEER(0), .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0), .send = PEER(0)}})

/* ---- Messages ---- */
REFUTED(a_message_has_another_number_of_blocks, CAST2, 2, 0, 4,
        "rank 1 channel 0 step 0: takes 1 blocks from rank 0, which sends 2 in its step 0",
        {0, 0, {.local = SPAN(TT_INPUT, 0, 2), .dst = SPAN(TT_OUTPUT, 0, 2), .send = PEER(1)}}, TAKES)
REFUTED(a_message_has_another_length, CAST2, 2, 0, 5,
        "rank 1 channel 0 step 0: takes block 1 from rank 0 as block 0, which has another length",
        {0, 0, {.local = SPAN(TT_INPUT, 0, 2), .dst = SPAN(TT_OUTPUT, 0, 2)}}, {0, 0, {.local = IN(1), .send = PEER(1)}}, TAKES)
REFUTED(a_message_is_left_over, CAST2, 1, 0, 5,
        "rank 1 channel 0 never receives the last message that rank 0 sends it", ROOT_CASTS, TAKES,
        {0, 0, {.local = IN(0), .send = PEER(1)}})
REFUTED(a_message_never_comes, CAST2, 1, 0, 5,
        "deadlock: rank 1 channel 0 step 1 waits for a message from rank 0, which has ended after 1 steps",
        ROOT_CASTS, TAKES, {1, 0, {.recv = PEER(0), .dst = OUT(0)}})
REFUTED(two_ranks_wait_for_each_other, SHAPE(TT_ALL_REDUCE, 2, 0), 1, 0, 5,
        "deadlock: rank 0 channel 0 step 0 waits for a message from rank 1; rank 1 channel 0 step 0 waits for a message from rank 0",
        {0, 0, {.recv = PEER(1), .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}}, {0, 0, {.local = IN(0), .send = PEER(1)}},
        {1, 0, {.recv = PEER(0), .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}}, {1, 0, {.local = IN(0), .send = PEER(0)}})
REFUTED(a_link_would_have_to_hold_two_messages, GATHER2, 0, 0, 5,
        "deadlock: rank 0 channel 0 step 1 waits for room in its link to rank 1",
        {0, 0, {.local = IN(0), .dst = OUT(0), .send = PEER(1)}}, {0, 0, {.local = IN(0), .send = PEER(1)}},
        {0, 0, {.recv = PEER(1), .dst = OUT(1)}}, {0, 0, {.recv = PEER(1), .dst = OUT(1)}},
        {1, 0, {.local = IN(1), .dst = OUT(1), .send = PEER(0)}}, {1, 0, {.local = IN(1), .send = PEER(0)}},
        {1, 0, {.recv = PEER(0), .dst = OUT(0)}}, {1, 0, {.recv = PEER(0), .dst = OUT(0)}})

/* ---- Steps that make no sense ---- */
REFUTED(a_peer_is_no_rank, CAST2, 1, 0, 5, "rank 0 channel 0 step 0: the first peer is not a rank",
        {0, 0, {.local = IN(0), .dst = OUT(0), .send = PEER(2)}})
REFUTED(a_peer_comes_twice, CAST3, 1, 0, 5, "rank 0 channel 0 step 0: the same peer twice",
        {0, 0, {.local = IN(0), .dst = OUT(0), .send = {.first = 1, .number = 2, .stride = 3}}})
REFUTED(there_are_more_peers_than_ranks, CAST3, 1, 0, 5, "more peers than there are ranks",
        {0, 0, {.local = IN(0), .dst = OUT(0), .send = {.first = 1, .number = 4, .stride = 1}}})
REFUTED(the_number_of_peers_is_negative, CAST3, 1, 0, 5, "a negative number of peers",
        {0, 0, {.local = IN(0), .dst = OUT(0), .send = {.first = 1, .number = -1, .stride = 1}}})
REFUTED(a_rank_sends_to_itself, CAST2, 1, 0, 5, "rank 0 channel 0 step 0: sends to itself",
        {0, 0, {.local = IN(0), .send = PEER(0)}})
REFUTED(a_rank_receives_from_itself, CAST2, 1, 0, 5, "rank 0 channel 0 step 0: receives from itself",
        {0, 0, {.recv = PEER(0), .dst = OUT(0)}})
REFUTED(a_gap_is_beyond_the_peers, CAST3, 1, 0, 5, "rank 0 channel 0 step 0: a gap beyond the list of peers",
        {0, 0, {.local = IN(0), .send = {.first = 0, .number = 1, .stride = 1, .has_gap = true, .gap = 2}}})
REFUTED(there_are_more_peers_with_the_gap_than_ranks, CAST3, 1, 0, 5, "more peers than there are ranks",
        {0, 0, {.local = IN(0), .send = {.first = 0, .number = 3, .stride = 1, .has_gap = true, .gap = 0}}})
REFUTED(the_own_place_is_beyond_the_sources, REDUCE2, 1, 0, 5, "rank 0 channel 0 step 0: a place of local that is beyond the sources",
        {0, 0, {.recv = PEER(1), .op = TT_FOLD, .local = IN(0), .own_at = 2, .finish = true, .dst = OUT(0)}})
REFUTED(there_is_an_own_place_without_a_local_span, REDUCE2, 1, 0, 5, "a place of local that is beyond the sources",
        {0, 0, {.recv = PEER(1), .own_at = 1, .dst = OUT(0)}})
REFUTED(there_is_an_own_place_in_a_meeting, ALL2, 1, 0, 5, "a place of local in a meeting, which has its members' order",
        {0, 0, {MEET, .op = TT_FOLD, .local = IN(0), .own_at = 1, .finish = true, .dst = OUT(0)}})
REFUTED(a_step_has_no_source, CAST2, 1, 0, 5, "no source: neither a local span nor a peer to receive from",
        {0, 0, {.dst = OUT(0)}})
REFUTED(a_step_does_nothing_with_its_result, CAST2, 1, 0, 5, "nothing is done with the result",
        {0, 0, {.local = IN(0)}})
REFUTED(local_and_dst_differ_in_number, CAST2, 2, 0, 5, "local and dst have different numbers of blocks",
        {0, 0, {.local = SPAN(TT_INPUT, 0, 2), .dst = OUT(0)}})
REFUTED(several_sources_are_copied, ALL2, 1, 0, 5, "rank 0 channel 0 step 0: several sources but no reduction",
        {0, 0, {.recv = PEER(1), .local = IN(0), .dst = OUT(0)}})
REFUTED(a_single_source_is_reduced, ALL2, 1, 0, 5, "a reduction of a single source",
        {0, 0, {.op = TT_FOLD, .local = IN(0), .dst = OUT(0)}})
REFUTED(a_collective_that_copies_reduces, GATHER2, 0, 0, 5, "reduces in a collective that does not",
        {0, 0, {.recv = PEER(1), .op = TT_FOLD, .local = IN(0), .dst = OUT(0)}})
REFUTED(a_collective_that_copies_finishes, CAST2, 1, 0, 5, "finishes in a collective that does not reduce",
        {0, 0, {.local = IN(0), .finish = true, .dst = OUT(0)}})
REFUTED(a_step_over_links_transposes, SHAPE(TT_ALL_TO_ALL, 2, 0), 0, 0, 5, "transposes outside a meeting",
        {0, 0, {.op = TT_TRANSPOSE, .local = IN(0), .dst = OUT(0)}})
REFUTED(an_operation_does_not_exist, CAST2, 1, 0, 5, "an operation that does not exist",
        {0, 0, {.op = (enum tt_step_op)7, .local = IN(0), .dst = OUT(0)}})
REFUTED(a_kind_of_step_does_not_exist, CAST2, 1, 0, 5, "a kind of step that does not exist",
        {0, 0, {.kind = (enum tt_step_kind)7, .local = IN(0), .dst = OUT(0)}})
REFUTED(a_buffer_does_not_exist, CAST2, 1, 0, 5, "a span in no known buffer",
        {0, 0, {.local = {.buffer = (enum tt_buffer)7, .first = 0, .number = 1, .run = 1, .stride = 0}, .dst = OUT(0)}})

/* ---- Meetings ---- */
REFUTED(a_rank_is_not_in_its_own_meeting, CAST3, 1, 0, 5, "rank 2 channel 0 step 0: a meeting without this rank",
        {2, 0, {MEET, .dst = OUT(0)}})
REFUTED(a_member_does_not_come, CAST2, 1, 0, 5,
        "deadlock: rank 0 channel 0 step 0 waits for rank 1 to come to a meeting of 2, which has ended after 0 steps",
        {0, 0, {MEET, .local = IN(0), .dst = OUT(0)}})
REFUTED(members_list_each_other_in_different_order, CAST2, 1, 0, 5,
        "rank 1 channel 0 step 0: a meeting of others than all ranks of this host in rank order",
        {0, 0, {MEET, .local = IN(0), .dst = OUT(0)}},
        {1, 0, {.kind = TT_STEP_MEET, .recv = PEERS(1, 2), .dst = OUT(0)}})
REFUTED(a_meeting_lacks_a_rank_of_the_host, CAST3, 1, 0, 5,
        "rank 0 channel 0 step 0: a meeting of others than all ranks of this host in rank order",
        {0, 0, {MEET, .local = IN(0), .dst = OUT(0)}})
REFUTED(a_meeting_is_between_hosts, ((struct tt_shape){.collective = TT_BROADCAST, .nranks = 2, .hosts = &two_hosts}), 1, 0, 5,
        "rank 0 channel 0 step 0: a meeting of others than all ranks of this host in rank order",
        {0, 0, {MEET, .local = IN(0), .dst = OUT(0)}})
REFUTED(members_finish_and_do_not, SHAPE(TT_ALL_REDUCE, 2, 0), 1, 0, 5,
        "rank 1 channel 0 step 0: does not finish what it takes from the meeting, unlike rank 0",
        {0, 0, {MEET, .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}},
        {1, 0, {MEET, .op = TT_FOLD, .local = IN(0), .dst = OUT(0)}})
REFUTED(members_name_places_of_different_parts, SHAPE(TT_ALL_REDUCE, 2, 0), 2, 0, 5,
        "rank 1 channel 0 step 0: names places of another part than others in the meeting",
        {0, 0, {MEET, .op = TT_FOLD, .local = IN(0)}},
        {1, 0, {MEET, .op = TT_FOLD, .local = {.buffer = TT_INPUT, .first = 0, .number = 1, .run = 1, .stride = 0, .base = 1, .modulo = 1}}})
REFUTED(a_part_is_beyond_the_blocks, SHAPE(TT_ALL_REDUCE, 2, 0), 2, 0, 5,
        "rank 0 channel 0 step 0: a span of a part beyond the blocks there are",
        {0, 0, {.local = {.buffer = TT_INPUT, .first = 0, .number = 1, .run = 1, .stride = 0, .base = 1, .modulo = 2}, .dst = OUT(0)}})
REFUTED(members_meet_for_different_operations, ALL2, 1, 0, 5,
        "rank 1 channel 0 step 0: meets for another operation than rank 0 in its step 0",
        {0, 0, {MEET, .op = TT_FOLD, .local = IN(0), .finish = true, .dst = OUT(0)}},
        {1, 0, {MEET, .local = IN(0), .dst = OUT(0)}})
REFUTED(a_block_is_put_in_by_nobody, CAST2, 1, 0, 5,
        "rank 0 channel 0 step 0: takes block 0, which nobody has put into the meeting",
        {0, 0, {MEET, .dst = OUT(0)}}, {1, 0, {MEET, .dst = OUT(0)}})
REFUTED(a_block_is_put_in_by_several, SHAPE(TT_ALL_REDUCE, 2, 0), 1, 0, 5,
        "rank 0 channel 0 step 0: takes block 0, which several members have put into the meeting",
        {0, 0, {MEET, .local = IN(0), .dst = OUT(0)}}, {1, 0, {MEET, .local = IN(0), .dst = OUT(0)}})
REFUTED(members_put_different_blocks_into_a_reduction, ALL2, 2, 0, 5,
        "rank 1 channel 0 step 0: puts other blocks into a reduction than rank 0",
        {0, 0, {MEET, .op = TT_FOLD, .local = IN(0)}}, {1, 0, {MEET, .op = TT_FOLD, .local = IN(1)}})
REFUTED(a_meeting_reduces_what_nobody_put_in, ALL2, 2, 0, 5,
        "rank 0 channel 0 step 0: takes block 0, which nobody has put into the meeting",
        {0, 0, {MEET, .op = TT_FOLD, .dst = OUT(0)}}, {1, 0, {MEET, .op = TT_FOLD}})
REFUTED(a_transposed_block_is_missing, SHAPE(TT_ALL_TO_ALL, 2, 0), 0, 0, 5,
        "rank 0 channel 0 step 0: takes its block of rank 1, which has not put it in",
        {0, 0, {MEET, .op = TT_TRANSPOSE, .local = SPAN(TT_INPUT, 0, 2), .dst = SPAN(TT_OUTPUT, 0, 2)}},
        {1, 0, {MEET, .op = TT_TRANSPOSE, .local = IN(1), .dst = SPAN(TT_OUTPUT, 0, 2)}})
REFUTED(a_meeting_sends, CAST2, 1, 0, 5, "sends from a meeting",
        {0, 0, {MEET, .local = IN(0), .dst = OUT(0), .send = PEER(1)}})
REFUTED(a_meeting_has_a_span_with_gaps, CAST2, 4, 0, 8, "a span in a meeting that is not contiguous",
        {0, 0, {MEET, .dst = {.buffer = TT_OUTPUT, .first = 0, .number = 2, .run = 1, .stride = 2}}})
REFUTED(a_meeting_transposes_in_another_collective, CAST2, 1, 0, 8,
        "transposes in another collective than all_to_all", {0, 0, {MEET, .op = TT_TRANSPOSE, .local = IN(0)}})
REFUTED(a_meeting_transposes_more_than_it_has, ((struct tt_shape){.collective = TT_ALL_TO_ALL, .nranks = 3, .hosts = &two_and_one}), 0, 0, 8,
        "transposes more blocks than the meeting has members",
        {0, 0, {MEET, .op = TT_TRANSPOSE, .local = SPAN(TT_INPUT, 0, 3), .dst = SPAN(TT_OUTPUT, 0, 3)}})
/* clang-format on */

TEST(refuted, the_channel_that_is_wrong_is_named)
{
    static const struct line lines[] = {{0, 0, {.local = IN(0), .dst = OUT(0)}},
                                        {0, 1, {.local = IN(0), .dst = IN(0)}}};
    const struct hand hand = {.shape = {.collective = TT_BROADCAST, .nranks = 1, .root = 0},
                              .nchannels = 2,
                              LINES(lines)};
    EXPECT_REFUTED(hand, 5, "rank 0 channel 1 step 0: writes to INPUT");
}

/* Every block passes through SCRATCH under the name of the next one, where it is as long only if
 * all are alike. */
TEST(refuted, a_block_that_is_renamed_is_wrong_where_blocks_differ)
{
    static const struct line lines[] = {
        {0, 0, {.local = IN(0), .dst = SLOT(1, 0)}},
        {0, 0, {.local = SLOT(1, 0), .dst = OUT(0), .send = PEER(1)}},
        {0, 0, {.recv = PEER(1), .dst = OUT(1)}},
        {1, 0, {.local = IN(1), .dst = OUT(1), .send = PEER(0)}},
        {1, 0, {.recv = PEER(0), .dst = OUT(0)}}};
    const struct hand hand = {.shape = GATHER2, .nscratch = 1, LINES(lines)};
    EXPECT_PROVED(hand, 5);
    const struct tt_steps steps = hand_steps(&hand);
    struct tt_verify_report report;
    static const size_t alike[] = {4, 4}, different[] = {4, 0};
    CHECK_EQ(tt_verify_uneven(&steps, alike, &report), TT_OK);
    CHECK_EQ(tt_verify_uneven(&steps, different, &report), TT_ERR_USAGE);
    CHECK_EQ(tt_verify_uneven(&steps, NULL, &report), TT_ERR_USAGE);
    CHECK_MESSAGE(strstr(report.text, "another length") != NULL, "%s", report.text);
}
