# shellcheck shell=bash disable=SC2034,SC2154
# Sourced with the caller's arguments by verify_all.sh and verify_hosts.sh, which have a function `usage` and
# $root: sets bin (a path, which need not exist), quick and verbose, 0 or 1, and every, a number.
bin=$root/build/bin quick=0 verbose=0 every=1
while [ $# -gt 0 ]; do
    case $1 in
    --bin) bin=${2:?--bin wants a folder} && shift ;;
    --quick) quick=1 ;;
    --every) every=${2:?--every wants a number} && shift ;;
    --verbose) verbose=1 ;;
    -h | --help) usage && exit 0 ;;
    *) echo "${0##*/}: '$1' is no option" >&2 && usage >&2 && exit 2 ;;
    esac
    shift
done
[[ $every =~ ^[1-9][0-9]{0,3}$ ]] || { echo "${0##*/}: --every takes 1 to 9999, not '$every'" >&2 && exit 2; }
