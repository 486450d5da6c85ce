#!/usr/bin/env bash
# Plants mistakes in what moves messages between kernels and other ranks (bridges, relays, and what they need), one at a time, and says which
# tests notice each, on virtual GPUs.
# usage: tests/device/bridge_mutants.sh BUILD [NAME...]     BUILD: a whole build by gcc; NAME: only these mutants
#        tests/device/bridge_mutants.sh --applies          says which mistakes cannot be planted any more
# A mutant is a sed script for one file of the library. JOBS mutants are tried at a time; TRIALS: the names of the trials; FILTER: of the
# units' tests. Logs are in BUILD/bridge_mutants.
set -u
. "$(dirname "$0")/planted.sh"
export LD_LIBRARY_PATH=$build/vgpu GTEST_COLOR=no GTEST_FAIL_FAST=1 VGPU_DEVICES=2 TUTTI_DEVICE_CHANNELS=2 TUTTI_DEVICE_THREADS=64
export FIRST_ONLY=1 MOST_SECONDS=${MOST_SECONDS:-40}

# ---- Trials. Arguments: the mutant's folder and file.

briefly=(timeout --kill-after=5 "${LIMIT:-90}") limit=(timeout --kill-after=5 "${LIMIT:-400}")
# What tests the file without a GPU.
units() {
    case $2 in
    src/base/*) unit "$1" test_base 'private_epoll.*' ;;
    */kernel/bridge*.c)
        local sources=(src/carrier/kernel/bridge.c src/carrier/kernel/bridge_frames.c)
        unit "$1" test_carrier 'bridges.*' && unit "$1" test_rdma 'rdma_fake*' && races "$1" tests/carrier/bridge_counts.c "${sources[@]/#$2/$1/$2}"
        ;;
    */kernel/relay.c) unit "$1" test_carrier 'relays.*' && races "$1" tests/carrier/relays.c "$1/$2" ;;
    */kernel/*) unit "$1" test_carrier 'kernel_work.*' ;;
    */rdma/*) unit "$1" test_rdma '*' ;;
    *) unit "$1" test_transport 'wires*:hosts.*:fabric.*' ;;
    esac
}
bridges() {
    library "$@" && "${limit[@]}" env PROGRAM="$1/tests/device_rank" LEAVER="$1/tests/device_bridge_rank" tests/device/bridges.sh
}
graphs() {
    library "$@" && "${limit[@]}" env PROGRAM="$1/tests/device_bridge_graphs_rank" RANDOM_RANK="$1/tests/device_rank" tests/device/bridge_graphs.sh
}
faults() {
    library "$@" && "${limit[@]}" env TUTTI_DEVICE_KERNELS=require TUTTI_DEVICE_SLOT_BYTES=4K TUTTI_DEVICE_LINE_BYTES=2K \
        TT_FAULT_HOSTS=2 "$1/tests/device_faults" --first 3 --seeds 14 --limit "$MOST_SECONDS"
}
hosts() { unit "$1" test_integration 'hosts.*:fault.*'; }
# Ranks without a GPU among the others: as threads, and as processes.
mixed() {
    program "$1" test_device_mixed && "${limit[@]}" env TUTTI_DEVICE_KERNELS=require VGPU_STALL_MS=60000 VGPU_SEED=1 \
        "$1/tests/test_device_mixed" --gtest_filter="${FILTER:-*}"
}
processes() { library "$@" && "${limit[@]}" env PROGRAM="$1/tests/device_rank" tests/device/mixed.sh; }

# trials_of FILE: those that run it, the quickest first.
trials_of() {
    case $1 in
    src/base/* | */rdma/*) echo units ;;
    */replays.c) echo units graphs ;;
    */relay.c) echo units mixed processes ;;
    src/transport/*) echo units bridges faults graphs hosts ;;
    *) echo units bridges faults graphs ;;
    esac
}

# ---- A mutant

source_of() { echo "$1"; }
# command_of TARGET: how the build makes it.
command_of() { ninja -C "$build" -t commands -s "$1"; }
run_in_build() { (cd "$build" && eval "$1"); }

# compile FOLDER FILE: its object. Prints why it did not.
compile() {
    local line
    line=$(command_of "CMakeFiles/tutti_objects.dir/$2.o" | sed -E "s, -M(D|[TF] [^ ]+),,g; s, -Werror , -w ,; s, -o [^ ]+ -c .*, -o $1/mutant.o -c $1/$2,")
    run_in_build "$line" >"$1/log" 2>&1 || { echo "does not compile: $(grep -m1 error "$1/log")" && return 1; }
}

# unit FOLDER PROGRAM FILTER: a test program with the mutant, and these tests of it.
unit() {
    program "$1" "$2" && "${briefly[@]}" "$1/tests/$2" --gtest_filter="${FILTER:-$3}"
}
program() {
    [ ! -x "$1/tests/$2" ] || return 0
    run_in_build "$(command_of "tests/$2" | sed -E "s, -o tests/$2 , -o $1/tests/$2 ,; s, lib/libtutti\.a , $1/mutant.o&,")" || exit 3
}

# races FOLDER SOURCE...: a test of these files, which ThreadSanitizer looks at.
races() {
    local tree=$1
    shift
    gcc -std=c17 -D_GNU_SOURCE -O1 -g -w -fsanitize=thread "-I$tree/src" -Isrc -Itests "$@" "$build"/lib/libtutti_shim.a "$build/lib/libtutti.a" \
        -lgtest -lstdc++ -lsodium -lhwloc -lm -o "$tree/tests/races" || exit 3
    "${briefly[@]}" "$tree/tests/races" --gtest_filter="${FILTER:-*}"
}

# library FOLDER FILE: one with the mutant, and programs that find it beside them.
library() {
    [ ! -d "$1/lib" ] || return 0
    local whole name
    whole=lib/$(basename "$(realpath "$build/lib/libtutti.so")") name=$(readlink "$build/lib/libtutti.so")
    mkdir "$1/lib" && cp "$build"/tests/device_{rank,bridge_rank,bridge_graphs_rank,faults} "$1/tests/" || exit 3
    run_in_build "$(command_of "$whole" | sed -E "s, CMakeFiles/tutti_objects\.dir/$2\.o , $1/mutant.o ,; s, -o $whole , -o $1/lib/$name ,")" || exit 3
}

# where TRIAL LOG: what noticed.
where() {
    case $1 in
    units | hosts | mixed) test_of "$2" ;;
    *) grep -m1 -vE '^$|: line [0-9]+: ' "$2" | sed -E 's/(: (rank|process|[^:]*\(status)|, (processes|threads) on).*//' | cut -c 1-90 ;;
    esac
}

