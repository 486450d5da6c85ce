/* Reads the memory of another process with process_vm_readv. */
#include "transport/host/cma.h"

#include <errno.h>
#include <sys/uio.h>

int tt_cma_probe(int pid, uint64_t address, uint64_t expected)
{
    uint64_t got = 0;
    struct iovec local = {&got, sizeof got};
    struct iovec remote = {(void *)(uintptr_t)address, sizeof got};
    const ssize_t nbytes = process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (nbytes < 0) return errno;
    return nbytes == sizeof got && got == expected ? 0
                                                   : ESRCH; /* another process under that number */
}

tt_status tt_cma_read(int pid, uint64_t address, void *to, size_t nbytes)
{
    for (size_t done = 0; done < nbytes;) {
        struct iovec local = {(char *)to + done, nbytes - done};
        struct iovec remote = {(void *)(uintptr_t)(address + done), nbytes - done};
        const ssize_t got = process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (got <= 0)
            return tt_fail_errno(got ? errno : EFAULT,
                                 "cannot read %zu bytes of process %d (process_vm_readv)",
                                 nbytes - done, pid);
        done += (size_t)got;
    }
    return TT_OK;
}
