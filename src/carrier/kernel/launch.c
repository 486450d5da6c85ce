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
 * A run whose calls are on one stream of the user is launched on that stream: no other stream
 * waits, so no hardware queue is held up (docs/cuda-measured.md). Two kinds of runs are launched on
 * the rank's own stream, which follows the user's streams and is followed by them: a run of several
 * streams or of none; and each of several runs that have the same stream and are no team, because
 * there one kernel would wait behind another that waits for it. Each launch records the rank's
 * event `last`, for which the next launch waits if it is on another stream.
 *
 * A launch begins when all its ranks can begin, and what follows one of its calls waits for all of
 * its calls. Ranks share a launch only where that makes no rank wait for work that waits for this
 * rank (may_share). So a kernel never waits for one that cannot run. */
#include "carrier/gpu_stream.h"
#include "carrier/kernel/exchange.h"
#include "carrier/kernel/kernel.h"
#include "device/device.h"
#include "driver/capture.h"

/* ---- Runs ----------------------------------------------------------------------------------- */

static struct tt_launch_run *run_of(const struct tt_comm_core *comm)
{
    return &comm->kernel->run;
}

static uint64_t number_of(const struct tt_pending_call *call)
{
    return call->exchange ? call->exchange->number
                          : ((const struct tt_kernel_work *)call->work)->number;
}

/* Adds the call to its rank's run. True: it is the first. */
static bool add_call(struct tt_pending_call *call)
{
    struct tt_launch_run *run = run_of(call->comm);
    const bool first = !run->first;
    if (first)
        *run = (struct tt_launch_run){
            .last = &run->first, .begins = number_of(call), .one_stream = true, .nmembers = 1};
    call->next_of_run = NULL;
    *run->last = call;
    run->last = &call->next_of_run;
    run->ncollectives += call->kind == TT_CALL_COLLECTIVE;
    if (call->exchange) run->exchange = call->exchange;
    run->one_stream = run->one_stream && call->stream == run->first->stream;
    run->at = run->first;
    return first;
}

static bool is_refused(const struct tt_comm_core *comm)
{
    return comm->kernel->refusal.text[0];
}

/* The runs of all ranks, in the order of their first calls. Where one call of a rank is refused,
 * all of its group are: they have no run. */
static struct tt_comm_core *make_runs(const struct tt_calls *calls)
{
    struct tt_comm_core *first = NULL, **last = &first;
    for (struct tt_pending_call *call = calls->first; call; call = call->next) {
        if (is_refused(call->comm)) {
            tt_kernel_refuse((struct tt_kernel_work *)call->work, &call->comm->kernel->refusal);
            continue;
        }
        if (!add_call(call)) continue;
        *last = call->comm;
        last = &run_of(call->comm)->next;
    }
    return first;
}

/* 0: the run has no stream of its own. The per-thread default stream is another one for each thread
 * that calls. */
static uint64_t number_of_stream(const struct tt_launch_run *run)
{
    const struct tt_gpu_stream *stream = tt_gpu_stream_of(run->first->stream);
    return run->one_stream && stream && !stream->facts.is_each_threads ? stream->number : 0;
}

/* ---- Teams ---------------------------------------------------------------------------------- */

/* Whether the rank's calls before have ended, or are on the stream of the run: a launch of several
 * ranks then waits for nothing that it would not wait for alone. */