# examine NAME FILE SED: the row's second column. Ends at the first test that notices.
examine() {
    local tree=$work/$1 log=$work/$1.log trial status how
    rm -rf "$tree" && mkdir -p "$tree/tests" "$tree/$(dirname "$2")" && cp "$2" "$tree/$2" && change "$tree" "$2" "$3" && compile "$tree" "$2" || return
    for trial in ${TRIALS:-$(trials_of "$2")}; do
        attempt '^seed [0-9]*: ' "$log" "$trial" "$tree" "$2"
        status=$?
        [ $status -ne 3 ] || { echo "not tried: $(tail -n 1 "$log")" && return; }
        [ $status -ne 0 ] || continue
        how=''
        [ $status -ne 124 ] || how="does not end, "
        echo "caught: $how$trial, $(where "$trial" "$log")"
        return
    done
    echo "not caught"
}

original src/carrier/kernel/bridge_frames.c

# Bridges: ends, frames, credits.
bridge=src/carrier/kernel/bridge.c frames=src/carrier/kernel/bridge_frames.c ends=src/carrier/kernel/ends.c gpu=src/transport/rdma/rdma_gpu.c
mutant no_credit_is_credit $frames 's/: 0 - bridges->shape\.nslots;/: 0;/'
mutant laid_with_free_slots $bridge 's/\.known_tail = outgoing \? 0 - shape->nslots : 0/.known_tail = 0/'
mutant early_credit_is_lost $frames '/^    if \(end->is_bound\) tt_bridge_store_tail\(bridges, end\);/d'
mutant no_room_for_notes $bridge 's/return 2 \* WORD_BYTES \+ notes_bytes\(shape\);/return 2 * WORD_BYTES;/'
mutant directions_share_an_end $frames 's/ends\[2 \* channel \+ outgoing\]/ends[2 * channel]/'
mutant parts_overwrite_the_first $frames 's/char \*to = slot_at\(bridges, end\) \+ offset;/char *to = slot_at(bridges, end);/'
mutant head_before_note $frames 's/^    __atomic_store_n\(end->head, frame->head.*//; /^    end->notes\[end->moved/s/^/    __atomic_store_n(end->head, frame->head, __ATOMIC_RELEASE);\n/'
mutant head_before_bytes $frames 's/^    __atomic_store_n\(end->head, frame->head.*//; /^    TT_TRY\(store\(/s/^/    __atomic_store_n(end->head, frame->head, __ATOMIC_RELEASE);\n/'
mutant head_is_relaxed $frames 's/(end->head, frame->head, __ATOMIC_)RELEASE/\1RELAXED/'
mutant tail_is_relaxed $frames 's/(end->tail, tail, __ATOMIC_)RELEASE/\1RELAXED/'
mutant reads_head_relaxed $frames '/^uint32_t tt_bridge_unsent/,/^}/s/ACQUIRE/RELAXED/'
mutant reads_tail_relaxed $frames '/^bool tt_bridge_must_tell/,/^}/s/ACQUIRE/RELAXED/; /^static bool send_credit/,/^}/s/ACQUIRE/RELAXED/'
mutant note_has_no_length $frames 's/, \.length = frame->length\}/}/'
mutant length_of_each_part $frames 's/if \(!end->offset\) end->length/end->length/'
mutant takes_more_than_slots $frames 's/^           end->moved - end->told < shape->nslots;/           true;/'
mutant takes_any_number $frames 's/ frame->number == end->moved \&\&//'
mutant takes_any_length $frames 's/frame->length <= shape->slot_bytes && //'
mutant takes_any_credit $frames 's/if \(frame->number - end->told > end->moved - end->told \|\|/if (/'
mutant credits_do_not_wrap $frames 's/if \(frame->number - end->told > end->moved - end->told \|\|/if (frame->number < end->told || frame->number > end->moved ||/'
mutant end_is_not_heard $frames '/^    case TT_BRIDGE_FRAME_END:/,/return/s/^        peer->may_send = false;//'
mutant frame_is_not_released $frames 's/^        rx->ops->release\(rx\);//'
mutant released_before_taken $frames 's/^        rx->ops->release\(rx\);//; s/^        if \(!status\) status = take\(.*/        rx->ops->release(rx);\n&/'
mutant reads_after_own_end $frames 's/ && !peer->has_said_end; n\+\+/; n++/'
mutant reads_after_their_end $frames 's/ && peer->may_send && !peer->has_said_end; n\+\+/ \&\& !peer->has_said_end; n++/'
mutant credit_is_lost_when_full $frames '/^static bool send_credit/,/^}/s/^    if \(!to\) return/    end->told = tail;\n&/'
mutant no_first_credit $frames 's/return !end->has_credit \|\| /return /'
mutant unsent_does_not_wrap $frames '/^uint32_t tt_bridge_unsent/,/^}/s/^    const uint32_t n = (.*) - end->moved;/    const uint32_t head = \1;\n    const uint32_t n = head > end->moved ? head - end->moved : 0;/'
mutant part_fills_the_slot $frames 's/tx->slot_bytes - sizeof frame;/tx->slot_bytes;/'
mutant each_part_is_a_message $frames '/^static void count_part/,/^}/s/^    if \(end->offset < frame->length\) return;//'
mutant signature_is_lost $frames 's/\.head = note->head,/.head = (uint32_t)note->head,/'
mutant sent_is_drained $frames 's/ && \(end->has_credit \? end->told == head : !head\)//'
mutant end_is_said_again $frames 's/if \(peer->has_said_end \|\| tt_bridge_needs_nothing\(bridges, peer\)\) return/if (tt_bridge_needs_nothing(bridges, peer)) return/'
mutant sends_to_who_is_gone $frames 's/return !peer->may_send \|\| bridges->calls->is_gone.*/return !peer->may_send;/'
mutant sends_to_who_has_ended $frames 's/return !peer->may_send \|\| bridges/return bridges/'
mutant sent_is_no_work $bridge 's/^        if \(!has_left\(&peer->pair\)\) return true;//'
mutant credits_are_no_work $bridge 's/\? tt_bridge_unsent\(bridges, end\) > 0 : tt_bridge_must_tell\(end\)\)/? tt_bridge_unsent(bridges, end) > 0 : false)/'
mutant flushed_has_left $bridge 's/ops->delivered\(pair->tx\)/ops->flushed(pair->tx)/'
mutant mark_without_slots $bridge 's/\? end->moved \+ tt_bridge_unsent\(bridges, end\)/? end->moved/'
mutant mark_without_credits $bridge '/^void tt_bridges_mark/,/^}/s/: \(uint32_t\)__atomic_load_n\(end->tail, __ATOMIC_ACQUIRE\)/: end->told/'
mutant mark_does_not_wrap $bridge 's/n - end->marked\[mark\] > UINT32_MAX \/ 2/n < end->marked[mark]/'
mutant mark_awaits_first_credit $bridge 's/const bool counts = end->outgoing \|\| end->has_credit;/const bool counts = true;/; s/n = end->outgoing \? end->moved : end->told;/n = end->outgoing ? end->moved : end->has_credit ? end->told : end->marked[mark] - 1;/'
mutant mark_awaits_an_empty_link $bridge 's/peer->nframes - at->nframes < TT_MAX_SLOTS && //'
mutant kinds_share_a_mark $bridge 's/marks\[mark\]/marks[0]/; s/marked\[mark\]/marked[0]/'
mutant received_is_no_use $frames '/^static tt_status take_data/,/^}/s/^    peer->has_moved = true;//'
mutant sent_is_no_use $frames '/^static void count_part/,/^}/s/^    peer->has_moved = true;//'
mutant unsent_is_no_use $bridge 's/\(end->outgoing && tt_bridge_unsent\(bridges, end\)\)/false/'

