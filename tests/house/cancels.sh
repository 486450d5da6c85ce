#!/usr/bin/env bash
# Each public function puts pthread_cancel of its thread off (TT_CANCELS_WAIT of base/thread.h), but for calls and groups, which do so where
# they may wait, and for those that only compute.
. "$(dirname "$0")/common.sh"
waits=" tuttiGroupStart tuttiGroupFail tuttiGroupEnd "
computes=" tuttiCollectiveName tuttiCollectiveHasRoot tuttiAlgorithmName tuttiAlgorithmIsDeterministic tuttiAlgorithmFits tuttiCommCount
 tuttiCommUserRank tuttiGetErrorString tuttiGetLastError tuttiGetVersion tuttiIsSettingGiven tuttiNcclSettingName tuttiPlanCost tuttiPlanCreate
 tuttiPlanCreateOnHosts tuttiPlanDestroy tuttiPlanOffHost tuttiPlanPlacement tuttiPlanPrint tuttiPlanVerify tuttiRefuse "

# Name and first statement of each public function in the files.
first_statements() {
    awk '
        /^[a-zA-Z].* \*?tutti[A-Z][A-Za-z]*\(/ && !/;$/ {
            name = $0
            sub(/\(.*/, "", name)
            sub(/.*[ *]/, "", name)
        }
        begins { print name, $1; name = ""; begins = 0 }
        /^\{$/ && name { begins = 1 }
        /^\}$/ { name = "" }' "$@"
}

nfunctions=0
while read -r name statement; do
    nfunctions=$((nfunctions + 1))
    case "${waits//$'\n'/ }${computes//$'\n'/ }" in *" $name "*) continue ;; esac
    [ "$statement" = "TT_CANCELS_WAIT;" ] || fail "$name does not begin with TT_CANCELS_WAIT"
done < <(first_statements $(ls src/communicator/*.c | grep -v collectives.c))
[ "$nfunctions" -ge 60 ] || fail "only $nfunctions public functions were found"
found=$(printf 'tuttiResult_t tuttiBad(int a)\n{\n    int b = a;\n}\n' | first_statements)
[ "$found" = "tuttiBad int" ] || fail "a function without the statement is not seen"
finish "$nfunctions public functions put cancels off, wait by themselves, or only compute"
