#!/usr/bin/env bash
# Plants mistakes in the kernels, one at a time, and says which tests notice each on a virtual GPU.
# usage: tests/device/mutants.sh BUILD [NAME...]     BUILD: a whole build by gcc; NAME: only these mutants
#        tests/device/mutants.sh --applies          says which mistakes cannot be planted any more
# A mutant is a sed script for one file of the kernels, or for their PTX. They have two folds, so that they compile in seconds. JOBS
# mutants are tried at a time; TRIALS: the names of the trials; SEEDS: of each; FILTER: of their tests. Logs are in BUILD/mutants.
set -u
. "$(dirname "$0")/planted.sh"
compiler=("${NVCC:-/usr/local/cuda/bin/nvcc}")
! command -v ccache >/dev/null || compiler=(ccache "${compiler[@]}")
export LD_LIBRARY_PATH=$build/vgpu GTEST_COLOR=no GTEST_FAIL_FAST=1 TT_DEVICE_STUCK=${TT_DEVICE_STUCK:-15}

# ---- Trials, the quickest first. Arguments: the seed, the mutant's folder.

trials=(pairs short wrap leaves reports more exchanges calls graphs faults)
quickly=(timeout --kill-after=5 "${LIMIT:-240}" env TUTTI_DEVICE_CHANNELS=2 TUTTI_DEVICE_THREADS=64)
strictly=("${quickly[@]}" VGPU_DEVICES=2 VGPU_BLOCK_ORDER=shuffled VGPU_VECTOR=strict)
pairs() { run "$1" "$2" 2 'run.every_algorithm*:run.a_[fm]*:run.abort*:begin.*'; }
short() { run "$1" "$2" 3 'run.every_algorithm*:run.a_*:run.abort*:run.blocks*'; }
wrap() { run "$1" "$2" 3 'wrap.*'; }
more() { run "$1" "$2" 8 'run.every_algorithm*:run.a_*:run.abort*'; }
leaves() { run "$1" "$2" 3 'run.a_receive*:run.a_send*:run.a_message_of_a_send*:run.a_rank_that_fails*'; }
reports() {
    VGPU_QUANTUM=100 VGPU_PATIENCE=10000 run "$1" "$2" 3 'report.*failure*' && VGPU_QUANTUM=1 VGPU_PATIENCE=10000 run "$1" "$2" 3 'report.*replay*'
}
run() {
    "${strictly[@]}" TT_TEST_KERNELS="$2/image" VGPU_SEED="$1" TT_DEVICE_RANKS="$3" "$build/tests/test_device_run" --gtest_filter="${FILTER:-$4}"
}
exchanges() { calls "$1" "$2" 'device_exchange*:device_launches.messages*'; }
# Without the tests that need other folds, as processes.sh does.
calls() {
    program "$2" test_device_calls && "${strictly[@]}" VGPU_SEED="$1" "$2/test_device_calls" \
        --gtest_filter="${FILTER:-${3:-*:-*random_calls*:*calls_on_a_cuda_stream*:*one_thread_drives_four*:*of_one_rank_copies*}}"
}
graphs() {
    program "$2" test_device_graphs && "${strictly[@]}" VGPU_SEED="$1" "$2/test_device_graphs" \
        --gtest_filter="${FILTER:-*:-*replays_and_other_calls_follow*}"
}
faults() { program "$2" device_faults && "${quickly[@]}" "$2/device_faults" --first $((20 * $1 + 1)) --seeds 20; }

