/* The model of tutti-plan cost: its sums beside sums made here by hand, what must grow with what,
 * and the times that one H100 took. */
#include <math.h>
#include <stdio.h>

#include "algorithms/costs.h"
#include "algorithms/h100.h"
#include "base/hosts.h"
#include "cost/staged.h"
#include "cost/walk.h"
#include "shim.h"

enum { KIB = 1024, MIB = 1 << 20, THREADS = 512 };

/* Of the least time here, what the library chooses between hosts takes at most. */
static const double MOST_OFF = 1.25;

static const struct tt_algorithm *find(const char *name)
{
    return tt_algorithm_find(TT_ALL_REDUCE, name);
}

static struct cost_call call_of(const char *algorithm, const struct cost_link *link, int nranks,
                                int nblocks, size_t nbytes)
{
    return (struct cost_call){.algorithm = find(algorithm),
                              .link = link,
                              .nranks = nranks,
                              .nblocks = nblocks,
                              .nthreads = THREADS,
                              .nbytes = nbytes};
}

/* Walks, and checks what holds for every walk. */
static double walk(const struct cost_call *call, struct cost_walk *out)
{
    struct cost_walk walk;
    const tt_status status = cost_walk(call, &walk);
    CHECK_MESSAGE(!status, "%s", tt_last_error());
    if (status) return NAN;
    double sum = 0, least = INFINITY;
    for (int i = 0; i < walk.nsteps; i++) {
        const struct cost_step *step = &walk.steps[i];
        double limits = 0;
        for (int k = 0; k < COST_NLIMITS; k++) limits += step->limit_us[k];
        CHECK(fabs(limits - step->data_us) <= 1e-9 * (1 + limits));
        sum += step->wait_us + step->fixed_us + step->fence_us + step->data_us;
        least = fmin(
            least, fmin(fmin(step->wait_us, step->fixed_us), fmin(step->fence_us, step->data_us)));
    }
    CHECK_MESSAGE(!walk.nsteps || least >= 0, "%s: %g us", call->algorithm->name, least);
    CHECK_MESSAGE(fabs(walk.call_us + sum - walk.us) <= 1e-9 * walk.us,
                  "%s: %g and %g are not %g us", call->algorithm->name, walk.call_us, sum, walk.us);
    CHECK_MESSAGE(walk.net_us <= walk.us && walk.proxy_us <= walk.us,
                  "%s: the network alone takes %g us, a proxy %g, of %g", call->algorithm->name,
                  walk.net_us, walk.proxy_us, walk.us);
    CHECK_MESSAGE(walk.link_us <= walk.us, "%s: the link alone takes %g of %g us",
                  call->algorithm->name, walk.link_us, walk.us);
    cost_walk_free(&walk);
    if (out) *out = walk;
    return walk.us;
}

/* ---- By hand -------------------------------------------------------------------------------- */

static double value(enum cost_key key)
{
    return cost_constants[key].value;
}

/* A step in slots, with a fence if it sends: sources and targets of `piece` bytes, of the targets
 * `away` on other GPUs. */
static double step_us(const struct cost_link *link, int nblocks, double piece, int messages,
                      int sources, int targets, int away, int taken)
{
    const double fence = away ? link->at[COST_FENCE].value : 0;
    const double on_the_way = 128.0 * THREADS;
    const double block = piece / on_the_way * (sources * 0.87 + targets * 0.4);
    const double wire = nblocks * piece * away / (link->at[COST_BANDWIDTH].value * 1e3);
    const double memory =
        nblocks * piece * (sources + targets - away + taken) / (link->at[COST_MEMORY].value * 1e3);
    return 2.4 + 0.2 * messages + fence + fmax(block, fmax(wire, memory));
}

/* n - 1 sends, a fold of all that sends to all, n - 1 copies; what is waited for is the last
 * message of the sends, and the first of the folds. */
static double two_shot_us(const struct cost_call *call, int nblocks, double piece, double nrounds)
{
    const int n = call->nranks;
    const double hop = 1.0 + 0.6 + call->link->at[COST_LATENCY].value;
    const double sends = (n - 1) * step_us(call->link, nblocks, piece, 1, 1, 1, 1, 0);
    const double folds = step_us(call->link, nblocks, piece, 2 * (n - 1), n, n, n - 1, n - 1);
    const double copies = (n - 1) * step_us(call->link, nblocks, piece, 1, 1, 1, 0, 1);
    return 9.7 + nrounds * (sends + hop + folds + hop + copies);
}