static bool is_ready(const struct tt_comm_core *comm)
{
    const struct tt_kernel_part *on = comm->kernel;
    const uint64_t number = number_of_stream(&on->run);
    if (number && on->last_stream == number) return true;
    return __atomic_load_n(&on->life.report->ended, __ATOMIC_ACQUIRE) + 1 >= on->run.begins;
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
static bool begins_with_stream(const struct tt_comm_core *comm)
{
    return run_of(comm)->one_stream && !tt_share_has_order(comm->kernel->place.share) &&
           is_ready(comm);
}

/* Whether the peer's run has as many messages for those of the rank like this one, and begins when
 * the rank's does. */
static bool are_answered(const struct tt_comm_core *comm, const struct tt_exchange_call *like,
                         struct tt_comm_core *runs)
{
    const struct tt_exchange_call answer = {.peer = comm->rank, .sends = !like->sends};
    const struct tt_comm_core *peer = runs;
    while (peer && (peer->fabric->segment != comm->fabric->segment || peer->rank != like->peer))
        peer = run_of(peer)->next;
    return peer && run_of(peer)->first->stream == run_of(comm)->first->stream &&
           begins_with_stream(peer) &&
           count_like(run_of(comm)->exchange, like) == count_like(run_of(peer)->exchange, &answer);
}

/* Whether the other end of each message of the run is in this group too, and begins with it: the
 * exchange then ends whatever other threads and processes do, and whatever the later groups are. */
static bool is_closed(const struct tt_comm_core *comm, struct tt_comm_core *runs)
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
static bool may_share(const struct tt_comm_core *comm, struct tt_comm_core *runs)
{
    return begins_with_stream(comm) && is_closed(comm, runs);
}

/* Whether two such runs fit one another: the same collectives. All ranks call these in the same
 * order, so none waits for a later one. A segment is that of one communicator. */
static bool fit(const struct tt_comm_core *a, const struct tt_comm_core *b)
{
    return a->fabric->segment == b->fabric->segment && a->kernel->device == b->kernel->device &&
           a->kernel->nthreads == b->kernel->nthreads &&
           run_of(a)->first->stream == run_of(b)->first->stream &&
           run_of(a)->ncollectives == run_of(b)->ncollectives &&
           a->engine.collectives_issued == b->engine.collectives_issued;
}

/* From now on no order of the rank's share begins, which would not see the team's launch on another
 * stream. False: one has begun since may_share looked. */
static bool hold(const struct tt_comm_core *comm)
{
    struct tt_launch_run *run = run_of(comm);
    if (!run->holds) run->holds = tt_share_hold(comm->kernel->place.share);
    return run->holds;
}

/* A team has fewer calls of each rank in a launch than a run alone: a long run is in a small team
 * or in none, so that a group with the most calls that are allowed never waits for its own launches
 * (tt_launches_check). Messages are one call more. */
static bool may_grow(const struct tt_launch_run *leader)
{
    return leader->nmembers < TT_DEVICE_MOST_CALLS &&
           tt_launches_fit(leader->ncollectives + 1, leader->nmembers + 1);
}

static void make_teams(struct tt_comm_core *runs)
{
    for (struct tt_comm_core *leader = runs; leader; leader = run_of(leader)->next) {
        struct tt_launch_run *first = run_of(leader);
        if (first->is_member || !may_share(leader, runs)) continue;
        struct tt_comm_core **last = &first->member;
        for (struct tt_comm_core *comm = first->next; comm; comm = run_of(comm)->next) {
            if (!may_grow(first)) break;
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

static void check(struct tt_comm_core *comm, tt_status status)
{
    if (status) tt_ignore(tt_core_fail_call(comm, status));
}

static tt_status fill(const struct tt_pending_call *pending, struct tt_device_call *call)
{
    if (!pending->uses_peers)
        return tt_kernel_fail_alone(pending->comm, pending->exchange,
                                    pending->exchange ? TT_NO_TURN : pending->work->turn);
    if (!pending->exchange) return tt_kernel_fill(pending, number_of(pending), call);
    TT_TRY(tt_kernel_fill_exchange(pending, call));
    tt_launching_exchange(&pending->comm->kernel->launching, pending->exchange);
    return TT_OK;
}

/* The next calls of a run, at most `most`. Returns how many blocks they have. */
static tt_status fill_run(struct tt_launch_run *run, int most, struct tt_device_batch *batch,
                          uint32_t first_block, uint32_t *nblocks)
{
    uint32_t before = batch->ncalls;
    for (int n = 0; run->at && n < most; run->at = run->at->next_of_run) {
        const int priority = tt_gpu_stream_priority(run->at->stream);
        if (priority < batch->priority) batch->priority = priority;
        if (run->at->exchange && !run->at->is_first) continue;
        struct tt_device_call *call = &batch->calls[batch->ncalls];
        TT_TRY(fill(run->at, call));
        call->first_block = first_block;
        call->follows = n++ > 0;
        batch->ncalls++;
        run->at->comm->kernel->launches.last = number_of(run->at);
    }
    *nblocks = tt_device_run_blocks(batch, before, batch->ncalls);
    return TT_OK;
}

/* The next calls of all members. False: the communicator has failed. */
static bool fill_team(struct tt_comm_core *leader, struct tt_device_batch *batch)
{
    const int most = tt_calls_in_launch(run_of(leader)->nmembers);
    uint32_t nblocks = 0, more;
    for (struct tt_comm_core *comm = leader; comm; comm = run_of(comm)->member, nblocks += more) {
        const tt_status status = fill_run(run_of(comm), most, batch, nblocks, &more);
        if (!status) continue;
        check(comm, status);
        return false;
    }
    return true;
}

/* The stream on which the leader's team is launched. */
static void *stream_of(const struct tt_comm_core *leader)
{
    const struct tt_launch_run *run = &leader->kernel->run;
    return run->is_direct ? tt_gpu_stream_handle(run->first->stream) : leader->kernel->stream;
}

/* The number of that stream; 0: the rank's own. */
static uint64_t number_of_launch(const struct tt_comm_core *leader)
{
    const struct tt_launch_run *run = &leader->kernel->run;
    return run->is_direct ? number_of_stream(run) : 0;
}

/* After the calls before of each member, wherever these were launched. */
static tt_status follow_last(const struct tt_comm_core *leader)
{
    struct tt_context *context = leader->context;
    const uint64_t number = number_of_launch(leader);
    for (const struct tt_comm_core *comm = leader; comm; comm = run_of(comm)->member) {
        const struct tt_kernel_part *on = comm->kernel;
        const bool is_behind = on->last_stream == number && (number || comm == leader);
        if (!is_behind) TT_TRY(tt_context_event_wait(context, on->last, stream_of(leader)));
    }
    return TT_OK;
}

static tt_status copy_before(const struct tt_comm_core *leader)
{
    for (const struct tt_comm_core *comm = leader; comm; comm = run_of(comm)->member) {
        const struct tt_context_copy *copies = run_of(comm)->copies;
        run_of(comm)->copies = NULL;
        TT_TRY(tt_context_copy_before(leader->context, stream_of(leader), copies));
    }
    return TT_OK;
}

/* The kernel of the launch runs, whether the events are recorded or not. */
static tt_status record_last(const struct tt_comm_core *leader)
{
    struct tt_context *context = leader->context;
    tt_status status = TT_OK;
    for (const struct tt_comm_core *comm = leader; comm; comm = run_of(comm)->member) {
        struct tt_kernel_part *on = comm->kernel;
        const tt_status recorded = tt_context_event_record(context, on->last, stream_of(leader));
        if (recorded) {
            status = recorded;
            atomic_store_explicit(&on->life.unrecorded, on->launches.last, memory_order_relaxed);
            tt_share_lose_order(&on->place);
        }
        /* What is on another rank's own stream is behind nothing of this one's. */
        on->last_stream =
            comm == leader || number_of_launch(leader) ? number_of_launch(leader) : UINT64_MAX;
        on->launches.ends[on->launches.number++ % TT_MOST_LAUNCHES] = on->launches.last;
    }
    return status;
}

static tt_status launch(const struct tt_comm_core *leader, const struct tt_device_batch *batch)
{
    struct tt_share_place *place = &leader->kernel->place;
    TT_TRY(follow_last(leader));
    TT_TRY(copy_before(leader));
    TT_TRY(tt_share_begin(place->share, stream_of(leader)));
    tt_context_begin_work(leader->context);
    tt_status status = tt_device_launch(leader->kernel->device, stream_of(leader), batch);
    /* Before the end of its turn: an order that begins then comes after what was recorded. */
    if (!status) status = record_last(leader);
    tt_context_end_work(leader->context);
    const tt_status ended = tt_share_end(place, stream_of(leader));
    return status ? status : ended;
}

/* Whether any member has calls that are not launched: one that exchanges messages has one more than
 * one that does not. */
static bool has_more(struct tt_comm_core *leader)
{
    struct tt_comm_core *comm = leader;
    while (comm && !run_of(comm)->at) comm = run_of(comm)->member;
    return comm;
}

static void drop_rest(struct tt_comm_core *leader)
{
    for (struct tt_comm_core *comm = leader; comm; comm = run_of(comm)->member)
        run_of(comm)->at = NULL;
}

/* True: there are more calls. */
static bool launch_next(struct tt_comm_core *leader)
{
    struct tt_device_batch batch = {.nthreads = leader->kernel->nthreads};
    if (tt_fabric_check(leader->fabric) || !fill_team(leader, &batch)) {
        drop_rest(leader);
        return false;
    }
    if (batch.ncalls) check(leader, launch(leader, &batch));
    return has_more(leader);
}

/* ---- Around the launches -----------------------------------------------------------------------
 */

/* Between two rounds of launches, when all ranks of the group have theirs. */
static void await_all(struct tt_comm_core *runs, const struct tt_calls *calls)
{
    for (struct tt_comm_core *comm = runs; comm; comm = run_of(comm)->next)
        tt_launches_await_room(comm, calls);
}

/* Streams of the user whose team is launched on the rank's own stream come before that, or after
 * it. For calls without a stream that stream follows the legacy one already (carrier.c), and
 * nothing is after. */
static void follow_users(struct tt_comm_core *leader, bool before)
{
    const struct tt_kernel_part *on = leader->kernel;
    struct tt_context *context = leader->context;
    const struct tt_pending_call *last = NULL, *call = on->run.first;
    for (; call; last = call, call = call->next_of_run) {
        void *users = tt_gpu_stream_handle(call->stream);
        if (!call->stream || (last && last->stream == call->stream)) continue;
        check(leader, before ? tt_context_stream_follow(context, on->stream, users)
                             : tt_context_event_wait(context, on->last, users));
    }
}

static void end_runs(struct tt_comm_core *runs)
{
    while (runs) {
        struct tt_kernel_part *on = runs->kernel;
        runs = on->run.next;
        if (on->run.holds) tt_share_release(on->place.share);
        on->run = (struct tt_launch_run){.first = NULL};
    }
}

static void follow_all(struct tt_comm_core *runs, bool before)
{
    for (struct tt_comm_core *leader = runs; leader; leader = run_of(leader)->next)
        if (!run_of(leader)->is_member && !run_of(leader)->is_direct) follow_users(leader, before);
}

/* Whether another run of the group, of no member of the team, has the leader's stream, or one that
 * waits for it. */
static bool is_stream_shared(const struct tt_comm_core *leader, const struct tt_comm_core *runs)
{
    const struct tt_stream *stream = run_of(leader)->first->stream;
    for (const struct tt_comm_core *comm = runs; comm; comm = run_of(comm)->next) {
        if (comm == leader || run_of(comm)->is_member) continue;
        for (const struct tt_pending_call *call = run_of(comm)->first; call;
             call = call->next_of_run)
            if (tt_gpu_streams_wait(call->stream, stream)) return true;
    }
    return false;
}

/* Members of other teams are among the runs of a shared stream: their leaders have it too. */
static void choose_streams(struct tt_comm_core *runs)
{
    for (struct tt_comm_core *leader = runs; leader; leader = run_of(leader)->next) {
        struct tt_launch_run *run = run_of(leader);
        run->is_direct =
            !run->is_member && number_of_stream(run) && !is_stream_shared(leader, runs);
    }
}

/* Whether the run must wait with its next launch: one of another communicator that takes turns has
 * not made all of its own. Else calls of a rank's two communicators might alternate, on each rank
 * in another way. turn: whose runs are launched now; NULL: of none yet. */
static bool is_not_its_turn(const struct tt_comm_core *comm, const struct tt_comm_core **turn)
{
    if (!tt_share_has_order(comm->kernel->place.share)) return false;
    if (!*turn) *turn = comm;
    return !tt_fabric_is_same((*turn)->fabric, comm->fabric);
}

/* True: there are more launches. */
static bool launch_some(struct tt_comm_core *runs)
{
    const struct tt_comm_core *turn = NULL;
    bool more = false;
    for (struct tt_comm_core *leader = runs; leader; leader = run_of(leader)->next) {
        if (run_of(leader)->is_member || !has_more(leader)) continue;
        if (is_not_its_turn(leader, &turn) || launch_next(leader)) more = true;
    }
    return more;
}

/* First own streams of ranks follow those of the user, then the kernels start, then the user's
 * streams follow: calls of several ranks on one stream do not wait for one another. Of long runs
 * the first calls of all ranks are launched first, then the next: CUDA may put streams behind one
 * another. */
void tt_kernel_launch(struct tt_calls *calls)
{
    struct tt_comm_core *const runs = make_runs(calls);
    make_teams(runs);
    choose_streams(runs);
    follow_all(runs, true);
    while (launch_some(runs)) await_all(runs, calls);
    follow_all(runs, false);
    end_runs(runs);
    for (const struct tt_pending_call *call = calls->first; call; call = call->next)
        if (!is_refused(call->comm)) tt_launches_await_room(call->comm, calls);
}