# Slots in memory of GPUs. What devices copy, and what they flush, only the units see.
mutant placed_is_not_flushed $frames 's/^    TT_AWAIT\(rx->ops->gpus->flush\(.*//'
mutant placed_anywhere $frames 's/ \|\| !end->in_gpu\)/)/'
mutant placed_in_the_first_slot $frames 's/const size_t offset = \(size_t\)\(end->moved % shape->nslots\) \* shape->slot_bytes;/const size_t offset = 0;/'
mutant place_is_not_shown $frames 's/^    if \(shows\) memcpy.*//; s/close_frame\(peer, shows \? sizeof place : 0\);/close_frame(peer, 0);/'
mutant host_copies_to_gpu $frames '/^static tt_status store/,/^}/s/if \(end->in_gpu\)/if (false)/'
mutant flushed_for_all_to_come $gpu 's/^    rx->flushed\.asked = count_come\(rx\);/    rx->flushed.asked = rx->next + 1000;/'
mutant flushed_when_asked $gpu 's/return TT_IN_PROGRESS;/continue;/'
mutant place_of_any_size $gpu 's/offset > place->nbytes \|\|$/false ||/; s/^        nbytes > place->nbytes - offset\)/        false)/'

# The proxy: when it moves, sleeps, stops; memory of ends.
proxy=src/carrier/kernel/proxy.c
mutant never_woken $proxy 's/^    proxy->woken = true;//'
mutant does_not_rest $proxy 's/^    proxy->woken = false;//; s/^    while \(idle && !proxy->stop/    while (idle \&\& false/'
mutant rests_until_woken $proxy 's/ && !tt_expired\(end_ns\)//'
mutant moves_after_abort $proxy 's/ atomic_load\(&fabric->aborted\) \|\|$/ false ||/'
mutant moves_after_leaving $proxy 's/tt_wires_have_left\(fabric->wires\)/false/'
mutant gone_without_dead $proxy 's/state == TT_RANK_ABORTED \|\|$/state == TT_RANK_ABORTED;/; s/^           tt_wires_lost_peer\(fabric->wires, rank\);//'
mutant gone_without_left $proxy 's/return state == TT_RANK_LEFT \|\| state == TT_RANK_ABORTED \|\|$/return/'
mutant spares_nobody $proxy 's/tt_wires_spare\(fabric->wires, true\);/;/'
mutant spares_for_good $proxy 's/tt_wires_spare\(fabric->wires, false\);/;/'
mutant bad_frames_are_no_failure $proxy 's/^    if \(moved < 0 && !tt_fabric_failure\(fabric, NULL\)\)/    if (false)/'
mutant drives_no_wires $proxy 's/tt_ignore\(tt_wires_progress\(fabric->wires\)\);/;/'
mutant closed_is_no_failure $proxy 's/^    if \(closed\) tt_ignore.*//'
mutant failure_is_not_passed_on $proxy 's/^    if \(tt_fabric_failure\(fabric, NULL\)\) tt_fabric_pass_on\(fabric\);//'
mutant end_is_not_said $proxy 's/^    tt_bridges_end\(proxy->bridges\);//'
mutant end_sends_no_record $proxy '/^void tt_proxy_end/,/^}/s/\(void\)tt_wires_send_record\(.*\);/;/'
mutant marks_nothing $proxy 's/^    if \(!\*has_marked\) tt_bridges_mark\(proxy->bridges, mark\);//'
mutant marks_at_each_look $proxy 's/^    if \(!\*has_marked\) tt_bridges_mark/    tt_bridges_mark/'
mutant closed_counts_as_sent $proxy 's/!tt_wires_closed_here\(proxy->comm->fabric->wires\) &&$//; s/^    if \(wires && tt_wires_closed_here\(wires\)\) return false;//'
mutant ends_share_memory $ends 's/^    spare->first\.words \+= .*//'
mutant pins_one_end_too_few $ends 's/^    tt_status status = tt_context_allocate_lasting\(comm->context, nends \* each/    tt_status status = tt_context_allocate_lasting(comm->context, (nends - 1) * each/'
mutant bound_without_engine $proxy '/^static tt_status bind_end/,/^}/s/^    tt_engine_(enter|leave)\(.*//'
mutant first_copy_is_bound $proxy 's/uses\[i\]\.channel \+= program->nchannels/uses[i].channel += 0/'
mutant refused_thread_is_forgotten $proxy 's/return proxy->has_ends \? start\(proxy\) : TT_OK;.*/return TT_OK;/'
mutant waits_hold_the_engine $proxy 's/^    atomic_store_explicit\(&proxy->comm->engine\.is_driven.*//'
mutant stops_without_waiting $proxy 's/^    pthread_join\(proxy->thread, NULL\);/    pthread_detach(proxy->thread);/'

