/* See shares.h. */
#include "device/shares.h"

#include <stdlib.h>

#include "base/process_lock.h"
#include "driver/capture.h"

static struct tt_process_lock lock = TT_PROCESS_LOCK;

/* ---- Room ----------------------------------------------------------------------------------- */

/* So many communicators of a process get ENOUGH blocks a rank at least, on a GPU where one of them
 * may have all that it wants besides. */
enum { COMMUNICATORS = 8, ENOUGH = 8 };

static int count_teams(const struct tt_shares *shares)
{
    int n = 0;
    for (const struct tt_share_team *team = shares->teams; team; team = team->next) n++;
    return n;
}

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

/* How many blocks each rank of the team gets: at most half of those that are left, and at most
 * those that the communicators to come do not need, but ENOUGH where there are as many, and what
 * the team needs. 0: fewer are left than that. */
static int blocks_for(const struct tt_shares *shares, const struct tt_share_request *request)
{
    const int left = (shares->most - shares->taken) / request->nteam, wanted = request->wanted;
    const bool all_fit = shares->most / request->nteam >= (COMMUNICATORS - 1) * ENOUGH + wanted;
    const int to_come = COMMUNICATORS - 1 - count_teams(shares);
    if (left < request->least || shares->nkernels + request->nteam > shares->most_kernels) return 0;
    int most = left / 2;
    if (all_fit && to_come > 0) most = least_of(most, left - to_come * ENOUGH);
    if (most < ENOUGH) most = least_of(left, ENOUGH);
    if (most < request->least) return request->least;
    return least_of(most, wanted);
}

static void lower(int *most, int value)
{
    if (!*most || value < *most) *most = value;
}

/* The communicator's team, made by its first rank, which takes the shares of all of them: so all
 * have their own, or none has. */
static tt_status enter_team_locked(struct tt_shares *shares, const struct tt_share_request *request,
                                   struct tt_share_team **out)
{
    struct tt_share_team *team = shares->teams;
    while (team && team->id != request->team) team = team->next;
    if (!team) {
        team = calloc(1, sizeof *team);
        if (!team) return tt_fail(TT_ERR_SYSTEM, "out of memory for a communicator's ranks");
        *team = (struct tt_share_team){.id = request->team,
                                       .communicator = ++shares->ncommunicators,
                                       .nblocks = blocks_for(shares, request),
                                       .next = shares->teams};
        team->nunused = team->nblocks ? request->nteam : 0;
        shares->taken += team->nunused * team->nblocks;
        shares->nkernels += team->nunused;
        shares->teams = team;
    }
    team->nmembers++;
    *out = team;
    return TT_OK;
}

static void leave_team_locked(struct tt_shares *shares, struct tt_share_team *team)
{
    if (--team->nmembers) return;
    struct tt_share_team **at = &shares->teams;
    while (*at != team) at = &(*at)->next;
    *at = team->next;
    shares->taken -= team->nunused * team->nblocks;
    shares->nkernels -= team->nunused;
    free(team);
}

/* ---- A share of one's own, or another rank's ------------------------------------------------ */

static tt_status make_locked(struct tt_shares *shares, const struct tt_share_request *request,
                             struct tt_share_team *team, struct tt_share **out)
{
    struct tt_share *share = calloc(1, sizeof *share);
    if (!share) return tt_fail(TT_ERR_SYSTEM, "out of memory for a rank's share of a GPU");
    *share = (struct tt_share){.context = request->context,
                               .stream = request->stream,
                               .last = request->last,
                               .nblocks = team->nblocks,
                               .rank = request->rank,
                               .opener = request->opener,
                               .communicator = team->communicator,
                               .nusers = 1,
                               .next = shares->list};
    pthread_mutex_init(&share->lock, NULL);
    pthread_cond_init(&share->released, NULL);
    team->nunused--;
    shares->list = share;
    *out = share;
    return TT_OK;
}

static bool is_of(const struct tt_share *share, uint64_t communicator, uint64_t opener)
{
    return share->communicator == communicator && share->opener == opener;
}

