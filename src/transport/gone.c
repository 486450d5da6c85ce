/* Ranks that are reported gone: by a rank of this host, which has found that, or by one of another
 * host. The reports are kept in the segment, and told to all connected ranks. A report counts here
 * when this rank has found the same, as the network may refuse the connections of the rank that
 * reports. So a report that is mistaken must not keep out the next one. */
#include <stdio.h>

#include "transport/fabric.h"

static bool is_made(struct tt_failure *report)
{
    /* release: tt_fabric_note_gone */
    return atomic_load_explicit(&report->state, memory_order_acquire) == 2;
}

static int find_report(struct tt_failure *reports, int rank)
{
    for (int i = 0; i < TT_MOST_GONE; i++)
        if (is_made(&reports[i]) && reports[i].code == rank) return i;
    return -1;
}

/* Two ranks of the host may make a report of the same rank at once: then there are two. */
int tt_fabric_note_gone(struct tt_fabric *fabric, int rank, const char *text)
{
    struct tt_failure *reports = fabric->segment->header->gone;
    const int known = find_report(reports, rank);
    if (rank == fabric->rank || known >= 0) return known;
    for (int i = 0; i < TT_MOST_GONE; i++) {
        uint32_t none = 0;
        if (!atomic_compare_exchange_strong(&reports[i].state, &none, 1)) continue;
        reports[i].code = rank;
        snprintf(reports[i].text, sizeof reports[i].text, "%s", text);
        /* acquire: is_made */
        atomic_store_explicit(&reports[i].state, 2, memory_order_release);
        return i;
    }
    return -1;
}

static bool has_found_gone(const struct tt_fabric *fabric, int rank)
{
    if (!tt_fabric_is_local(fabric, rank)) return tt_wires_has_found_gone(fabric->wires, rank);
    /* release: tt_fabric_attach, tt_fabric_leave */
    return atomic_load_explicit(&tt_fabric_record(fabric, rank)->state, memory_order_acquire) !=
               TT_RANK_HERE ||
           tt_fabric_is_dead(fabric, rank);
}

/* The report at or behind `i`; NULL: there is none. While no rank is reported, one load says so. */
static struct tt_failure *next_report(const struct tt_fabric *fabric, int i)
{
    struct tt_failure *reports = fabric->segment->header->gone;
    for (; i < TT_MOST_GONE; i++) {
        if (is_made(&reports[i])) return &reports[i];
        if (!atomic_load_explicit(&reports[i].state, memory_order_relaxed)) return NULL;
    }
    return NULL;
}

static int number_of(const struct tt_fabric *fabric, const struct tt_failure *report)
{
    return (int)(report - fabric->segment->header->gone);
}

int tt_fabric_gone(const struct tt_fabric *fabric, const char **text)
{
    for (struct tt_failure *at = next_report(fabric, 0); at;
         at = next_report(fabric, number_of(fabric, at) + 1)) {
        if (!has_found_gone(fabric, at->code)) continue;
        *text = at->text;
        return at->code;
    }
    return -1;
}

bool tt_fabric_is_reported(const struct tt_fabric *fabric, int rank)
{
    return find_report(fabric->segment->header->gone, rank) >= 0;
}

static bool is_reported(const void *fabric, int rank)
{
    return tt_fabric_is_reported(fabric, rank);
}

bool tt_fabric_follow_gone(struct tt_fabric *fabric)
{
    bool seeks = false;
    for (struct tt_failure *at = next_report(fabric, 0); at;
         at = next_report(fabric, number_of(fabric, at) + 1)) {
        const int number = number_of(fabric, at), rank = at->code;
        tt_wires_send_gone(fabric->wires, number, rank, at->text);
        const bool is_news = !(fabric->followed >> number & 1);
        fabric->followed |= 1u << number;
        if (tt_fabric_is_local(fabric, rank) || has_found_gone(fabric, rank)) continue;
        seeks = true;
        if (is_news) tt_wires_seek_first(fabric->wires, rank);
    }
    const struct tt_missing missing = {.is_missing = is_reported, .arg = fabric};
    return seeks && tt_wires_seek_gone(fabric->wires, &missing);
}