# Relays to ranks without a GPU.
relay=src/carrier/kernel/relay.c
mutant relay_sends_of_later_calls $relay '/^static bool can_send/,/^}/s/return relay->moved != relay->granted &&$/return/'
mutant relay_takes_of_later_calls $relay '/^static bool can_take/,/^}/s/return relay->moved != relay->granted &&$/return/'
mutant relay_takes_one_too_many $relay '/^static bool can_take/,/^}/s/ACQUIRE\) <$/ACQUIRE) <=/'
mutant relay_frees_no_slot $relay '/^static bool send_part/,/^}/s/^    __atomic_store_n\(relay->tail, relay->moved, __ATOMIC_RELEASE\);//'
mutant relay_signs_all_alike $relay 's/relay->of_exchanges \? tt_signature_of_send\(note->nbytes\) : note->head >> 32\)/note->head >> 32)/'
mutant relay_head_before_note $relay '/^static void give/,/^}/{s/^    __atomic_store_n\(relay->head, head, .*//; s/^    relay->notes\[/    __atomic_store_n(relay->head, head, __ATOMIC_RELEASE);\n&/}'
mutant relay_takes_any_length $relay '/^static tt_status take_message/,/^}/s/if \(message->nbytes > relays->shape\.slot_bytes\)/if (false)/'
mutant relay_takes_references $relay 's/^    if \(message\.is_reference\) return .*//'
mutant relay_forgets_the_rest $relay '/^static tt_status take_part/,/^}/s/relay->offset = relay->offset \+ length < total \? relay->offset \+ length : 0;/relay->offset = 0;/'
mutant relay_releases_each_part $relay 's/if \(relay->taken == message->nbytes\) \{/if (true) {/'
mutant relay_unsent_has_left $relay '/^bool tt_relays_have_sent/,/^}/s/relay->moved != relay->granted \|\| //'
mutant relay_counts_one_message $relay 's/return nbytes \? nbytes \/ most \+ \(nbytes % most > 0\) : 1;/return nbytes ? nbytes \/ most : 1;/'