static int count_of(const struct tt_shares *shares, uint64_t communicator, uint64_t opener)
{
    int n = 0;
    for (const struct tt_share *share = shares->list; share; share = share->next)
        n += is_of(share, communicator, opener);
    return n;
}

/* Of the shares that the thread opened for ranks of a communicator, that of the place-th rank. The
 * communicator is the oldest with enough of them: every rank of the process finds the same. */
static struct tt_share *find_opened(const struct tt_shares *shares,
                                    const struct tt_share_request *request)
{
    uint64_t communicator = 1;
    while (communicator <= shares->ncommunicators &&
           count_of(shares, communicator, request->opener) < request->nopened)
        communicator++;
    for (struct tt_share *share = shares->list; share; share = share->next) {
        int nbefore = 0;
        if (!is_of(share, communicator, request->opener)) continue;
        for (const struct tt_share *other = shares->list; other; other = other->next)
            nbefore += is_of(other, communicator, request->opener) && other->rank < share->rank;
        if (nbefore == request->place) return share;
    }
    return NULL;
}

static tt_status join_locked(const struct tt_shares *shares, const struct tt_share_request *request,
                             const struct tt_share_team *team, struct tt_share **out)
{
    struct tt_share *share = request->parent ? request->parent : find_opened(shares, request);
    if (!share || share->joined == team->communicator || share->nblocks < request->least)
        return tt_fail(TT_ERR_USAGE,
                       "communicators of this process have %d of the %d blocks of threads, and %d "
                       "of the %d kernels, that it may run on GPU %d at the same time; %d more "
                       "ranks need %d blocks each, and there is no communicator with whose ranks "
                       "they could take turns: use tuttiCommSplit, make each rank's communicators "
                       "in one thread, or fewer of them, or lower TUTTI_DEVICE_CHANNELS",
                       shares->taken, shares->most, shares->nkernels, shares->most_kernels,
                       tt_context_gpu(request->context), request->nteam, request->least);
    TT_TRY(tt_share_begin_order(share));
    share->joined = team->communicator;
    share->nusers++;
    *out = share;
    return TT_OK;
}

/* The process's part of the GPU, for its ranks among all those of the communicator. Where the
 * process has all of these, others have none; and other processes' ranks of a communicator that was
 * split off were its parent's. */
static void limit_locked(struct tt_shares *shares, const struct tt_share_request *request)
{
    lower(&shares->most, shares->capacity);
    lower(&shares->most_kernels, TT_MOST_KERNELS);
    if (request->parent || request->nteam == request->nranks) return;
    lower(&shares->most, request->capacity / request->nranks * request->nteam);
    lower(&shares->most_kernels, TT_MOST_KERNELS / request->nranks * request->nteam);
}

static tt_status open_locked(struct tt_shares *shares, const struct tt_share_request *request,
                             struct tt_share_place *place)
{
    limit_locked(shares, request);
    if (shares->taken > shares->most)
        return tt_fail(TT_ERR_USAGE,
                       "communicators of this process have %d blocks of threads on GPU %d; its "
                       "ranks' part of the GPU, which other processes use too, is %d: make the "
                       "communicator of all processes first",
                       shares->taken, tt_context_gpu(request->context), shares->most);
    struct tt_share_team *team = NULL;
    struct tt_share *share = NULL;
    TT_TRY(enter_team_locked(shares, request, &team));
    const bool joins = !team->nblocks;
    const tt_status status = joins ? join_locked(shares, request, team, &share)
                                   : make_locked(shares, request, team, &share);
    if (status)
        leave_team_locked(shares, team);
    else
        *place = (struct tt_share_place){.share = share, .team = team, .takes_turns = joins};
    return status;
}

tt_status tt_share_open(struct tt_shares *shares, const struct tt_share_request *request,
                        struct tt_share_place *place)
{
    tt_process_lock(&lock);
    const tt_status status = open_locked(shares, request, place);
    tt_process_unlock(&lock);
    return status;
}

static void destroy_locked(struct tt_shares *shares, struct tt_share *share)
{
    struct tt_share **at = &shares->list;
    while (*at != share) at = &(*at)->next;
    *at = share->next;
    shares->taken -= share->nblocks;
    shares->nkernels--;
    if (share->order) tt_context_event_destroy(share->context, share->order);
    pthread_cond_destroy(&share->released);
    pthread_mutex_destroy(&share->lock);
    free(share);
}

