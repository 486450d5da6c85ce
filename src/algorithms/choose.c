/* Chooses an algorithm: the one that costs least. */
#include <math.h>

#include "algorithms/model.h"

/* Most ranks among which all pairs may exchange messages, as those of a meeting do on GPUs. */
enum { MOST_PEERS = 64 };
/* Sizes at which costs are compared: 1 byte, 2, 4, ... */
enum { NSIZES = 48 };

/* Whether the algorithm makes a rank exchange messages with all of many ranks at once. Every link
 * takes memory, so such an algorithm is chosen only where there is no other. */
static bool crowded(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    if (shape->nranks <= MOST_PEERS || algorithm->one_host) return false;
    if (algorithm->parts) {
        struct tt_phase phases[TT_MOST_PHASES];
        bool any = false;
        for (int i = tt_hierarchy_phases(algorithm, shape, phases); i-- > 0;)
            any = any || crowded(phases[i].algorithm, &phases[i].shape);
        return any;
    }
    const struct tt_formula formula = tt_formula_of(algorithm, shape);
    const uint64_t parts = formula.sent > formula.reduced ? formula.sent : formula.reduced;
    const uint64_t most = (uint64_t)shape->nranks - 1;
    const bool all_at_once = formula.message > 0 && parts >= most * formula.message;
    return formula.depth <= 2 && (formula.steps >= most || all_at_once);
}

/* Whether kernels run the algorithm: no meetings of many ranks, nor of the ranks of one of several
 * hosts. Among groups of one host X/Y is not chosen, as nobody has measured one there. */
static bool kernels_run(const struct tt_algorithm *algorithm, const struct tt_shape *shape)
{
    if (!algorithm->parts) return !algorithm->one_host || shape->nranks <= MOST_PEERS;
    return shape->hosts && !shape->hosts->one_host && !tt_meets(algorithm);
}

/* Whether the algorithm may be chosen. With one rank on each host X/Y equals Y. */
static bool eligible(const struct tt_algorithm *algorithm, const struct tt_shape *shape,
                     const struct tt_setting *setting, bool may_crowd)
{
    if (setting->uneven && !algorithm->uneven) return false;
    if (!tt_order_fits(algorithm, setting->in_rank_order)) return false;
    if (setting->no_meetings && tt_meets(algorithm)) return false;
    if (setting->on_device && !kernels_run(algorithm, shape)) return false;
    if (tt_refusal(algorithm, shape)) return false;
    if (algorithm->parts && shape->hosts->most == 1) return false;
    return may_crowd || !crowded(algorithm, shape);
}

/* Where one of these algorithms is clearly cheaper than least[i] for sizes[i] bytes, it becomes
 * best[i]. */
static void look_for_cheaper(const struct tt_shape *shape, const struct tt_setting *setting,
                             const size_t *sizes, int nsizes, bool may_crowd, double *least,
                             const struct tt_algorithm **best)
{
    const struct tt_algorithm *algorithm;
    for (int a = 0; (algorithm = tt_algorithm_at(shape->collective, a)) != NULL; a++) {
        if (!eligible(algorithm, shape, setting, may_crowd)) continue;
        double costs[NSIZES];
        tt_costs_us(algorithm, shape, setting, sizes, nsizes, costs);
        for (int i = 0; i < nsizes; i++) {
            if (!tt_is_clearly_cheaper(costs[i], least[i])) continue;
            best[i] = algorithm;
            least[i] = costs[i];
        }
    }
}

/* best[i] = the cheapest algorithm for sizes[i] bytes. The root has no influence, so ranks choose
 * alike even when their calls differ in the root. */
static void choose_for(const struct tt_shape *given, const struct tt_setting *setting,
                       const size_t *sizes, int nsizes, const struct tt_algorithm **best)
{
    double least[NSIZES];
    bool is_missing = false;
    struct tt_shape shape = *given;
    shape.root = 0;
    int first = 0; /* of those that may be used at all */
    while (!eligible(tt_algorithm_at(shape.collective, first), &shape, setting, true)) first++;
    for (int i = 0; i < nsizes; i++) {
        best[i] = tt_algorithm_at(shape.collective, first);
        least[i] = INFINITY;
    }
    look_for_cheaper(&shape, setting, sizes, nsizes, false, least, best);
    for (int i = 0; i < nsizes; i++) is_missing |= least[i] == INFINITY;
    if (is_missing) look_for_cheaper(&shape, setting, sizes, nsizes, true, least, best);
}

const struct tt_algorithm *tt_choose(const struct tt_shape *shape, const struct tt_setting *setting,
                                     size_t nbytes)
{
    const struct tt_algorithm *best;
    choose_for(shape, setting, &nbytes, 1, &best);
    return best;
}

void tt_choices_make(struct tt_choices *choices, const struct tt_shape *shape,
                     const struct tt_setting *setting)
{
    size_t sizes[NSIZES];
    const struct tt_algorithm *best[NSIZES];
    for (int i = 0; i < NSIZES; i++) sizes[i] = (size_t)1 << i;
    choose_for(shape, setting, sizes, NSIZES, best);
    choices->number = 0;
    for (int i = 0; i < NSIZES; i++) {
        const struct tt_choice *last =
            choices->number > 0 ? &choices->at[choices->number - 1] : NULL;
        const bool is_full = choices->number == TT_MOST_CHOICES;
        if (!last || (last->algorithm != best[i] && !is_full))
            choices->at[choices->number++].algorithm = best[i];
        choices->at[choices->number - 1].most = sizes[i];
    }
    choices->at[choices->number - 1].most = SIZE_MAX;
}