# Calls that kernels carry out, where ranks are on several hosts.
work_c=src/carrier/kernel/work.c part=src/carrier/kernel/part.c
mutant done_before_sent $work_c '/^static tt_status flush_exchange/,/^}/s/return !proxy \|\| .*/return TT_OK;/'
mutant one_mark_for_all_calls $work_c 's/mine->exchange \? TT_BRIDGE_EXCHANGES : TT_BRIDGE_COLLECTIVES/TT_BRIDGE_COLLECTIVES/'
mutant no_record_at_begin $work_c '/^static tt_status start_collective/,/^}/s/^    if \(wires\) tt_wires_send_record\(wires\);//'
mutant no_record_at_end $work_c '/^static void end_collective/,/^}/s/^    if \(!status && own\(work\)->life->proxy.*//'
mutant record_before_end $work_c '/^static void end_collective/,/^}/{s/^    tt_collective_end\(work, status\);//; s/^    if \(!status && own\(work\)->life->proxy.*/&\n    tt_collective_end(work, status);/}'
mutant ends_are_not_copied src/carrier/kernel/call.c '/^tt_status tt_kernel_place_ends/,/^}/s/if \(!n\) return/return/'
mutant ends_wait_for_streams src/carrier/kernel/call.c '/^tt_status tt_kernel_place_ends/,/^}/s/^    size_t n = 0;/&\n    number = 0;/'
mutant bound_once src/carrier/kernel/call.c 's/copies <= cached->nbridged\)/cached->nbridged)/'
mutant leaves_before_released $part 's/return atomic_load\(&comm->fabric->aborted\) \|\| tt_proxy_has_ended.*/return true;/'
mutant waits_though_aborted $part 's/return atomic_load\(&comm->fabric->aborted\) \|\| tt_proxy/return tt_proxy/'
mutant leaves_before_proxy_stops $part 's/^    tt_proxy_stop\(comm->kernel->proxy\);.*//; s/^    tt_fabric_leave\(comm->fabric\);/&\n    tt_proxy_stop(comm->kernel->proxy);/'
mutant replays_need_not_be_sent $part 's/\|\| !has_sent_replays\(comm, &has_marked\)//'

