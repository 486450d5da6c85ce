/* Launches the kernels of calls on device memory.
 *
 * The calls of a rank in a group are its run. They are one launch: its blocks run one call after
 * the other (device/kernel/run.cu). All streams of the run's calls come before it, and follow it.
 *
 * Runs of several ranks of a communicator form a team, whose calls are one launch too, where all of
 * them are on one GPU and on one stream. A group of ranks 0 and 1 with the calls A and B:
 *
 *     blocks 0, 1    rank 0's A, rank 0's B
 *     blocks 2, 3    rank 1's A, rank 1's B
 *
 * A launch holds few calls (TT_DEVICE_MOST_CALLS). A longer team has several launches, each with
 * the same calls of all its members.
 *
 * A launch begins when all its ranks can, and what follows one of its calls waits for all of them.
 * Ranks share one only where none of them waits because of that for what would wait for it
 * (may_share): so that a kernel never waits for one that cannot run. */
#include "communicator/graphs.h"
#include "driver/capture.h"
#include "executor/exchange.h"

/* ---- Runs ----------------------------------------------------------------------------------- */

static struct tt_launch_run *run_of(const struct tuttiComm *comm)
{
    return &comm->on_gpu->run;
}

static uint64_t number_of(const struct tt_pending_call *call)
{
    return call->kind == TT_WORK_EXCHANGE ? call->exchange->kernel.number
                                          : call->call.kernel.number;
}

/* Adds the call to its rank's run. True: it is the first. */
static bool add_call(struct tt_pending_call *call)
{
    struct tt_launch_run *run = run_of(call->comm);
    const bool first = !run->first;
    if (first)
        *run = (struct tt_launch_run){
            .last = &run->first, .begins = number_of(call), .one_stream = true, .nmembers = 1};
    call->next = NULL;
    *run->last = call;
    run->last = &call->next;
    run->ncollectives += call->kind == TT_WORK_COLLECTIVE;
    if (call->kind == TT_WORK_EXCHANGE) run->exchange = call->exchange;
    run->one_stream = run->one_stream && call->stream == run->first->stream;
    run->at = run->first;
    return first;
}

/* The runs of all ranks, in the order of their first calls; NULL: no call is on a device. */
static tuttiComm_t make_runs(struct tt_pending_call *calls, int ncalls)
{
    tuttiComm_t first = NULL, *last = &first;
    for (int i = 0; i < ncalls; i++) {
        if (!calls[i].on_device || !add_call(&calls[i])) continue;
        *last = calls[i].comm;
        last = &run_of(calls[i].comm)->next;
    }
    return first;
}

/* ---- Teams ---------------------------------------------------------------------------------- */

/* Whether the rank's stream has nothing to do but what the stream of the run comes after anyway: a
 * launch of several ranks then waits for nothing that it would not wait for alone. */
static bool is_ready(const struct tuttiComm *comm)
{
    const struct tt_comm_device *on = comm->on_gpu;
    if (on->had_one_stream && on->last_stream == on->run.first->stream) return true;
    return __atomic_load_n(&on->report->ended, __ATOMIC_ACQUIRE) + 1 >= on->run.begins;
}

static bool is_like(const struct tt_exchange_call *a, const struct tt_exchange_call *b)
{
    return a->peer == b->peer && a->sends == b->sends;
}

/* Messages of the exchange like this one. */
static int count_like(const struct tt_group_exchange *exchange, const struct tt_exchange_call *like)
{
    int n = 0;
    for (int i = 0; exchange && i < exchange->ncalls; i++) n += is_like(&exchange->calls[i], like);
    return n;
}

/* Whether the run begins as soon as its stream comes to it. Replays, and calls of communicators
 * that have the same share of the GPU, come between the calls of a rank in an order that is its
 * own. */
static bool begins_with_stream(const struct tuttiComm *comm)
{
    return run_of(comm)->one_stream && !tt_share_has_order(comm->on_gpu->place.share) &&
           is_ready(comm);
}

/* Whether the peer's run has as many messages for those of the rank like this one, and begins when
 * the rank's does. */
static bool are_answered(const struct tuttiComm *comm, const struct tt_exchange_call *like,
                         tuttiComm_t runs)
{
    const struct tt_exchange_call answer = {.peer = comm->rank, .sends = !like->sends};
    const struct tuttiComm *peer = runs;
    while (peer && (peer->fabric->segment != comm->fabric->segment || peer->rank != like->peer))
        peer = run_of(peer)->next;
    return peer && run_of(peer)->first->stream == run_of(comm)->first->stream &&
           begins_with_stream(peer) &&
           count_like(run_of(comm)->exchange, like) == count_like(run_of(peer)->exchange, &answer);
}