TEST(cost, a_call_is_the_sum_that_is_made_by_hand)
{
    static const char *const links[] = {"nvlink3", "nvlink4", "nvlink5", "pcie4", "pcie5"};
    for (size_t l = 0; l < sizeof links / sizeof *links; l++)
        for (int nranks = 4; nranks <= 8; nranks += 4)
            for (int nblocks = 2; nblocks <= 32; nblocks *= 4) {
                /* 8 rounds of a whole slot. */
                const size_t nbytes = (size_t)nranks * (size_t)nblocks * 8 * 128 * KIB;
                const struct cost_call call =
                    call_of("two_shot", cost_link_find(links[l]), nranks, nblocks, nbytes);
                struct cost_walk got;
                const double us = walk(&call, &got);
                CHECK_EQ(got.nblocks, nblocks);
                CHECK_EQ(got.nrounds, 8);
                CHECK_EQ(got.fences, 8 * nranks); /* as tests/device/traffic_test.c counts them */
                CHECK(!got.lines);
                const double piece = 128 * KIB;
                const double expected = two_shot_us(&call, nblocks, piece, 8);
                CHECK_MESSAGE(fabs(us - expected) <= 1e-6 * expected,
                              "%s, %d ranks, %d blocks: %.3f, not %.3f us", links[l], nranks,
                              nblocks, us, expected);
                const double moved = 2.0 * (nranks - 1) / nranks * (double)nbytes;
                const double wire = moved / (call.link->at[COST_BANDWIDTH].value * 1e3);
                CHECK_MESSAGE(fabs(got.link_us - wire) <= 1e-6 * wire, "%.3f, not %.3f us",
                              got.link_us, wire);
            }
}

/* Lines: two steps of 7 messages, one wait, two words. */
TEST(cost, eight_bytes_are_two_steps_and_a_flag)
{
    const struct cost_call call = call_of("parallel", cost_link_find("nvlink4"), 8, 32, 8);
    struct cost_walk got;
    const double us = walk(&call, &got);
    const double by_hand = 9.7 + 2 * (2.4 + 7 * 0.2) + 1.0 + 0.5;
    CHECK(got.lines);
    CHECK_EQ(got.nsteps, 2);
    CHECK_MESSAGE(us > by_hand && us < by_hand + 0.1, "%.3f, not %.3f us", us, by_hand);
}

/* In slots a step that sends has a fence, and a meeting; what was read last may take one more. The
 * virtual GPU counts the kernel's (tests/device/traffic_test.c). */
