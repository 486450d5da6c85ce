/* Hides the functions that a driver of VGPU_DRIVER_VERSION has not yet: as in the library of such a
 * driver, dlsym does not find them. Their entries in the table of symbols, which the loader has
 * mapped for this process alone, become those of symbols that are not defined. */
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "settings.h"

/* The library's first byte, which the linker names. */
extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));

/* What an entry of _DYNAMIC points to. The loader adds the library's address to such entries, but
 * not on every kind of machine. */
static void *dynamic_table(ElfW(Sxword) tag)
{
    const uintptr_t base = (uintptr_t)&__ehdr_start;
    for (const ElfW(Dyn) *entry = _DYNAMIC; entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == tag)
            return (void *)(entry->d_un.d_ptr < base ? base + entry->d_un.d_ptr
                                                     : entry->d_un.d_ptr);
    return NULL;
}

/* How the part of the library that holds the address is mapped. */
static int protection_of(uintptr_t address)
{
    const uintptr_t base = (uintptr_t)&__ehdr_start;
    const ElfW(Phdr) *parts = (const void *)(base + __ehdr_start.e_phoff);
    int protection = PROT_READ;
    for (unsigned i = 0; i < __ehdr_start.e_phnum; i++) {
        const uintptr_t offset = address - base - parts[i].p_vaddr;
        if (parts[i].p_type == PT_LOAD && offset < parts[i].p_memsz)
            protection = ((parts[i].p_flags & PF_R) ? PROT_READ : 0) |
                         ((parts[i].p_flags & PF_W) ? PROT_WRITE : 0) |
                         ((parts[i].p_flags & PF_X) ? PROT_EXEC : 0);
    }
    return protection;
}

/* Before anybody asks for a symbol: at startup, or within the dlopen that loads the library. */
__attribute__((constructor)) static void hide_newer(void)
{
    const int version = vd_settings_driver_version();
    ElfW(Sym) *symbols = dynamic_table(DT_SYMTAB);
    const char *names = dynamic_table(DT_STRTAB);
    const uint32_t *hash = dynamic_table(DT_HASH); /* its second word: how many symbols */
    if (version >= 13000 || symbols == NULL || names == NULL || hash == NULL) return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)symbols & ~(page - 1);
    const size_t nbytes = (uintptr_t)(symbols + hash[1]) - first;
    const int protection = protection_of((uintptr_t)symbols);
    if (mprotect((void *)first, nbytes, protection | PROT_WRITE) != 0) return;
    for (uint32_t i = 1; i < hash[1]; i++) {
        if (symbols[i].st_shndx == SHN_UNDEF ||
            vd_proc_since(names + symbols[i].st_name) <= version)
            continue;
        symbols[i].st_shndx = SHN_UNDEF;
        symbols[i].st_value = 0;
    }
    mprotect((void *)first, nbytes, protection);
}