/* Whether the other end of each message of the run is in this group too, and begins with it: the
 * exchange then ends whatever other threads and processes do, and whatever the later groups are. */
static bool is_closed(const struct tuttiComm *comm, tuttiComm_t runs)
{
    const struct tt_group_exchange *exchange = run_of(comm)->exchange;
    for (int i = 0; exchange && i < exchange->ncalls; i++) {
        int first = 0;
        while (!is_like(&exchange->calls[first], &exchange->calls[i])) first++;
        if (first == i && !are_answered(comm, &exchange->calls[i], runs)) return false;
    }
    return true;
}

/* Whether the run may be in a team at all. */
static bool may_share(const struct tuttiComm *comm, tuttiComm_t runs)
{
    return begins_with_stream(comm) && is_closed(comm, runs);
}

/* Whether two such runs fit one another: the same collectives. All ranks call these in the same
 * order, so none waits for a later one. A segment is that of one communicator. */
static bool fit(const struct tuttiComm *a, const struct tuttiComm *b)
{
    return a->fabric->segment == b->fabric->segment && a->on_gpu->device == b->on_gpu->device &&
           a->on_gpu->nthreads == b->on_gpu->nthreads &&
           run_of(a)->first->stream == run_of(b)->first->stream &&
           run_of(a)->ncollectives == run_of(b)->ncollectives &&
           a->engine.collectives_issued == b->engine.collectives_issued;
}

/* From now on no order of the rank's share begins, which would not see the team's launch on another
 * stream. False: one has begun since may_share looked. */
static bool hold(const struct tuttiComm *comm)
{
    struct tt_launch_run *run = run_of(comm);
    if (!run->holds) run->holds = tt_share_hold(comm->on_gpu->place.share);
    return run->holds;
}

static void make_teams(tuttiComm_t runs)
{
    for (tuttiComm_t leader = runs; leader; leader = run_of(leader)->next) {
        struct tt_launch_run *first = run_of(leader);
        if (first->is_member || !may_share(leader, runs)) continue;
        tuttiComm_t *last = &first->member;
        for (tuttiComm_t comm = first->next; comm; comm = run_of(comm)->next) {
            if (first->nmembers == TT_DEVICE_MOST_CALLS) break;
            if (run_of(comm)->is_member || !fit(leader, comm) || !may_share(comm, runs)) continue;
            if (!hold(leader) || !hold(comm)) continue;
            run_of(comm)->is_member = true;
            first->nmembers++;
            *last = comm;
            last = &run_of(comm)->member;
        }
    }
}

/* ---- Launches ------------------------------------------------------------------------------- */

static void check(tuttiComm_t comm, tt_status status)
{
    if (status) tt_ignore(tt_comm_fail_call(comm, status));
}

static tt_status fill(const struct tt_pending_call *pending, struct tt_device_call *call)
{
    if (pending->kind == TT_WORK_EXCHANGE) {
        const struct tt_group_exchange *exchange = pending->exchange;
        if (!exchange->uses_peers) return tt_comm_fail_alone(pending->comm, exchange);
        return tt_comm_exchange_fill(pending, call);
    }
    if (!pending->uses_peers) return tt_comm_fail_alone(pending->comm, NULL);
    return tt_comm_device_fill(pending, call);
}

/* The next calls of a run, at most `most`. Returns how many blocks they have. */
static tt_status fill_run(struct tt_launch_run *run, int most, struct tt_device_batch *batch,
                          uint32_t first_block, uint32_t *nblocks)
{
    uint32_t before = batch->ncalls;
    for (int n = 0; run->at && n < most; run->at = run->at->next) {
        const int priority = tt_stream_priority((struct tt_stream *)run->at->stream);
        if (priority < batch->priority) batch->priority = priority;
        if (run->at->kind == TT_WORK_EXCHANGE && !run->at->is_first) continue;
        struct tt_device_call *call = &batch->calls[batch->ncalls];
        TT_TRY(fill(run->at, call));
        call->first_block = first_block;
        call->follows = n++ > 0;
        batch->ncalls++;
    }
    *nblocks = tt_device_run_blocks(batch, before, batch->ncalls);
    return TT_OK;
}

/* The next calls of all members. False: the communicator has failed. */
static bool fill_team(tuttiComm_t leader, struct tt_device_batch *batch)
{
    const int most = TT_DEVICE_MOST_CALLS / run_of(leader)->nmembers;
    uint32_t nblocks = 0, more;
    for (tuttiComm_t comm = leader; comm; comm = run_of(comm)->member, nblocks += more) {
        const tt_status status = fill_run(run_of(comm), most, batch, nblocks, &more);
        if (!status) continue;
        check(comm, status);
        return false;
    }
    return true;
}