TEST(cost, fences_are_those_of_the_kernel)
{
    enum { RANKS = 4 };
    static const struct {
        enum tt_collective collective;
        const char *name;
        int sending; /* steps and meetings of the busiest rank */
    } rows[] = {{TT_ALL_REDUCE, "ring", 2 * (RANKS - 1)},   {TT_ALL_REDUCE, "two_shot", RANKS},
                {TT_ALL_REDUCE, "meet_two_shot", 2},        {TT_ALL_GATHER, "ring", RANKS - 1},
                {TT_REDUCE_SCATTER, "parallel", RANKS - 1}, {TT_BROADCAST, "chain", 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cost_call call = call_of("ring", cost_link_find("nvlink4"), RANKS, 32, 64 * MIB);
        struct cost_walk got;
        call.algorithm = tt_algorithm_find(rows[i].collective, rows[i].name);
        walk(&call, &got);
        const unsigned long long rounds = got.nrounds, sending = (unsigned)rows[i].sending;
        CHECK(!got.lines && rounds > 1);
        CHECK_MESSAGE(got.fences <= rounds * (sending + 1) &&
                          got.fences + rounds >= rounds * sending,
                      "%s: %llu fences in %llu rounds, %llu a round by hand", rows[i].name,
                      got.fences, rounds, sending);
    }
}

/* ---- What holds for all --------------------------------------------------------------------- */

TEST(cost, every_algorithm_ends)
{
    const struct tt_algorithm *algorithm;
    for (int c = 0; c < TT_NCOLLECTIVES; c++)
        for (int i = 0; (algorithm = tt_algorithm_at((enum tt_collective)c, i)) != NULL; i++)
            for (int nranks = 1; nranks <= 9 && !algorithm->parts; nranks++) {
                const struct tt_shape shape = {.collective = (enum tt_collective)c,
                                               .nranks = nranks};
                if (tt_refusal(algorithm, &shape)) continue;
                for (size_t nbytes = 64; nbytes <= 16 * MIB; nbytes *= 512) {
                    struct cost_call call =
                        call_of("ring", cost_link_find("nvlink4"), nranks, 8, nbytes);
                    call.algorithm = algorithm;
                    CHECK(walk(&call, NULL) >= value(COST_CALL));
                    call.link = cost_link_find("gpu");
                    CHECK(walk(&call, NULL) >= value(COST_CALL));
                }
            }
}

TEST(cost, more_bytes_take_longer_and_faster_links_less_long)
{
    static const char *const names[] = {"ring", "two_shot", "parallel", "tree", "meet_two_shot"};
    for (size_t a = 0; a < sizeof names / sizeof *names; a++) {
        double before = 0;
        for (size_t nbytes = 4 * MIB; nbytes <= 256 * MIB; nbytes *= 2) {
            struct cost_link link = *cost_link_find("nvlink4");
            struct cost_call call = call_of(names[a], &link, 8, 32, nbytes);
            const double us = walk(&call, NULL);
            CHECK_MESSAGE(us > before, "%s: %g us, before %g", names[a], us, before);
            before = us;
            link.at[COST_BANDWIDTH].value *= 2;
            const double wider = walk(&call, NULL);
            CHECK_MESSAGE(wider <= us, "%s: %g us, with half the bandwidth %g", names[a], wider,
                          us);
            link.at[COST_LATENCY].value += 10;
            CHECK(walk(&call, NULL) > wider);
            call.nblocks = 8;
            CHECK(walk(&call, NULL) > us);
        }
    }
    const struct cost_call nvlink =
        call_of("two_shot", cost_link_find("nvlink4"), 8, 32, 256 * MIB);
    struct cost_call other = nvlink;
    other.link = cost_link_find("nvlink5");
    CHECK(walk(&other, NULL) < walk(&nvlink, NULL));
    other.link = cost_link_find("pcie4");
    CHECK(walk(&other, NULL) > 5 * walk(&nvlink, NULL));
}

TEST(cost, names_a_kind_and_a_source_for_every_constant)
{
    const struct cost_link *link;
    for (int i = 0; i < COST_NKEYS; i++)
        CHECK(cost_constants[i].name && cost_constants[i].unit && cost_constants[i].source);
    for (int l = 0; (link = cost_link_at(l)) != NULL; l++) {
        CHECK(cost_link_find(link->name) == link);
        for (int i = 0; i < COST_NLINK_KEYS; i++)
            CHECK(!link->at[i].name ||
                  (link->at[i].unit && *link->at[i].source && link->at[i].value > 0));
    }
    CHECK(!cost_link_find("nvlink"));
}

/* ---- What was measured ---------------------------------------------------------------------- */

/* Ranks that share a GPU are all that was measured. Meetings of 8 ranks are worst: they read what
 * lies in the GPU's cache, and walk to it. */
TEST(cost, is_near_what_an_h100_took)
{
    double sum = 0;
    int n = 0;
    for (size_t row = 0; row < NH100; row++)
        for (int a = 0; a < NTIMED; a++)
            for (int size = 0; size < NSIZES; size++) {
                const struct cost_call call =
                    call_of(timed[a], cost_link_find("gpu"), h100[row].nranks, h100[row].nparts,
                            (size_t)256 << (3 * size));
                const double ratio = walk(&call, NULL) / h100[row].us[a][size];
                const double most = tt_meets(call.algorithm) && call.nranks == 8 ? 2.2 : 1.5;
                CHECK_MESSAGE(ratio <= most && ratio >= 1 / most,
                              "%s, %d ranks, %d blocks, %zu bytes: %.2f of what was measured",
                              timed[a], call.nranks, call.nblocks, call.nbytes, ratio);
                sum += fabs(log(ratio));
                n++;
            }
    printf("mean factor between model and measurement: %.3f\n", exp(sum / n));
    CHECK(exp(sum / n) <= 1.2);
}

/* ---- Choices -------------------------------------------------------------------------------- */

/* The time of the algorithm that the library chooses; least: of the one that is fastest here. */
static double chosen_us(const struct tt_setting *setting, int nranks, size_t nbytes, double *least)
{
    const struct tt_shape shape = {.collective = TT_ALL_REDUCE, .nranks = nranks};
    const struct tt_algorithm *algorithm, *choice = tt_choose(&shape, setting, nbytes);
    double chosen = NAN;
    *least = INFINITY;
    for (int i = 0; (algorithm = tt_algorithm_at(TT_ALL_REDUCE, i)) != NULL; i++) {
        if (algorithm->parts) break;
        const struct cost_call call =
            call_of(algorithm->name, cost_link_find("nvlink4"), nranks, setting->nparts, nbytes);
        const double us = walk(&call, NULL);
        *least = fmin(*least, us);
        if (algorithm == choice) chosen = us;
    }
    return chosen;
}

/* Whatever number of blocks of threads a call has. The library's constants are fitted to ranks that
 * share the memory of one GPU: folds of a few ranks take less long here. */
TEST(cost, the_library_chooses_what_is_fast_here)
{
    static const int nblocks[] = {2, 8, 32};
    double worst = 0, least;
    for (int i = 0; i < 3; i++)
        for (int nranks = 2; nranks <= 8; nranks *= 2) {
            const struct tt_setting setting = cost_setting(nranks, nblocks[i], NULL, NULL);
            for (size_t nbytes = 256; nbytes <= 256 * MIB; nbytes *= 4) {
                const double us = chosen_us(&setting, nranks, nbytes, &least);
                CHECK_MESSAGE(us <= 1.5 * least,
                              "%d ranks, %d blocks, %zu bytes: %.1f us, not %.1f", nranks,
                              nblocks[i], nbytes, us, least);
                worst = fmax(worst, us / least);
            }
        }
    printf("worst choice: %.2f of the least time\n", worst);
}

/* ---- Hosts ---------------------------------------------------------------------------------- */

/* So many hosts of as many ranks each, one host after the other. */
static struct tt_hosts *hosts_of(int nhosts, int each)
{
    uint64_t ids[128];
    struct tt_hosts *hosts = NULL;
    for (int r = 0; r < nhosts * each; r++) ids[r] = (uint64_t)(1 + r / each);
    const tt_status status = tt_hosts_create(ids, nhosts * each, &hosts);
    CHECK_MESSAGE(!status, "%s", tt_last_error());
    return hosts;
}

static struct cost_call between_of(const char *algorithm, const struct cost_link *between,
                                   const struct tt_hosts *hosts, size_t nbytes)
{
    struct cost_call call =
        call_of(algorithm, cost_link_find("nvlink4"), hosts->nranks, 32, nbytes);
    call.between = between;
    call.hosts = hosts;
    return call;
}

/* A step that sends, a hop of the message, and a step that takes it. */
TEST(cost, eight_bytes_between_two_hosts_are_two_steps_and_a_hop_made_by_hand)
{
    static const char *const links[] = {"tcp", "rdma", "dmabuf"};
    struct tt_hosts *hosts = hosts_of(2, 1);
    for (size_t l = 0; l < sizeof links / sizeof *links; l++) {
        const struct cost_link *net = cost_link_find(links[l]);
        const struct cost_call call = between_of("parallel", net, hosts, 8);
        const double frame = 0.13 + net->at[COST_FENCE].value;
        const double hop = 1.6 + 2 * frame + net->at[COST_LATENCY].value + 1.6 +
                           (net->direct ? 2 * net->at[COST_FENCE].value : 0) +
                           net->at[COST_FLUSH].value;
        const double by_hand = 9.7 + 2 * (2.4 + 0.2) + 0.63 + hop;
        struct cost_walk got;
        const double us = walk(&call, &got);
        CHECK(!got.lines);
        CHECK_EQ(got.nsteps, 2);
        CHECK_MESSAGE(us > by_hand && us < by_hand + 0.1, "%s: %.3f, not %.3f us", links[l], us,
                      by_hand);
    }
    tt_hosts_destroy(hosts);
}

/* An all-reduce over n hosts: 2 (n - 1) / n of the data leave each host, as much by each GPU of it,
 * which is a rail where each has a network device. */
TEST(cost, each_byte_leaves_a_host_once_over_two_hosts_and_as_many_by_each_gpu)
{
    static const char *const names[] = {"parallel/ring", "ring/parallel", "parallel/two_shot"};
    for (int nhosts = 2; nhosts <= 4; nhosts *= 2) {
        struct tt_hosts *hosts = hosts_of(nhosts, 4);
        for (size_t a = 0; a < sizeof names / sizeof *names; a++) {
            const size_t nbytes = 16 * MIB;
            const struct cost_call call =
                between_of(names[a], cost_link_find("rdma"), hosts, nbytes);
            struct cost_walk got;
            if (nhosts > 2 && a == 1) continue; /* parallel sends all to all */
            REQUIRE(cost_walk(&call, &got) == TT_OK);
            const double each = 2.0 * (nhosts - 1) / nhosts * (double)nbytes / 4;
            for (int r = 0; r < hosts->nranks; r++)
                CHECK_MESSAGE(fabs(got.busy[r].net_bytes - each) <= 1e-9 * each,
                              "%s on %d hosts: rank %d sends %.0f bytes, not %.0f", names[a],
                              nhosts, r, got.busy[r].net_bytes, each);
            cost_walk_free(&got);
        }
        tt_hosts_destroy(hosts);
    }
}

/* The proxy's work, counted by hand: a message of 128 KiB is a frame, and each has a credit. */
TEST(cost, a_proxy_works_as_long_as_its_messages_take)
{
    struct tt_hosts *hosts = hosts_of(2, 1);
    const struct cost_link *net = cost_link_find("tcp");
    const size_t nbytes = 256 * MIB;
    const struct cost_call call = between_of("ring", net, hosts, nbytes);
    struct cost_walk got;
    walk(&call, &got);
    const double moved = (double)nbytes, messages = moved / (128 * KIB);
    const double copies = moved * (2 / 17.5e3 + 1 / 5.4e3 + 1 / 8.6e3);
    const double least = copies + messages * 2 * (0.13 + 3.4);
    const double most = least + messages * 2 * (0.13 + 3.4); /* credits of one message or of two */
    CHECK_MESSAGE(got.proxy_us >= least && got.proxy_us <= most, "%g us, not %g to %g",
                  got.proxy_us, least, most);
    CHECK(got.us > got.proxy_us);
    tt_hosts_destroy(hosts);
}

/* Constants of the network, and of what moves messages for it, that are better. */
static void improve(struct cost_link *link, int turn)
{
    static const enum cost_link_key bandwidths[] = {COST_BANDWIDTH, COST_BYTES_OUT, COST_BYTES_IN};
    static const enum cost_link_key times[] = {COST_LATENCY, COST_FENCE, COST_FLUSH};
    if (turn < 3)
        link->at[bandwidths[turn]].value *= 2;
    else
        link->at[times[turn - 3]].value /= 2;
}

/* The order in which a proxy gets its work may change with a constant: hence the hundredth. */
TEST(cost, more_bytes_take_longer_between_hosts_and_better_networks_less_long)
{
    static const char *const names[] = {"ring", "parallel/ring", "parallel/parallel", "direct/tree",
                                        "recursive_doubling"};
    static const char *const links[] = {"tcp", "rdma", "dmabuf"};
    struct tt_hosts *hosts = hosts_of(2, 4);
    for (size_t l = 0; l < sizeof links / sizeof *links; l++)
        for (size_t a = 0; a < sizeof names / sizeof *names; a++) {
            double before = 0;
            for (size_t nbytes = 8; nbytes <= 128 * MIB; nbytes *= 8) {
                const struct cost_call given =
                    between_of(names[a], cost_link_find(links[l]), hosts, nbytes);
                const double us = walk(&given, NULL);
                CHECK_MESSAGE(us >= before, "%s, %s, %zu bytes: %g us, fewer %g", names[a],
                              links[l], nbytes, us, before);
                before = us;
                for (int turn = 0; turn < 6; turn++) {
                    struct cost_link better = *cost_link_find(links[l]);
                    improve(&better, turn);
                    const struct cost_call call = between_of(names[a], &better, hosts, nbytes);
                    const double less = walk(&call, NULL);
                    CHECK_MESSAGE(less <= 1.01 * us, "%s, %s, %zu bytes, %d: %g us, not %g",
                                  names[a], links[l], nbytes, turn, less, us);
                }
            }
        }
    tt_hosts_destroy(hosts);
}

TEST(cost, every_algorithm_ends_between_hosts)
{
    const struct tt_algorithm *algorithm;
    struct tt_hosts *hosts = hosts_of(3, 2);
    for (int c = 0; c < TT_NCOLLECTIVES; c++)
        for (int i = 0; (algorithm = tt_algorithm_at((enum tt_collective)c, i)) != NULL; i++) {
            const struct tt_shape shape = {
                .collective = (enum tt_collective)c, .nranks = hosts->nranks, .hosts = hosts};
            if (tt_refusal(algorithm, &shape) || tt_meets(algorithm)) continue;
            for (size_t nbytes = 64; nbytes <= 16 * MIB; nbytes *= 512) {
                struct cost_call call = between_of("ring", cost_link_find("tcp"), hosts, nbytes);
                call.algorithm = algorithm;
                CHECK(walk(&call, NULL) >= value(COST_CALL));
            }
        }
    tt_hosts_destroy(hosts);
}

/* The library's constants between hosts are sums of those here. */
TEST(cost, the_library_knows_of_bridges_what_the_model_knows)
{
    static const char *const links[] = {"tcp", "rdma", "dmabuf"};
    for (size_t l = 0; l < sizeof links / sizeof *links; l++) {
        const struct cost_link *net = cost_link_find(links[l]);
        const struct tt_cost *of = tt_bridge_costs[net->way].at;
        const double frame = value(COST_PROXY_FRAME) + net->at[COST_FENCE].value;
        const double bytes_frame = net->direct ? net->at[COST_FENCE].value : 0;
        const double copy = 2 / (value(COST_PROXY_COPY) * 1e3);
        const double system = net->at[COST_BYTES_OUT].name
                                  ? 1 / (net->at[COST_BYTES_OUT].value * 1e3) +
                                        1 / (net->at[COST_BYTES_IN].value * 1e3)
                                  : 0;
        const double byte = net->direct ? 1 / (net->at[COST_BANDWIDTH].value * 1e3) : copy + system;
        const double hop = 2 * (value(COST_HOST_FLAG) + frame + bytes_frame) +
                           net->at[COST_LATENCY].value + net->at[COST_FLUSH].value;
        const double message = 2 * (frame + bytes_frame);
        CHECK_MESSAGE(fabs(of[TT_COST_NET_LINK].value - hop) <= 1e-9, "%s: %g us, not %g", links[l],
                      of[TT_COST_NET_LINK].value, hop);
        CHECK_MESSAGE(fabs(of[TT_COST_NET_MESSAGE].value - message) <= 1e-9, "%s: %g us, not %g",
                      links[l], of[TT_COST_NET_MESSAGE].value, message);
        CHECK(fabs(of[TT_COST_NET_CREDIT].value - 2 * frame) <= 1e-9);
        CHECK_MESSAGE(fabs(of[TT_COST_NET_BYTE].value - byte) <= 1e-12, "%s: %g us, not %g",
                      links[l], of[TT_COST_NET_BYTE].value, byte);
    }
}

/* *least: of the algorithm that is fastest here, each with as many blocks as the library takes. */
static double chosen_between(const struct cost_link *net, const struct tt_hosts *hosts, int nblocks,
                             size_t nbytes, double *least)
{
    const struct tt_shape shape = {
        .collective = TT_ALL_REDUCE, .nranks = hosts->nranks, .hosts = hosts};
    const struct tt_setting setting = cost_setting(hosts->nranks, nblocks, net, hosts);
    const struct tt_algorithm *algorithm, *choice = tt_choose(&shape, &setting, nbytes);
    double chosen = NAN;
    *least = INFINITY;
    for (int i = 0; (algorithm = tt_algorithm_at(TT_ALL_REDUCE, i)) != NULL; i++) {
        if (tt_refusal(algorithm, &shape) || tt_meets(algorithm)) continue;
        struct cost_call call = between_of("ring", net, hosts, nbytes);
        call.algorithm = algorithm;
        call.nblocks = nblocks;
        const double us = walk(&call, NULL);
        *least = fmin(*least, us);
        if (algorithm == choice) chosen = us;
    }
    return chosen;
}

static double worst_between(const struct cost_link *net, int each, int nblocks)
{
    struct tt_hosts *hosts = hosts_of(2, each);
    double worst = 0, least;
    for (size_t nbytes = 128; nbytes <= 4 * MIB; nbytes *= 8) {
        const double us = chosen_between(net, hosts, nblocks, nbytes, &least);
        CHECK_MESSAGE(us <= MOST_OFF * least,
                      "2 hosts of %d over %s, %d blocks, %zu bytes: %.1f us, not %.1f", each,
                      net->name, nblocks, nbytes, us, least);
        if (us > 1.2 * least)
            printf("2 hosts of %d over %s, %d blocks, %zu bytes: %.2f of the least time\n", each,
                   net->name, nblocks, nbytes, us / least);
        worst = fmax(worst, us / least);
    }
    tt_hosts_destroy(hosts);
    return worst;
}

/* Whatever number of blocks of threads a call may have. */
TEST(cost, what_the_library_chooses_between_hosts_is_fast_here)
{
    static const char *const links[] = {"tcp", "rdma", "dmabuf"};
    for (size_t l = 0; l < sizeof links / sizeof *links; l++) {
        double worst = 0;
        for (int each = 1; each <= 8; each *= 8)
            for (int nblocks = 2; nblocks <= 32; nblocks *= 4)
                worst = fmax(worst, worst_between(cost_link_find(links[l]), each, nblocks));
        printf("worst choice over %s: %.2f of the least time\n", links[l], worst);
    }
}

/* The time with the library's number of blocks; *least: with the best one. */
static double with_blocks(const struct cost_call *given, double *least)
{
    struct cost_call call = *given;
    *least = walk(&call, NULL);
    const double us = *least;
    call.takes_all = true;
    for (call.nblocks = 1; call.nblocks <= given->nblocks; call.nblocks *= 2)
        *least = fmin(*least, walk(&call, NULL));
    return us;
}

TEST(cost, the_library_takes_a_good_number_of_blocks_between_hosts)
{
    static const char *const links[] = {"tcp", "rdma", "dmabuf"};
    static const char *const names[] = {"parallel/ring", "parallel/tree", "recursive_doubling"};
    struct tt_hosts *hosts = hosts_of(2, 8);
    double worst = 0, least;
    for (size_t n = 0; n < 3 * 3; n++)
        for (size_t nbytes = 8; nbytes <= 16 * MIB; nbytes *= 8) {
            const struct cost_call call =
                between_of(names[n % 3], cost_link_find(links[n / 3]), hosts, nbytes);
            const double us = with_blocks(&call, &least);
            CHECK_MESSAGE(us <= MOST_OFF * least, "%s over %s, %zu bytes: %.1f us, not %.1f",
                          names[n % 3], links[n / 3], nbytes, us, least);
            if (us > 1.2 * least)
                printf("%s over %s, %zu bytes: %.2f of the least time\n", names[n % 3],
                       links[n / 3], nbytes, us / least);
            worst = fmax(worst, us / least);
        }
    printf("worst number of blocks: %.2f of the least time\n", worst);
    tt_hosts_destroy(hosts);
}

/* ---- Through memory of the host ------------------------------------------------------------- */

static struct cost_staged stage(const struct tt_hosts *hosts, const char *link, size_t nbytes)
{
    const struct cost_staged_call call = {.collective = TT_ALL_REDUCE,
                                          .link = cost_link_find(link),
                                          .hosts = hosts,
                                          .nranks = hosts->nranks,
                                          .nbytes = nbytes};
    struct cost_staged staged = {.us = NAN};
    CHECK_EQ(cost_staged(&call, &staged), TT_OK);
    const double sum =
        staged.in_us + staged.words_us + staged.host_us + staged.net_us + staged.out_us;
    CHECK_MESSAGE(fabs(sum - staged.us) <= 1e-9 * sum, "%g us, not %g", staged.us, sum);
    CHECK(staged.net_us >= 0 && staged.host_us > 0);
    return staged;
}

TEST(cost, staged_calls_copy_fold_and_copy_back)
{
    struct tt_hosts *hosts = hosts_of(2, 4);
    double before = 0;
    for (size_t nbytes = 8; nbytes <= 256 * MIB; nbytes *= 8) {
        const struct cost_staged tcp = stage(hosts, "tcp", nbytes);
        const struct cost_staged rdma = stage(hosts, "rdma", nbytes);
        const double copy = 6 + (double)nbytes / 55e3;
        CHECK(fabs(tcp.in_us - copy) <= 1e-9 * copy && tcp.in_us == tcp.out_us);
        CHECK_MESSAGE(rdma.us < tcp.us, "%zu bytes: rdma %g us, tcp %g us", nbytes, rdma.us,
                      tcp.us);
        CHECK(tcp.us > before);
        before = tcp.us;
    }
    tt_hosts_destroy(hosts);
}
