#!/usr/bin/env bash
# No descriptor of the library gets number 0, 1 or 2 (src/base/private_fd.h), and no write ends the process by a signal
# (src/base/write.h): this finds calls that bypass the one place for each.
. "$(dirname "$0")/common.sh"

# What makes a descriptor, or may: the calls of the system, and of libraries that keep some (-> of a table that was loaded).
makers='(^|[^A-Za-z0-9_>.])(open(at)?2?|creat|socket|socketpair|accept4?|pipe2?|dup[23]?|memfd_(create|secret)|epoll_create1?|eventfd|timerfd_create|signalfd|inotify_init1?|fanotify_init|userfaultfd|perf_event_open|fopen|freopen|fdopendir|opendir|scandir|popen|tmpfile|mkstemp|mkostemp|shm_open|mq_open|recvmsg|getaddrinfo|getnameinfo|getifaddrs|if_nametoindex|if_nameindex|dlopen|dlmopen|sodium_init|hwloc_topology_load|syslog|openlog|make_context) *\(|SYS_pidfd_(open|getfd)|SYS_(memfd_secret|io_uring_setup|userfaultfd)|F_DUPFD|(->|table\.)(open_device|get_device_list|create_comp_channel|Init|DevicePrimaryCtxRetain|MemGetHandleForAddressRange|init) *\('

# bypassing FILE: lines that call a maker outside of hold ... release or begin ... end. A release ends with its statement.
bypassing() {
    awk -v makers="$makers" '
        /^ *(\/\*|\*|\/\/)/ { next }
        /^[^ \t#}{]/ { held = 0; ending = 0 }
        {
            line = $0
            gsub(/"([^"\\]|\\.)*"/, "\"\"", line)
            sub(/\/\*.*/, "", line)
            if (line ~ /tt_(low_fd_hold|private_fd_begin)\(/) held = 1
            if (line ~ /^[ \t]/ && line ~ makers && !held) print FILENAME ":" FNR ": " $0
            if (line ~ /tt_(low_fd_release|private_fd_end)\(/) ending = 1
            if (ending && line ~ /;[ \t]*$/) { held = 0; ending = 0 }
        }' "$1"
}

# The test itself.
sample=$(mktemp)
trap 'rm -f "$sample"' EXIT
for text in '    const int fd = socket(AF_INET, SOCK_STREAM, 0);' '    x = (int)syscall(SYS_pidfd_open, pid, 0);' \
    '    tt_private_fd_begin();
    a = tt_private_fd_end(accept(b, NULL, NULL));
    c = accept(b, NULL, NULL);' '    if (!fopen(path, "r")) return;'; do
    echo "$text" >"$sample"
    [ "$(bypassing "$sample" | wc -l)" -eq 1 ] || fail "this test does not find the one call that bypasses in: $text"
done
for text in '    tt_private_fd_begin();
    a = tt_private_fd_end(
        accept4(b, NULL, NULL, c));' '    tt_low_fd_hold();
    DIR *tasks = opendir("/proc");
    (void)tt_low_fd_release(-1);' '    fail("open() of socket(%d)", fd);' '/* fopen() waits. */' '    room->open(x); reopen(y); tt_open(z);'; do
    echo "$text" >"$sample"
    [ -z "$(bypassing "$sample")" ] || fail "this test finds a call that bypasses in: $text"
done

# The one place opens for all others.
mapfile -t library < <(sources '*.c' '*.h' | grep '^src/' | grep -vxE 'src/base/private_fd\.c')
for file in "${library[@]}"; do
    while read -r hit; do
        case $hit in
        src/transport/tcp/tcp.c:*recvmsg* | src/bootstrap/exchange.c:*recvmsg*) ;; # these ask for no descriptors
        src/transport/rdma/rdma_device.c:*"->open_device("* | src/transport/rdma/rdma_device.c:*"->create_comp_channel("*) ;; # inside tt_rdma_open
        *) fail "opens a descriptor outside of tt_low_fd_hold and tt_private_fd_begin (src/base/private_fd.h): $hit" ;;
        esac
    done < <(bypassing "$file")
done

# Writes: a socket's have MSG_NOSIGNAL (on the same line or the next two), others are those of base/write.c.
writes='(^|[^A-Za-z0-9_>.])(write|writev|pwrite|pwritev2?|ftruncate|truncate|posix_fallocate|dprintf|printf|vprintf|puts|putchar|fprintf|vfprintf|fputs|fputc|fwrite|perror|psignal|sendfile|splice|vmsplice|copy_file_range) *\('
sends='(^|[^A-Za-z0-9_>.])(send|sendto|sendmsg|sendmmsg) *\('
for file in "${library[@]}"; do
    [ "$file" != src/base/write.c ] || continue
    while read -r hit; do fail "writes as base/write.c does not (SIGPIPE, SIGXFSZ): $hit"; done \
        < <(grep -nHE "$writes" "$file" | grep -vE '^[^:]*:[0-9]+: *(/?\*|//)' || true)
    while read -r hit; do fail "sends without MSG_NOSIGNAL: $hit"; done < <(awk -v sends="$sends" '
        /^ *(\/\*|\*|\/\/)/ { next }
        $0 ~ sends { at = FNR; text = $0; rest = "" }
        at { rest = rest $0 }
        at && /;[ \t]*$/ { if (rest !~ /MSG_NOSIGNAL/) print FILENAME ":" at ": " text; at = 0 }' "$file")
done
# Programs of ours begin with streams_begin or streams_open (programs/streams.h); perf tests share a main.
mapfile -t programs < <(sources '*.c' | grep -E '^(tools|trainer|perf-tests)/' | grep -v '^perf-tests/peers/')
for file in $(grep -lE '^int (main|perf_main)\(' "${programs[@]}"); do
    awk '/^int (main|perf_main)\(/ { inside = 1 } inside && /(streams_(begin|open)|perf_main)\(.*;/ { found = 1 } END { exit !found }' "$file" ||
        fail "$file: main does not begin with streams_begin (programs/streams.h)"
done
finish "${#library[@]} files open descriptors and write through base"