void tt_share_close(struct tt_shares *shares, struct tt_share_place *place)
{
    if (!place->share) return;
    tt_process_lock(&lock);
    if (place->is_lost) atomic_fetch_sub(&place->share->nlost, 1);
    place->is_lost = false;
    if (!--place->share->nusers) destroy_locked(shares, place->share);
    leave_team_locked(shares, place->team);
    tt_process_unlock(&lock);
    place->share = NULL;
}

/* ---- Order ---------------------------------------------------------------------------------- */

void tt_share_lose_order(struct tt_share_place *place)
{
    if (!place->is_lost) atomic_fetch_add(&place->share->nlost, 1);
    place->is_lost = true;
}

static tt_status check_order(const struct tt_share *share)
{
    if (!atomic_load(&share->nlost)) return TT_OK;
    return tt_fail(TT_ERR_DEVICE,
                   "GPU %d: the driver did not record the end of a kernel of another communicator "
                   "of this process, which shares its part of the GPU with this one: abort or "
                   "destroy that one, which has failed, first",
                   tt_context_gpu(share->context));
}

tt_status tt_share_begin_order(struct tt_share *share)
{
    void *order;
    pthread_mutex_lock(&share->lock);
    while (share->nholds) pthread_cond_wait(&share->released, &share->lock);
    tt_status status = check_order(share);
    if (!share->order && !status) status = tt_context_event_create(share->context, &order);
    if (!share->order && !status) { /* what the first user has launched comes before */
        status = tt_context_event_wait(share->context, share->last, share->stream);
        if (!status) status = tt_context_event_record(share->context, order, share->stream);
        if (status)
            tt_context_event_destroy(share->context, order);
        else
            share->order = order;
    }
    pthread_mutex_unlock(&share->lock);
    return status;
}

bool tt_share_has_order(struct tt_share *share)
{
    pthread_mutex_lock(&share->lock);
    const bool has = share->order;
    pthread_mutex_unlock(&share->lock);
    return has;
}

bool tt_share_hold(struct tt_share *share)
{
    pthread_mutex_lock(&share->lock);
    const bool holds = !share->order;
    share->nholds += holds;
    pthread_mutex_unlock(&share->lock);
    return holds;
}

void tt_share_release(struct tt_share *share)
{
    pthread_mutex_lock(&share->lock);
    share->nholds--;
    pthread_cond_broadcast(&share->released);
    pthread_mutex_unlock(&share->lock);
}

tt_status tt_share_begin(struct tt_share *share, void *stream)
{
    pthread_mutex_lock(&share->lock);
    tt_status status = check_order(share);
    if (share->order && !status)
        status = tt_context_event_wait(share->context, share->order, stream);
    if (status) pthread_mutex_unlock(&share->lock);
    return status;
}

tt_status tt_share_end(struct tt_share_place *place, void *stream)
{
    struct tt_share *share = place->share;
    tt_status status = TT_OK;
    if (share->order) status = tt_context_event_record(share->context, share->order, stream);
    if (status) tt_share_lose_order(place);
    pthread_mutex_unlock(&share->lock);
    return status;
}

void *tt_share_captured(struct tt_share *share, uint64_t capture)
{
    void *node = NULL;
    pthread_mutex_lock(&share->lock);
    for (int i = 0; i < TT_MOST_CAPTURES; i++)
        if (share->captures[i].id == capture) node = share->captures[i].last;
    pthread_mutex_unlock(&share->lock);
    return node;
}

void tt_share_capture(struct tt_share *share, uint64_t capture, void *node)
{
    int at = 0;
    pthread_mutex_lock(&share->lock);
    while (at < TT_MOST_CAPTURES && share->captures[at].id != capture) at++;
    if (at == TT_MOST_CAPTURES) at = share->ncaptures++ % TT_MOST_CAPTURES;
    share->captures[at].id = capture;
    share->captures[at].last = node;
    pthread_mutex_unlock(&share->lock);
}