# Replays of CUDA graphs.
replays=src/carrier/kernel/replays.c
mutant running_is_not_told $replays '/^static void publish/,/^}/s/seen->replays,/seen->replays \/ 2 * 2,/'
mutant stale_count_is_enough $replays '/^static bool has_more/,/^}/s/ > seen->replays/ >= seen->replays/'
mutant runs_until_its_number_is_there $replays 's/^                \(seen\.is_exchange \|\| seen\.replays % 2\);/                true;/'
mutant hosts_hear_of_no_replay $replays '/^static void tell_hosts_locked/,/^}/s/^    if \(!tt_engine_try_enter\(engine\)\) return;/    return;/'
mutant exchanges_are_collectives $replays '/^static bool find_lost_locked/,/^}/s/ \|\| seen->is_exchange//'
mutant lost_at_once $replays 's/return lost && tt_expired\(graphs->lost_ns\);/return lost;/'
mutant lost_is_not_looked_for $replays '/^static bool find_lost_locked/,/^}/s/^    return lost && .*/    return false;/'
mutant left_elsewhere_is_left_here $replays 's/^                 \(tt_fabric_is_local\(comm->fabric, r\) \|\| !has_more\(comm, r, seen\)\);/                 true;/'
mutant wrong_rank_has_not_replayed $replays '/^static void list_missing/,/^}/s/tt_fabric_name_rank\(comm->fabric, r,/tt_fabric_name_rank(comm->fabric, comm->rank,/'
mutant wrong_rank_has_left $replays '/^static void fail_left_locked/,/^}/s/int rank = tt_kernel_absent_rank\(.*/int rank = graphs->comm->rank;/'

