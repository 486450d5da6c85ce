#!/bin/bash
# Plants mistakes in the interpreter kernel and says which ones test_device_run catches on a virtual GPU.
# usage: tests/device/mutants.sh BUILD [NAME...]     BUILD: the folder of a build; NAME: only these mutants
# A mutant is a sed script for one file; the kernel has fp32 sums only, so that it compiles quickly. Exit status of a run:
# 86: reported by the virtual GPU (a race, a fault, a deadlock); 1: a wrong result; 124: did not end.
set -u
build=$(realpath "$1"); shift
cd "$(dirname "$0")/../.." || exit 2
nvcc=${NVCC:-/usr/local/cuda/bin/nvcc}
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export LD_LIBRARY_PATH=$build/vgpu VGPU_DEVICES=2 VGPU_BLOCK_ORDER=shuffled VGPU_VECTOR=strict TT_DEVICE_RANKS=${TT_DEVICE_RANKS:-3}
filter=${FILTER:-run.every_algorithm*:run.a_*:run.abort*}
ncaught=0 nmutants=0

# mutant NAME FILE SED: compiles and runs.
mutant() {
    local name=$1 file=$2 script=$3 tree=$work/$1 seed status=0 how
    [ ${#only[@]} -eq 0 ] || [[ " ${only[*]} " == *" $name "* ]] || return
    mkdir -p "$tree/device" "$tree/datatype"
    cp -r src/device/kernel "$tree/device/"
    echo 'X(FLOAT32, SUM, f32_sum)' > "$tree/datatype/kernel_table.h"
    sed -i -E "$script" "$tree/device/kernel/$file"
    if [ -n "$script" ] && cmp -s "$tree/device/kernel/$file" "src/device/kernel/$file"; then
        echo "| $name | not planted: the sed script changes nothing |"; return
    fi
    if ! $nvcc -std=c++17 -O3 -lineinfo -fmad=false -ptx -arch=compute_90 -I"$tree" -Isrc -Iinclude -o "$tree.ptx" \
        "$tree/device/kernel/run.cu" 2> "$tree.log"; then
        echo "| $name | does not compile: $(grep -m1 error "$tree.log") |"; return
    fi
    for seed in ${SEEDS:-1 2}; do
        TT_TEST_KERNELS=$tree.ptx VGPU_SEED=$seed timeout ${LIMIT:-120} "$build/tests/test_device_run" --gtest_filter="$filter" > "$tree.log" 2>&1
        status=$?
        [ $status -eq 0 ] || break
    done
    how=$(grep -m1 -oE 'vgpu: (race|fault|deadlock|stall)|Failure|have not ended' "$tree.log")
    nmutants=$((nmutants + 1))
    [ $status -eq 0 ] || ncaught=$((ncaught + 1))
    if [ $status -eq 0 ]; then echo "| $name | not caught |"; else echo "| $name | caught: status $status ${how#vgpu: }, seed $seed |"; fi
    rm -rf "$tree" "$tree.ptx"
}
only=("$@")

echo "| mutant | result |"
echo "|---|---|"
mutant none run.cu ''
[ $nmutants -eq 0 ] || { [ $ncaught -eq 0 ] || { echo "the kernel without a mistake fails"; exit 1; }; nmutants=0; }

# Orders and scopes of port.cuh.
mutant a1_a2_relaxed port.cuh 's/ld\.acquire\.gpu\.global\.u64/ld.relaxed.gpu.global.u64/'
mutant a1_a2_relaxed_sys port.cuh 's/ld\.acquire\.sys\.global\.u64/ld.relaxed.sys.global.u64/'
mutant a1_a2_cta port.cuh 's/ld\.acquire\.gpu\.global\.u64/ld.acquire.cta.global.u64/'
mutant a1_a2_weak port.cuh 's/ld\.acquire\.gpu\.global\.u64/ld.global.u64/'
mutant r1_r2_relaxed port.cuh 's/st\.release\.gpu\.global\.u64/st.relaxed.gpu.global.u64/'
mutant r1_r2_relaxed_sys port.cuh '/tt_store_release/,/^}/s/st\.release\.sys\.global\.u64/st.relaxed.sys.global.u64/'
mutant r1_r2_cta port.cuh 's/st\.release\.gpu\.global\.u64/st.release.cta.global.u64/'
mutant r1_r2_weak port.cuh 's/st\.release\.gpu\.global\.u64/st.global.u64/'
mutant r3_two_stores port.cuh 's/\{ \.reg \.b128 q; mov\.b128 q, \{%1, %2\}; st\.relaxed\.gpu\.global\.b128 \[%0\], q; \}/st.relaxed.gpu.global.b64 [%0+8], %2; st.relaxed.gpu.global.b64 [%0], %1;/'
mutant r3_vector_store port.cuh 's/\{ \.reg \.b128 q; mov\.b128 q, \{%1, %2\}; st\.relaxed\.gpu\.global\.b128 \[%0\], q; \}/st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};/'
mutant r3_store_cta port.cuh 's/st\.relaxed\.gpu\.global\.b128/st.relaxed.cta.global.b128/'
mutant a3_vector_load port.cuh 's/\{ \.reg \.b128 q; ld\.relaxed\.gpu\.global\.b128 q, \[%2\]; mov\.b128 \{%0, %1\}, q; \}/ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];/'
mutant a3_load_cta port.cuh 's/ld\.relaxed\.gpu\.global\.b128/ld.relaxed.cta.global.b128/'
mutant r4_a4_relaxed port.cuh 's/atom\.acq_rel\.gpu/atom.relaxed.gpu/'
mutant r5_relaxed port.cuh 's/asm volatile\("fence\.acq_rel\.sys;" ::: "memory"\); \/\* R5 \*\///'
mutant reference_cta port.cuh 's/atom\.relaxed\.gpu\.global\.or/atom.relaxed.cta.global.or/'
mutant failure_cta port.cuh 's/atom\.relaxed\.gpu\.global\.cas/atom.relaxed.cta.global.cas/'

# Waits.
mutant a1_does_not_wait port.cuh '/tt_wait_for_message/,/^}/s/if \(\(uint32_t\).*return true;/return true;/'
mutant a1_one_early port.cuh '/tt_wait_for_message/,/^}/s/count - 1 < nslots/count < nslots/'
mutant a2_does_not_wait port.cuh '/^static __device__ bool tt_wait_for_release/,/^}/s/end->count - end->known_tail > most/false/'
mutant a2_one_slot_too_many step.cuh 's/tt_wait_for_release\(end, &watch, links->nslots - 1\)/tt_wait_for_release(end, \&watch, links->nslots)/'
mutant a3_takes_any_flag port.cuh 's/if \(\*flag == wanted\) return true;/if (*flag) { *flag = wanted; return true; }/'
mutant no_abort port.cuh '/^static __device__ bool tt_watch\(/,/^}/s/ && !tt_load_abort\(watch->report\)//'
mutant no_failure port.cuh '/^static __device__ bool tt_watch\(/,/^}/s/!tt_load_failure\(watch->state\) && //'
mutant withdraws_nothing port.cuh '/^static __device__ bool tt_withdraw_reference/,/^}/s/return before & TT_REFERENCE_TAKEN/return true/'

# Barriers.
mutant no_barrier_after_waits step.cuh '/^static __device__ bool tt_prepare\(/,/^}/s/return __syncthreads_and\(go\)/return go/'
mutant no_barrier_before_publish step.cuh 's/if \(!__syncthreads_and\(go\)\) return false;/if (!go) return false;/'
mutant no_barrier_after_publish step.cuh '/^static __device__ void tt_finish_step/,/^}/s/^    __syncthreads\(\);//'
mutant no_barrier_before_pass step.cuh '/^static __device__ void tt_list_pass/,/^}/s/^    __syncthreads\(\);//'
mutant no_barrier_between_pieces step.cuh 's/__syncthreads\(\); \/\* the pass/; \/* the pass/'
mutant no_barrier_after_resolve step.cuh '/^static __device__ void tt_resolve\(/,/^}/s/^    __syncthreads\(\);//'
mutant no_barrier_before_round run.cu '/^static __device__ bool walk/,/^}/s/^            __syncthreads\(\);//'
mutant no_barrier_in_open block.cuh '/^static __device__ bool tt_block_open/,/^}/{/tt_copy_words\(&block->call/{n;s/__syncthreads\(\);//}}'
mutant no_barrier_before_ended run.cu '/^static __device__ void run_call/,/^}/s/^    __syncthreads\(\);//'
mutant no_wait_for_call_before run.cu 's/^    if \(threadIdx.x == 0\) tt_await_ended\(.*\);//'
mutant no_barrier_after_call_before run.cu '/^static __device__ void await_call/,/^}/s/^    __syncthreads\(\);//'
mutant r7_relaxed port.cuh 's/tt_store_release\(&state->last, call->number, false\);/tt_store_count(\&state->last, call->number);/'
mutant r7_before_nended port.cuh '/^static __device__ void tt_count_ended/,/^}/{s/^    tt_store_count\(&report->nended, \+\+state->nended\);//; s/^(    if \(call->number\) tt_store_release.*)$/\1\n    tt_store_count(\&report->nended, ++state->nended);/}'

# Counters, notes, tails.
mutant releases_rarely step.cuh 's/nslots > 2 \? 2 : 1/nslots > 2 ? 4 : 2/'
mutant releases_rarely_with_two step.cuh 's/nslots > 2 \? 2 : 1/nslots > 2 ? 2 : 2/'
mutant no_release_at_end run.cu '/^static __device__ bool end_walk/,/^}/s/^        tt_release\(end, end->count\);//'
mutant no_wait_at_end run.cu 's/go = go && tt_wait_for_release\(&block->ends\[e\], &watch, 0\);/;/'
mutant publishes_before_note step.cuh '/struct tt_device_note \*note/s/^/            tt_publish(end, block->heads_out[s]);\n/'
mutant note_keeps_reference step.cuh 's/note->reference = refers \? \(uint64_t\)reference : 0;/if (refers) note->reference = (uint64_t)reference;/'
mutant note_has_no_head step.cuh 's/note->head = block->heads_out\[s\];//'
mutant no_signature_in_slots step.cuh 's/if \(head != mine\)/if (false)/'
mutant no_signature_in_lines port.cuh 's/if \(\(uint32_t\)\*flag == \(uint32_t\)wanted\) return false;/if ((uint32_t)*flag == (uint32_t)wanted) { *flag = wanted; return true; }/'
mutant empty_lines_are_not_sent step.cuh 's/ends \? 1 : 0/0/; s/step->nrecv \+ step->nsend \? 1 : 0/0/'
mutant begins_without_fence port.cuh 's/"fence\.sc\.sys;"/""/'
mutant ended_is_not_reset port.cuh 's/state->ended = 0;//'
mutant counts_are_not_kept block.cuh 's/^        tt_block_end\(block, e\)->count = block->ends\[e\]\.count;//'
mutant tails_are_not_kept block.cuh 's/^        tt_block_end\(block, e\)->known_tail = block->ends\[e\]\.known_tail;//'
mutant garbage_lines_after_failure step.cuh 's/else if \(!tt_take_line\(block, step, \(uint32_t\)i\+\+, line, &word\)\)/else if (!tt_take_line(block, step, (uint32_t)i++, line, \&word) \&\& false)/'
# More orders and scopes.
mutant a1_a2_gpu_sys port.cuh 's/ld\.acquire\.sys\.global\.u64/ld.acquire.gpu.global.u64/'
mutant r1_r2_gpu_sys port.cuh '/tt_store_release/,/^}/s/st\.release\.sys\.global\.u64/st.release.gpu.global.u64/'
mutant r1_r2_weak_sys port.cuh '/tt_store_release/,/^}/s/st\.release\.sys\.global\.u64/st.global.u64/'
mutant r3_weak port.cuh 's/st\.relaxed\.gpu\.global\.b128/st.global.b128/'
mutant a3_weak port.cuh 's/ld\.relaxed\.gpu\.global\.b128/ld.global.b128/'
mutant r3_vector_store_sys port.cuh 's/\{ \.reg \.b128 q; mov\.b128 q, \{%1, %2\}; st\.relaxed\.sys\.global\.b128 \[%0\], q; \}/st.relaxed.sys.global.v2.b64 [%0], {%1, %2};/'
mutant r4_only_acquires port.cuh 's/atom\.acq_rel\.gpu/atom.acquire.gpu/'
mutant a4_only_releases port.cuh 's/atom\.acq_rel\.gpu/atom.release.gpu/'
mutant r4_a4_cta port.cuh 's/atom\.acq_rel\.gpu/atom.acq_rel.cta/'
mutant r5_gpu port.cuh 's/fence\.acq_rel\.sys;" ::: "memory"\); \/\* R5/fence.acq_rel.gpu;" ::: "memory"); \/* R5/'
mutant r6_relaxed port.cuh '/tt_report_failure/,/^}/s/st\.release\.sys/st.relaxed.sys/'
mutant abort_weak port.cuh '/tt_load_sys/,/^}/s/ld\.relaxed\.sys\.global/ld.global/'
mutant abort_cta port.cuh '/tt_load_sys/,/^}/s/ld\.relaxed\.sys/ld.relaxed.cta/'
mutant failure_load_weak port.cuh '/tt_load_failure/,/^}/s/ld\.relaxed\.gpu/ld/'
mutant begins_with_acq_rel_fence port.cuh 's/"fence\.sc\.sys;"/"fence.acq_rel.sys;"/'
mutant begins_with_fence_of_the_gpu port.cuh 's/"fence\.sc\.sys;"/"fence.sc.gpu;"/'

# More barriers.
mutant no_barrier_at_end_of_walk run.cu '/^static __device__ bool end_walk/,/^}/s/return __syncthreads_and\(go\)/return go/'
mutant no_barrier_before_leaving run.cu '/^static __device__ void leave/,/^}/{0,/^    __syncthreads\(\);/s/^    __syncthreads\(\);//}'
mutant no_barrier_after_room block.cuh '/^static __device__ bool tt_block_open/,/^}/s/if \(!__syncthreads_and\(ready\)\) return false;/if (!ready) return false;/'
mutant no_barrier_after_tables block.cuh '/^static __device__ bool tt_block_open/,/^}/{/tt_copy_words\(\(void \*\)block->program/{n;s/__syncthreads\(\);//}}'
mutant no_barrier_after_ends block.cuh '/^static __device__ bool tt_block_open/,/^}/{/tt_copy_words\(&block->ends/{n;s/__syncthreads\(\);//}}'
mutant no_barrier_before_first_step block.cuh '/^static __device__ bool tt_block_open/,/^}/{/refers = 0;/{n;s/__syncthreads\(\);//}}'
mutant runs_without_asking run.cu 's/if \(__syncthreads_and\(runs\)\)/if (true)/'

# More flags, tails and references.
mutant releases_one_early step.cuh '/^static __device__ void tt_finish_step/,/^}/s/tt_release\(end, end->count\)/tt_release(end, end->count + 1)/'
mutant releases_before_reading step.cuh 's/^    block->messages\[i\] = tt_find_message/    tt_release(end, end->count + 1);\n    block->messages[i] = tt_find_message/'
mutant releases_one_too_few run.cu '/^static __device__ bool end_walk/,/^}/s/^        tt_release\(end, end->count\);/        tt_release(end, end->count - 1);/'
mutant publishes_the_next_head step.cuh 's/tt_publish\(end, block->heads_out\[s\]\)/tt_publish(end, block->heads_out[s] + 1)/'
mutant publishes_nothing_on_last_link step.cuh 's/^            tt_publish\(end, block->heads_out\[s\]\);/            if (s + 1 < step->nsend || s == 0 \&\& step->nsend == 1 \&\& block->round == 0) tt_publish(end, block->heads_out[s]);/'
mutant refers_is_not_kept step.cuh 's/if \(refers\) end->refers = 1;//'
mutant refers_is_not_cleared block.cuh 's/block->ends\[e\]\.refers = 0;/;/'
mutant reference_without_reach step.cuh 's/const bool refers = reference && end->reaches;/const bool refers = reference;/'
mutant reference_is_not_marked port.cuh '/^static __device__ uint64_t tt_take_reference/,/^}/s/tt_mark_reference\(note, TT_REFERENCE_TAKEN, system\)/tt_mark_reference(note, 0, system)/'
mutant reads_what_is_withdrawn step.cuh 's/while \(withdrawn\)/while (false)/'
mutant left_is_not_said run.cu 's/TT_TAIL_LEFT \| block->ends\[e\]\.known_tail/block->ends[e].known_tail/'
mutant withdraw_does_not_wait port.cuh '/^static __device__ void tt_withdraw\(/,/^}/s/\(int32_t\)\(ntaken - \(uint32_t\)tail\) > 0/false/'
mutant keeps_no_withdrawal run.cu 's/^            tt_withdraw\(.*\);/            ;/'
mutant ended_is_not_counted_on port.cuh 's/\+\+state->nended/state->nended + 1/'
mutant fails_without_first port.cuh 's/if \(before\) return;//'

# Meetings.
mutant meet_no_barrier_after_waits meet.cuh '/^static __device__ bool tt_do_meeting/,/^}/s/if \(!__syncthreads_and\(go\)\) return false;/if (!go) return false;/'
mutant meet_no_barrier_before_publish meet.cuh 's/if \(!lines\) __syncthreads\(\);//'
mutant meet_no_barrier_after_await meet.cuh 's/if \(!lines && !__syncthreads_and\(go\)\) return false;//'
mutant meet_no_barrier_after_list meet.cuh '/^static __device__ void tt_meet_list/,/^}/s/^    __syncthreads\(\);$//'
mutant meet_no_barrier_before_list meet.cuh '/^static __device__ void tt_meet_list/,/^}/s/^    __syncthreads\(\); .*//'
mutant meet_no_barrier_before_put meet.cuh '/^static __device__ void tt_meet_put_place/,/^}/s/^    __syncthreads\(\); .*//'
mutant meet_one_slot_too_many meet.cuh 's/tt_wait_for_release\(out, &watch, links->nslots - 1\)/tt_wait_for_release(out, \&watch, links->nslots)/'
mutant meet_does_not_await_place meet.cuh 's/if \(!tt_wait_for_message\(end, nslots, &watch, &head\)\) return tt_meet_fail_wait\(block, rank\);/head = mine;/'
mutant meet_does_not_await_lines meet.cuh 's/\(lines \? tt_meet_await_lines\(block, rank\) : tt_meet_await\(block, rank\)\)/(lines || tt_meet_await(block, rank))/'
mutant meet_sends_no_empty_line meet.cuh 's/if \(lines && !before\) .*//'
mutant meet_no_signature meet.cuh 's/if \(head != mine\)/if (false)/'
mutant meet_note_has_no_head meet.cuh 's/note->head = block->heads_out\[rank\];//'
mutant meet_counts_no_meetings meet.cuh 's/tt_meet_end\(block, rank, 1\)->count\+\+;/if (rank != (uint32_t)block->program->rank) tt_meet_end(block, rank, 1)->count++;/'
mutant meet_releases_too_much meet.cuh 's/tt_release\(in, in->count\)/tt_release(in, in->count + 1)/'
mutant meet_releases_rarely meet.cuh 's/nslots > 2 \? 2 : 1/nslots > 2 ? 8 : 2/'
mutant meet_system_is_forgotten meet.cuh 's/tt_meet_end\(block, rank, 1\)->system/false/'
echo "caught $ncaught of $nmutants"