# program FOLDER NAME: the build's program with the mutant's kernels.
program() {
    [ ! -x "$1/$2" ] || return 0
    local line
    gcc -D_GNU_SOURCE -std=c17 -fPIC -Isrc -DTT_IMAGE_FILE="\"$1/image\"" -DTT_IMAGE_HOLDS='"a mutant"' -c src/device/image.c -o "$1/image.o"
    line=$(ninja -C "$build" -t commands "tests/$2" | tail -n 1 | sed -E "s, -o tests/$2 , -o $1/$2 ,
        s, lib/libtutti\.so[.0-9]* , lib/libtutti.a -lsodium -lhwloc ,; s, lib/libtutti\.a , $1/image.o&,")
    (cd "$build" && eval "$line") || exit 3
}

# ---- A mutant

source_of() {
    if [ "$1" != run.ptx ]; then echo "src/device/kernel/$1"; elif [ -r "$work/run.ptx" ]; then echo "$work/run.ptx"; fi
}

# compile FOLDER: its kernels to PTX. Prints why it did not.
compile() {
    "${compiler[@]}" -std=c++17 -O3 -lineinfo -fmad=false -ptx -arch=compute_75 -I"$1" -Isrc -Iinclude -o "$1/run.ptx" \
        "$1/device/kernel/run.cu" >"$1/log" 2>&1 || { echo "does not compile: $(grep -m1 error "$1/log")" && return 1; }
}

# kernels FOLDER: a copy of them.
kernels() {
    rm -rf "$1" && mkdir -p "$1/device" "$1/datatype" && cp -r src/device/kernel "$1/device/"
    printf 'X(FLOAT32, SUM, f32_sum)\nX(INT32, SUM, u32_sum)\n' >"$1/datatype/kernel_table.h"
}

# plant NAME FILE SED FOLDER: makes its image. Prints why it did not.
plant() {
    local tree=$4
    kernels "$tree"
    if [ "$2" = run.ptx ]; then
        cp "$work/run.ptx" "$tree/" && change "$tree" run.ptx "$3" || return 1
    else
        change "$tree" "device/kernel/$2" "$3" && compile "$tree" || return 1
    fi
    { cat "$tree/run.ptx" && printf '\0'; } >"$tree/image"
}

# examine NAME FILE SED: the row's second column. Ends at the first test that notices.
examine() {
    local tree=$work/$1 log=$work/$1.log trial seed status how where
    plant "$@" "$tree" || return
    for trial in ${TRIALS:-${trials[@]}}; do
        if [ "$2" = exchange.cuh ] && { [[ pairs/short/wrap/more = *$trial* ]]; }; then continue; fi
        for seed in ${SEEDS:-1 2}; do
            attempt '^vgpu: ' "$log" "$trial" "$seed" "$tree"
            status=$?
            [ $status -ne 3 ] || { echo "not tried: $(tail -n 1 "$log")" && return; }
            [ $status -ne 0 ] || continue
            how=$(grep -m1 -oE 'vgpu: (race|fault|deadlock|stall)|not ended after' "$log")
            [ $status -ne 124 ] || how=${how:-does not end}
            where=$(test_of "$log" '^vgpu: ')
            echo "caught: ${how#vgpu: }${how:+, }${where:-$trial}, seed $seed"
            return
        done
    done
    echo "not caught"
}

# Their PTX is made once.
if [ ! -e "$work/run.ptx" ] || [ -n "$(find src include -newer "$work/run.ptx" -type f -print -quit)" ]; then
    right=$work/right.$$
    kernels "$right" && compile "$right" && mv "$right/run.ptx" "$work/run.ptx" && rm -r "$right" || [ -n "$applies" ] || exit 3
fi
original run.cu

# Orders and scopes of port.cuh: in the PTX, where its instructions stand as they are.
line_store='\{ \.reg \.b128 q; mov\.b128 q, \{(%rd[0-9]+), (%rd[0-9]+)\}; st\.relaxed\.gpu\.global\.b128 \[(%rd[0-9]+)\], q; \}'
line_load='\{ \.reg \.b128 q; ld\.relaxed\.sys\.global\.b128 q, \[(%rd[0-9]+)\]; mov\.b128 \{(%rd[0-9]+), (%rd[0-9]+)\}, q; \}'
mutant a1_a2_relaxed run.ptx 's/ld\.acquire\.gpu\.global\.u64/ld.relaxed.gpu.global.u64/'
mutant a1_a2_relaxed_sys run.ptx 's/ld\.acquire\.sys\.global\.u64/ld.relaxed.sys.global.u64/'
mutant a1_a2_cta run.ptx 's/ld\.acquire\.gpu\.global\.u64/ld.acquire.cta.global.u64/'
mutant a1_a2_weak run.ptx 's/ld\.acquire\.gpu\.global\.u64/ld.global.u64/'
mutant r1_r2_relaxed run.ptx 's/st\.release\.gpu\.global\.u64/st.relaxed.gpu.global.u64/'
mutant r1_r2_relaxed_sys run.ptx 's/st\.release\.sys\.global\.u64/st.relaxed.sys.global.u64/'
mutant r1_r2_cta run.ptx 's/st\.release\.gpu\.global\.u64/st.release.cta.global.u64/'
mutant r1_r2_weak run.ptx 's/st\.release\.gpu\.global\.u64/st.global.u64/'
mutant r3_two_stores run.ptx "s/$line_store/st.relaxed.gpu.global.b64 [\3+8], \2; st.relaxed.gpu.global.b64 [\3], \1;/"
mutant r3_vector_store run.ptx "s/$line_store/st.relaxed.gpu.global.v2.b64 [\3], {\1, \2};/"
mutant r3_store_cta run.ptx 's/st\.relaxed\.gpu\.global\.b128/st.relaxed.cta.global.b128/'
mutant a3_vector_load run.ptx "s/$line_load/ld.relaxed.sys.global.v2.b64 {\2, \3}, [\1];/"
mutant a3_load_cta run.ptx 's/ld\.relaxed\.sys\.global\.b128/ld.relaxed.cta.global.b128/'
mutant a3_load_gpu run.ptx 's/ld\.relaxed\.sys\.global\.b128/ld.relaxed.gpu.global.b128/'
mutant r4_a4_relaxed run.ptx 's/atom\.acq_rel\.gpu/atom.relaxed.gpu/'
mutant r5_relaxed port.cuh 's/asm volatile\("fence\.acq_rel\.sys;" ::: "memory"\); \/\* R5.*//'
mutant reference_cta run.ptx 's/atom\.relaxed\.gpu\.global\.or/atom.relaxed.cta.global.or/'
mutant failure_cta run.ptx 's/atom\.relaxed\.gpu\.global\.cas/atom.relaxed.cta.global.cas/'

# Waits.
mutant a1_does_not_wait port.cuh '/tt_wait_for_message/,/^}/s/if \(\(uint32_t\).*return true;/return true;/'
mutant a1_one_early port.cuh '/tt_wait_for_message/,/^}/s/count - 1 < nslots/count < nslots/'
mutant a2_does_not_wait port.cuh '/^static __device__ bool tt_wait_for_release/,/^}/s/end->count - end->known_tail > most/false/'
mutant a2_one_slot_too_many step.cuh 's/tt_wait_for_release\(end, &watch, links->nslots - 1\)/tt_wait_for_release(end, \&watch, links->nslots)/'
mutant a3_takes_any_flag port.cuh 's/while \(\*flag != wanted\)/while (!*flag)/'
mutant a3_takes_what_is_late lines.cuh 's/if \(flags\[k\] != block.in\[taken\.first \+ s\]\.head\)/if (!flags[k])/'
mutant a3_takes_own_for_late lines.cuh 's/^    for \(; late; late &= late - 1\) \{|^        for \(; late; late &= late - 1\) \{/        for (; late; late = 0) {/'
mutant no_abort port.cuh '/ bool tt_look\(/,/^}/s/\(looks \+ warp\) % turn \|\| !tt_load_abort\(call->report\)/true/'
mutant no_failure port.cuh '/ bool tt_look\(/,/^}/s/^    if \(tt_load_failure\(call->state\)\) return false;//'
mutant withdraws_nothing port.cuh '/^static __device__ bool tt_withdraw_reference/,/^}/s/TT_REFERENCE_WITHDRAWN, system/0, system/'

# Barriers.
mutant no_barrier_after_waits step.cuh '/^static __device__ bool tt_prepare\(/,/^}/s/return __syncthreads_and\(go\)/return go/'
mutant no_barrier_before_publish step.cuh '/ bool tt_do_step/,/^}/s/if \(!__syncthreads_and\(go\)\) return false;/if (!go) return false;/'
mutant no_barrier_before_tell step.cuh '/^static __device__ void tt_finish_step/,/^}/s/^    __syncthreads\(\);//'
mutant no_barrier_before_pass step.cuh '/^static __device__ void tt_list_pass/,/^}/s/^    __syncthreads\(\);//'
mutant no_barrier_between_pieces step.cuh 's/^        if \(block.call\.protocol == TT_PROTOCOL_SLOTS\) __syncthreads\(\);//'
mutant no_barrier_after_resolve run.cu '/^static __device__ bool walk/,/^}/s/^        __syncthreads\(\);//'
mutant no_barrier_in_open block.cuh 's/^    tt_sync_threads\(tt_openers\(\)\);//'
mutant opens_without_last_opener block.cuh 's/^    tt_sync_threads\(tt_openers\(\)\);/    if (threadIdx.x) tt_sync_threads(tt_openers());/'
mutant steps_advance_too_soon step.cuh '/ bool tt_do_step/,/^}/s/^    bool go;/    bool go;\n    if (threadIdx.x == blockDim.x - 1) tt_advance();/'
mutant walks_before_all_have_opened run.cu 's/^    if \(!__syncthreads_and\(go && layout\.fits\)\) return;/    if (!go || !layout.fits) return;/'
mutant no_barrier_before_ended run.cu '/^static __device__ void run_call/,/^}/s/^    __syncthreads\(\);//'
mutant no_wait_for_call_before run.cu 's/^    if \(tt_thread\(\) == 0\) tt_await_ended\(.*\);//'
# Not wrong: the call has a barrier before it uses anything.
mutant no_barrier_after_call_before run.cu '/^static __device__ void await_call/,/^}/s/^    __syncthreads\(\);//'
mutant r7_before_fence port.cuh '/^static __device__ void tt_count_ended/,/^}/{s/^    state->ended = 0;/&\n    if (call->number) asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(\&state->last), "l"(call->number) : "memory");/}'
mutant r9_relaxed port.cuh 's/^        tt_store_release\(word, number, true\);/        tt_store_count(word, number);/'
mutant r7_before_nended port.cuh '/^static __device__ void tt_count_ended/,/^}/{s/^    state->nended = nended;//; s/^    tt_tell_number\(call, &report->nended, nended\);/&\n    state->nended = nended;/}'

# Counters, notes, tails.
mutant releases_rarely block.cuh 's/nslots > 2 \? 2 : 1/nslots > 2 ? 4 : 2/'
mutant releases_rarely_with_two block.cuh 's/nslots > 2 \? 2 : 1/nslots > 2 ? 2 : 2/'
mutant no_release_at_end run.cu '/^static __device__ bool end_walk/,/^}/s/^.* tt_tell\(1\);//'
mutant no_wait_at_end run.cu 's/go = go && tt_wait_for_release\(tt_end\(e\), &watch, 0\);/;/'
mutant publishes_before_note step.cuh '/struct tt_device_note \*note/s/^/        tt_publish(end, message->head);\n/'
mutant note_keeps_reference step.cuh 's/^        note->reference = message->refers/        if (message->refers) note->reference = message->refers/'
mutant note_has_no_head step.cuh 's/note->head = message->head;//'
mutant no_signature_in_slots step.cuh 's/if \(head != message->head\)/if (false)/'
mutant no_signature_in_lines port.cuh 's/if \(\(uint32_t\)\*flag == \(uint32_t\)wanted \|\| !tt_watch\(watch\)\) return false;/if ((uint32_t)*flag == (uint32_t)wanted) return true;\n        if (!tt_watch(watch)) return false;/'
mutant empty_lines_are_not_sent step.cuh 's/&piece, !more, reference/\&piece, 0, reference/; s/step->nrecv \+ step->nsend \? 1 : 0/0/'
mutant begins_without_fence run.ptx 's/fence\.sc\.sys;//'
mutant ended_is_not_reset port.cuh 's/^    state->ended = 0;//'
mutant counts_are_not_kept block.cuh '/^static __device__ void tt_block_close/,/^}/s/^        \*\(uint64_t \*\)&.*;/        ;/'
mutant tails_are_not_kept block.cuh '/^static __device__ void tt_block_close/,/^}/s/^        \*\(uint64_t \*\)&.*;/        tt_block_end(e)->count = tt_end(e)->count;/'
mutant garbage_lines_after_failure lines.cuh '/ bool tt_take_lines\(/,/^}/s/^                return false;/                ;/'
# More orders and scopes.
mutant a1_a2_gpu_sys run.ptx 's/ld\.acquire\.sys\.global\.u64/ld.acquire.gpu.global.u64/'
mutant r1_r2_gpu_sys run.ptx 's/st\.release\.sys\.global\.u64/st.release.gpu.global.u64/'
mutant r1_r2_weak_sys run.ptx 's/st\.release\.sys\.global\.u64/st.global.u64/'
mutant r3_weak run.ptx 's/st\.relaxed\.gpu\.global\.b128/st.global.b128/'
mutant a3_weak run.ptx 's/ld\.relaxed\.sys\.global\.b128/ld.global.b128/'
mutant r3_vector_store_sys run.ptx "s/${line_store/gpu/sys}/st.relaxed.sys.global.v2.b64 [\3], {\1, \2};/"
mutant r4_only_acquires run.ptx 's/atom\.acq_rel\.gpu/atom.acquire.gpu/'
mutant a4_only_releases run.ptx 's/atom\.acq_rel\.gpu/atom.release.gpu/'
mutant r4_a4_cta run.ptx 's/atom\.acq_rel\.gpu/atom.acq_rel.cta/'
mutant r5_gpu port.cuh 's/fence\.acq_rel\.sys;(.*R5)/fence.acq_rel.gpu;\1/'
mutant r6_relaxed run.ptx 's/st\.release\.sys\.global\.u32/st.relaxed.sys.global.u32/'
mutant abort_weak run.ptx 's/ld\.relaxed\.sys\.global\.u64/ld.global.u64/'
mutant abort_cta run.ptx 's/ld\.relaxed\.sys\.global\.u64/ld.relaxed.cta.global.u64/'
mutant failure_load_weak run.ptx 's/ld\.relaxed\.gpu\.global\.u32/ld.global.u32/'
mutant begins_with_acq_rel_fence run.ptx 's/fence\.sc\.sys;/fence.acq_rel.sys;/'
mutant begins_with_fence_of_the_gpu run.ptx 's/fence\.sc\.sys;/fence.sc.gpu;/'

# More barriers.
mutant no_barrier_at_end_of_walk run.cu '/^static __device__ bool end_walk/,/^}/s/return __syncthreads_and\(go\)/return go/'
mutant no_barrier_before_leaving run.cu '/^static __device__ void leave/,/^}/{0,/^    __syncthreads\(\);/s/^    __syncthreads\(\);//}'
mutant others_do_not_wait_for_the_verdict port.cuh '/ bool tt_begin_call\(/,/^}/s/^    if \(index\) \{/    if (index) return true;\n    if (false) {/'
mutant verdict_of_an_older_call port.cuh 's/while \(verdict \/ 2 != number\)/while (!verdict)/'
mutant verdict_is_always_yes port.cuh 's/^    verdict = 2 \* number \+ .*;/    verdict = 2 * number + 1;/'
mutant verdict_before_the_question port.cuh 's/^    const bool runs = tt_ask_host\(call, number\);/    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(\&state->verdict), "l"(2 * number + 1) : "memory");\n&/'
mutant runs_without_asking run.cu 's/^    if \(!__syncthreads_and\(go && layout\.fits\)\) return;/    if (!__syncthreads_and(layout.fits)) return;/'
mutant replays_before_asking run.cu 's/^    const bool waits = call->captured \|\| call->exchange;/    const bool waits = call->exchange;/'
mutant exchanges_without_asking run.cu 's/^    const bool goes = !waits \|\| __syncthreads_and\(go\);/    const bool goes = true;/'

# One fence for what a step tells.
mutant tells_without_fence port.cuh '/^static __device__ void tt_fence_release/,/^}/s/fence\.acq_rel\.(gpu|sys);//'
mutant tells_with_fence_of_the_block port.cuh '/^static __device__ void tt_fence_release/,/^}/s/fence\.acq_rel\.gpu/fence.acq_rel.cta/'
mutant tells_with_fence_of_the_gpu port.cuh '/^static __device__ void tt_fence_release/,/^}/s/fence\.acq_rel\.sys/fence.acq_rel.gpu/'
mutant tells_system_nothing block.cuh 's/^        wide = wide \|\| .*/        ;/'
mutant tells_behind_a_fence_of_another_lane block.cuh 's/if \(lane == 0\) tt_fence_release/if (lane == 1) tt_fence_release/'
mutant tells_before_the_fence block.cuh 's/^    if \(lane == 0\) tt_fence_release\(system\);//; s/^        if \(lane == 0\) tt_store_words\(.*/&\n        if (lane == 0) tt_fence_release(system);/'
mutant tells_by_weak_stores block.cuh 's/tt_store_count\(some\[k\]\.word, some\[k\]\.value\)/*some[k].word = some[k].value/'
mutant tells_before_lanes_have_listed block.cuh '/^static __device__ __noinline__ void tt_tell/,/^}/{0,/^        __syncwarp\(\);/s/^        __syncwarp\(\);//}'
mutant tells_one_word block.cuh 's/tt_store_words\(\(uint32_t\)__popc\(all\)\)/tt_store_words(1)/'
mutant tells_by_all_warps block.cuh 's/tt_nthreads\(\) - tt_thread\(\) > TT_WARP \|\| //'
mutant tells_of_32_ends block.cuh 's/for \(uint32_t first = 0; first < block\.nends;/for (uint32_t first = 0; first < 1;/'
mutant never_tells_of_sent_messages block.cuh 's/must = must \|\| \(end->outgoing \? n : n >= least\)/must = must || (!end->outgoing \&\& n >= least)/'
mutant meet_tells_nothing_before_waiting meet.cuh '/^        tt_tell\(tt_most_read\(\)\);/d'

# More flags, tails and references.
mutant releases_one_early block.cuh 's/\{end->tail, end->count\}/{end->tail, end->count + 1}/'
mutant releases_before_reading step.cuh 's/^    message->at = tt_find_message/    tt_release(end, end->count + 1);\n    message->at = tt_find_message/'
mutant releases_one_too_few block.cuh 's/\{end->tail, end->count\}/{end->tail, end->count - 1}/'
mutant publishes_the_next_head block.cuh 's/tt_device_head\(end->count, /tt_device_head(end->count + 1, /'
mutant publishes_nothing_on_last_link step.cuh 's/ end->due = 1;/ end->due = message == block.out \&\& block.round == 0;/'
mutant refers_is_not_kept step.cuh 's/if \(message->refers\) end->refers = 1;//'
mutant reference_without_reach step.cuh 's/return reaches \? \(uint64_t\)reference : 0;/return (uint64_t)reference;/'
mutant reference_is_not_marked port.cuh '/^static __device__ uint64_t tt_take_reference/,/^}/s/tt_mark_reference\(note, TT_REFERENCE_TAKEN, end->system\)/tt_mark_reference(note, 0, end->system)/'
mutant reads_what_is_withdrawn step.cuh 's/while \(withdrawn\)/while (false)/'
mutant left_is_not_said run.cu 's/TT_TAIL_LEFT \| tt_end\(e\)->known_tail/tt_end(e)->known_tail/'
mutant withdraw_does_not_wait port.cuh '/^static __device__ void tt_withdraw\(/,/^}/s/\(int32_t\)\(ntaken - \(uint32_t\)tail\) > 0/false/'
mutant keeps_no_withdrawal run.cu '/^            tt_withdraw\(/,/;$/{s/.*;$/            ;/;t;d}'
mutant withdraws_older_messages port.cuh 's/\(int32_t\)\(first - \(uint32_t\)tail\) > 0 \? first : //'
# Memory that peers open.
mutant opened_reads_without_fence port.cuh '/ bool tt_begin_reading/,/^}/s/tt_fence_sc\(\);//'
mutant opened_says_no_reading port.cuh '/ bool tt_begin_reading/,/^}/s/tt_store_count\(.*\);//'
mutant opened_reads_what_is_withdrawn port.cuh '/ bool tt_begin_reading/,/^}/s/!tt_load_sys\(end->head \+ 1\)/true/'
mutant opened_asks_once port.cuh '/ bool tt_begin_reading/,/^}/s/^    if \(!end->refers\) \{/    if (end->refers) return true;\n    {/'
mutant opened_withdraws_without_fence port.cuh '/ void tt_withdraw_opened/,/^}/s/tt_fence_sc\(\);//'
mutant opened_withdraws_nothing port.cuh '/ void tt_withdraw_opened/,/^}/s/tt_store_count\(.*\);//'
mutant opened_withdraw_does_not_wait port.cuh '/ void tt_withdraw_opened/,/^}/s/^    if \(!reading \|\| .*/    return;/'
mutant opened_withdraw_waits_for_older port.cuh '/ void tt_withdraw_opened/,/^}/s/ \|\| \(int32_t\)\(\(uint32_t\)reading - first\) < 0//'
mutant opened_withdraw_ignores_leavers port.cuh '/ void tt_withdraw_opened/,/^}/s/ \|\| \(tail & TT_TAIL_LEFT\)//'
mutant opened_is_not_asked step.cuh 's/return from == TT_NOT_OPENED \? 0 : /return /'
mutant opened_is_asked_of_nobody step.cuh 's/const uint64_t from = opened \? opened\[peer\] : TT_NOT_OPENED;/const uint64_t from = opened ? 0 : TT_NOT_OPENED;/'
mutant x_opened_is_not_asked exchange.cuh 's/opens \? flow->now\.opened != TT_NOT_OPENED : end->reaches/end->reaches/'
mutant withdraws_no_message port.cuh 's/\(int32_t\)\(first - \(uint32_t\)tail\) > 0 \? first : \(uint32_t\)tail/end->count/'
mutant ended_is_not_counted_on port.cuh 's/^    state->nended = nended;//'
mutant renews_nothing port.cuh 's/^    if \(tt_device_renews\(.*\)\) tt_renew\(.*\);//'
mutant renews_no_note port.cuh 's/^    end->notes\[slot\]\.head = number;//'
mutant renews_no_line port.cuh '/^static __device__ __noinline__ void tt_renew/,/^}/s/^        tt_store_line\(.*\);/        ;/'
mutant renews_with_zero port.cuh 's/tt_store_line\(lines \+ at, 0, number, end->system\)/tt_store_line(lines + at, 0, 0, end->system)/'
mutant renews_no_head step.cuh 's/if \(!lines \|\| tt_device_renews\(.*\)\) end->due/if (!lines) end->due/'
mutant renews_one_slot_too_few port.cuh 's/tt_device_renews\(end->count, links->nslots\)/tt_device_renews(end->count, links->nslots - 1)/'
mutant meet_renews_no_head meet.cuh 's/ out->due = 1;/ ;/'
mutant fails_without_first port.cuh 's/if \(before\) return;//'

# Meetings.
mutant meet_no_barrier_after_waits meet.cuh '/ bool tt_do_meeting\(/,/^}/s/if \(!__syncthreads_and\(go\)\) return false;/if (!go) return false;/'
mutant meet_no_barrier_before_publish meet.cuh '/^    if \(!lines\) \{/{n;s/__syncthreads\(\);//}'
mutant meet_no_barrier_after_await meet.cuh 's/if \(!lines && !__syncthreads_and\(go\)\) return false;//'
mutant meet_no_barrier_after_list meet.cuh '/^static __device__ void tt_meet_list/,/^}/s/^    __syncthreads\(\);$//'
mutant meet_no_barrier_before_list meet.cuh '/^static __device__ void tt_meet_list/,/^}/s/^    __syncthreads\(\); .*//'
mutant meet_no_barrier_before_put meet.cuh '/^static __device__ void tt_meet_put_place/,/^}/s/^    __syncthreads\(\); .*//'
mutant meet_one_slot_too_many meet.cuh 's/tt_wait_for_release\(out, &watch, block.call\.links\.nslots - 1\)/tt_wait_for_release(out, \&watch, block.call.links.nslots)/'
mutant meet_does_not_await_place meet.cuh 's/if \(!tt_wait_for_message\(end, nslots, &watch, &head\)\) return .*;/head = mine;/'
mutant meet_does_not_await_lines meet.cuh 's/\(lines \? tt_meet_await_lines\(rank\) : tt_meet_await\(rank\)\)/(lines || tt_meet_await(rank))/'
mutant meet_sends_no_empty_line meet.cuh 's/if \(lines && !before\) .*//'
mutant meet_no_signature meet.cuh 's/if \(head != mine\)/if (false)/'
mutant meet_note_has_no_head meet.cuh 's/note->head = block.out\[rank\]\.head;//'
mutant meet_counts_no_meetings meet.cuh 's/^    if \(self \|\| lines\) out->count\+\+;/    if (!self \&\& lines) out->count++;/'
mutant meet_releases_too_much meet.cuh 's/^    if \(!self\) tt_count_read\(.*/&\n    if (!self) tt_release(tt_meet_end(rank, 0), tt_meet_end(rank, 0)->count + 1);/'
mutant meet_releases_rarely meet.cuh 's/^    tt_tell\(tt_most_read\(\)\);/    tt_tell(8);/'
mutant meet_system_is_forgotten meet.cuh 's/to->system = out->system;/to->system = false;/'

# Sends and receives (exchange.cuh).
mutant x_signature_is_not_looked_at exchange.cuh 's/if \(head != mine \|\| note->nbytes != flow->now\.nbytes\)/if (note->nbytes != flow->now.nbytes)/'
mutant x_length_is_not_looked_at exchange.cuh 's/if \(head != mine \|\| note->nbytes != flow->now\.nbytes\)/if (head != mine)/'
mutant x_lengths_are_not_reported exchange.cuh 's/^        flow->given->(sent|wanted) = .*;//'
mutant x_takes_what_was_not_published exchange.cuh 's/if \(\(uint32_t\)head - end->count - 1 >= block.call\.links\.nslots\) return true;//'
mutant x_one_slot_too_many exchange.cuh 's/tt_flow_may_fill\(flow, links->nslots - 1\)/tt_flow_may_fill(flow, links->nslots)/'
mutant x_does_not_wait_for_slots exchange.cuh '/tt_flow_look_for_slot/,/^}/s/if \(!tt_flow_may_fill\(.*\)\) return;//'
mutant x_does_not_drain exchange.cuh 's/flow->state == TT_FLOW_DRAINS && tt_flow_may_fill\(flow, 0\)/flow->state == TT_FLOW_DRAINS/'
mutant x_release_is_odd exchange.cuh 's/if \(end->count % 2 && flow->left\) return;/if (end->count % 2) return;/'
mutant x_releases_before_copy exchange.cuh 's/^    flow->message_left = reference \? .*/&\n    tt_release(end, end->count + 1);/'
mutant x_publishes_before_note exchange.cuh 's/^    note->reference = \(uint64_t\)flow->reference;/    tt_publish(end, head);\n&/'
mutant x_note_keeps_reference exchange.cuh 's/^    note->reference = \(uint64_t\)flow->reference;/    if (flow->reference) &/'
mutant x_note_has_no_length exchange.cuh 's/^    note->nbytes = flow->now\.nbytes;//'
mutant x_note_has_no_head exchange.cuh 's/^    note->head = head;//'
mutant x_refers_is_not_kept exchange.cuh 's/if \(flow->reference\) end->refers = 1;//'
mutant x_refers_in_the_middle exchange.cuh 's/flow->fresh && reaches/reaches/'
mutant x_refers_without_reach exchange.cuh 's/flow->fresh && reaches && flow->left/flow->fresh \&\& flow->left/'
mutant x_reads_what_is_withdrawn exchange.cuh 's/if \(withdrawn\) flow->state = TT_FLOW_STUCK;//'
mutant x_left_is_not_said exchange.cuh 's/TT_TAIL_LEFT \| flows\[i\]\.end\.known_tail/flows[i].end.known_tail/'
mutant x_keeps_no_withdrawal exchange.cuh '/^            tt_withdraw\(/,/;$/{s/.*;$/            ;/;t;d}'
mutant x_counts_are_not_kept exchange.cuh 's/^    end->count = flow->end\.count;//'
mutant x_looks_at_no_watch exchange.cuh 's/go && !flow->ready && !tt_watch\(watch\)/false/'
mutant x_abort_is_not_reported exchange.cuh 's/if \(tt_load_abort\(block.call\.report\)\)/if (false)/'
mutant x_no_barrier_after_call exchange.cuh '/tt_run_exchange\(/,/^}/s/^    __syncthreads\(\);//'
mutant x_no_barrier_after_copy exchange.cuh '/^    tt_flows_copy\(flows, n\);/{n;s/__syncthreads\(\);//}'
mutant x_copies_the_first_flow_alone exchange.cuh '/^    tt_flows_copy\(flows, n\);/s/flows, n/flows, 1/'
mutant x_a_thread_takes_no_part exchange.cuh 's/\+ blockDim\.x - before\) % blockDim\.x/+ blockDim.x - before) % (blockDim.x - 1)/'
mutant x_no_barrier_after_looks exchange.cuh 's/if \(!__syncthreads_and\(go\)\) return false;/if (!go) return false;/'
mutant x_parts_are_not_skipped exchange.cuh 's/if \(flow->now\.nparts <= given->part\) continue;//'

sum_up