static tt_status launch(const struct tt_comm_device *on, const struct tt_device_batch *batch)
{
    TT_TRY(tt_share_begin(on->place.share, on->stream));
    const tt_status status = tt_device_launch(on->device, on->stream, batch);
    const tt_status ended = tt_share_end(on->place.share, on->stream);
    return status ? status : ended;
}

/* Whether any member has calls that are not launched: one that exchanges messages has one more than
 * one that does not. */
static bool has_more(tuttiComm_t leader)
{
    tuttiComm_t comm = leader;
    while (comm && !run_of(comm)->at) comm = run_of(comm)->member;
    return comm;
}

static void drop_rest(tuttiComm_t leader)
{
    for (tuttiComm_t comm = leader; comm; comm = run_of(comm)->member) run_of(comm)->at = NULL;
}

/* True: there are more calls. */
static bool launch_next(tuttiComm_t leader)
{
    struct tt_device_batch batch = {.nthreads = leader->on_gpu->nthreads};
    if (tt_fabric_check(leader->fabric) || !fill_team(leader, &batch)) {
        drop_rest(leader);
        return false;
    }
    if (batch.ncalls) check(leader, launch(leader->on_gpu, &batch));
    return has_more(leader);
}

/* A member's stream comes before the leader's, or after it. */
static void follow_members(tuttiComm_t leader, bool before)
{
    void *leaders = leader->on_gpu->stream;
    struct tt_context *context = tt_device_context(leader->on_gpu->device);
    for (tuttiComm_t comm = run_of(leader)->member; comm; comm = run_of(comm)->member) {
        void *members = comm->on_gpu->stream;
        check(comm, tt_context_stream_follow(context, before ? leaders : members,
                                             before ? members : leaders));
    }
}

/* The user's streams come before the leader's, or after it. Without a stream nothing is after. */
static void follow_users(tuttiComm_t leader, bool before)
{
    const struct tt_comm_device *on = leader->on_gpu;
    struct tt_context *context = tt_device_context(on->device);
    const struct tt_pending_call *last = NULL, *call = on->run.first;
    for (; call; last = call, call = call->next) {
        void *users = tt_users_stream(call->stream);
        if ((last && last->stream == call->stream) || (!before && !call->stream)) continue;
        check(leader, tt_context_stream_follow(context, before ? on->stream : users,
                                               before ? users : on->stream));
    }
}

static void end_runs(tuttiComm_t runs)
{
    while (runs) {
        struct tt_comm_device *on = runs->on_gpu;
        runs = on->run.next;
        if (on->run.holds) tt_share_release(on->place.share);
        on->had_one_stream = on->run.one_stream;
        on->last_stream = on->run.first->stream;
        on->run = (struct tt_launch_run){.first = NULL};
    }
}

static void follow_all(tuttiComm_t runs, bool before)
{
    for (tuttiComm_t leader = runs; leader; leader = run_of(leader)->next) {
        if (run_of(leader)->is_member) continue;
        follow_members(leader, before);
        follow_users(leader, before);
    }
}

/* Whether the run must wait with its next launch: one of another communicator that takes turns has
 * not made all of its own. Else calls of a rank's two communicators might alternate, on each rank
 * in another way. turn: whose runs are launched now; NULL: of none yet. */
static bool is_not_its_turn(const struct tuttiComm *comm, const struct tuttiComm **turn)
{
    if (!tt_share_has_order(comm->on_gpu->place.share)) return false;
    if (!*turn) *turn = comm;
    return (*turn)->fabric->segment != comm->fabric->segment;
}

/* True: there are more launches. */
static bool launch_some(tuttiComm_t runs)
{
    const struct tuttiComm *turn = NULL;
    bool more = false;
    for (tuttiComm_t leader = runs; leader; leader = run_of(leader)->next) {
        if (run_of(leader)->is_member || !has_more(leader)) continue;
        if (is_not_its_turn(leader, &turn) || launch_next(leader)) more = true;
    }
    return more;
}

/* First all streams of ranks follow those of the user, then the kernels start, then the user's
 * streams follow: calls of several ranks on one stream do not wait for one another. Of long runs
 * the first calls of all ranks are launched first, then the next: CUDA may put streams behind one
 * another. */
void tt_comm_device_launch(struct tt_pending_call *calls, int ncalls)
{
    const tuttiComm_t runs = make_runs(calls, ncalls);
    make_teams(runs);
    follow_all(runs, true);
    while (launch_some(runs)) continue;
    follow_all(runs, false);
    end_runs(runs);
}