# Records, ranks that are gone, wires.
mutant replays_do_not_wrap src/transport/record.c 's/if \(more < UINT32_MAX \/ 2\)/if (lower_half > (uint32_t)before)/'
mutant old_replays_count src/transport/record.c 's/if \(more < UINT32_MAX \/ 2\)/if (true)/'
mutant replays_are_told_unsent src/transport/record.c 's/return replays \/ 2 > sent \? .*/return replays;/'
mutant done_is_not_taken src/transport/record.c '/^    if \(record->done > /,/;$/d'
mutant left_lends_nothing src/transport/kernels.c 's/\(state != TT_RANK_LEFT && state != TT_RANK_ABORTED\) \|\|$/(state != TT_RANK_LEFT \&\& state != TT_RANK_ABORTED);/; s/^               atomic_load_explicit\(&record->done, memory_order_acquire\) >= seq;$//'
mutant left_lends_all src/transport/kernels.c 's/return \(state != TT_RANK_LEFT && state != TT_RANK_ABORTED\) \|\|$/return true ||/'
mutant nobody_is_lost src/transport/failure.c 's/return looks \? .* : NULL;/return NULL;/'
mutant lost_has_no_failure_first src/transport/failure.c '/^static tt_status fail_dead/,/^}/s/if \(fabric->wires\) tt_ignore\(tt_wires_progress\(fabric->wires\)\);//'
mutant spared_is_missed src/transport/wires_open.c 's/return wires->spares \? TT_IN_PROGRESS : /return /'
mutant first_socket_says_all src/transport/wires_frame.c '/^static bool has_left_all_sockets/,/^}/s/return false;/return true;/'
mutant entry_is_not_ahead src/transport/wires_frame.c '/^static size_t ahead/,/^}/s/if \(entered == wire->told\) return 0;/return 0;/'
mutant closed_is_died src/transport/wires_frame.c 's/wire->is_closed_here = tt_private_fd_is_lost\(tcp->fd\);/wire->is_closed_here = false;/'
mutant lost_wire_dials_on src/transport/wires_frame.c '/^tt_status tt_wire_lost/,/^}/s/^    tt_wire_handles_settle\(wire\);//'
mutant unconnected_is_undelivered src/transport/wires_dialling.c '/^static bool dialling_delivered/,/^}/s/!is_settled\(link\) \|\| /is_settled(link) \&\& /'
mutant tcp_delivers_at_once src/transport/tcp/tcp_link.c '/^static bool tcp_flushed/,/^}/s/^    return .*/    return true;/'
mutant bridges_are_collectives src/transport/tcp/tcp_link.c 's/up->nchannels - 1 - up->nbridges;/up->nchannels - 1;/'
mutant posted_is_delivered src/transport/rdma/rdma_link.c '/^static bool rdma_delivered/,/^}/s/return !tx->slots \|\| .*/return true;/'
mutant failed_is_never_delivered src/transport/rdma/rdma_link.c '/^static bool rdma_delivered/,/^}/s/return !tx->slots \|\| .*/return !tx->slots;/'
mutant delivered_does_not_look src/transport/rdma/rdma_link.c '/^static bool rdma_delivered/,/^}/s/^    if \(tx->slots && .*//'

# Epoll instances.
epoll=src/base/private_epoll.c
mutant any_stamp_is_taken $epoll 's/if \(ready\[i\]\.data\.u64 >> MARK_BITS != epoll->stamp\) lose\(epoll\);//'
mutant one_stamp_for_all $epoll 's/atomic_fetch_add_explicit\(&nstamps, 1,/atomic_fetch_add_explicit(\&nstamps, 0,/'
mutant stamps_may_be_addresses $epoll 's/\(FIRST_STAMP \| n % FIRST_STAMP\)/(n % FIRST_STAMP)/'
mutant lost_is_closed $epoll 's/epoll->fd >= 0 && !epoll->is_lost\)/epoll->fd >= 0)/'
mutant lost_stays_private $epoll 's/^    tt_private_fd_remove\(epoll->fd\);//'
mutant stamps_are_not_drawn $epoll 's/atomic_store_explicit\(&nstamps, first,/atomic_store_explicit(\&nstamps, 0,/'

sum_up
