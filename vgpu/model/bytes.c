/* Bytes that the host or another process accesses at the same time: an aligned access of 1, 2, 4, 8
 * or 16 bytes is one access for them too (8.2.2: a .b128 access is a scalar one).
 *
 * 16 bytes on x86-64: an aligned SSE move is one access on every processor that has AVX, as Intel
 * and AMD say; on others cmpxchg16b is. Elsewhere the compiler's atomic operations are used where
 * they need no lock; where they do, 16 bytes are two accesses of 8. */
#include "internal.h"

struct line {
    uint64_t half[2];
};

#ifdef __x86_64__
#include <emmintrin.h>

static bool line_exchange(void *to, struct line *expected, const struct line *wanted)
{
    bool done;
    __asm__ volatile("lock cmpxchg16b %1"
                     : "=@ccz"(done), "+m"(*(struct line *)to), "+a"(expected->half[0]),
                       "+d"(expected->half[1])
                     : "b"(wanted->half[0]), "c"(wanted->half[1])
                     : "memory");
    return done;
}

static void line_read(const void *from, void *value)
{
    if (__builtin_cpu_supports("avx")) {
        __m128i line;
        __asm__ volatile("movdqa %1, %0" : "=x"(line) : "m"(*(const __m128i *)from) : "memory");
        memcpy(value, &line, sizeof line);
        return;
    }
    struct line line = {{0, 0}}; /* zeros become zeros, anything else is read */
    line_exchange((void *)(uintptr_t)from, &line, &line);
    memcpy(value, &line, sizeof line);
}

static void line_write(void *to, const void *value)
{
    if (__builtin_cpu_supports("avx")) {
        __m128i line;
        memcpy(&line, value, sizeof line);
        __asm__ volatile("movdqa %1, %0" : "=m"(*(__m128i *)to) : "x"(line) : "memory");
        return;
    }
    struct line old = {{0, 0}}, line;
    memcpy(&line, value, sizeof line);
    while (!line_exchange(to, &old, &line)) continue;
}

#else

enum { LOCK_FREE = __atomic_always_lock_free(sizeof(struct line), 0) };

static bool line_exchange(void *to, struct line *expected, const struct line *wanted)
{
    struct line line = *wanted;
    if (LOCK_FREE)
        return __atomic_compare_exchange((struct line *)to, expected, &line, false,
                                         __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    memcpy(to, &line, sizeof line);
    return true;
}

static void line_read(const void *from, void *value)
{
    struct line line;
    if (LOCK_FREE)
        __atomic_load((const struct line *)from, &line, __ATOMIC_ACQUIRE);
    else
        for (int i = 0; i < 2; i++)
            line.half[i] = __atomic_load_n((const uint64_t *)from + i, __ATOMIC_ACQUIRE);
    memcpy(value, &line, sizeof line);
}

static void line_write(void *to, const void *value)
{
    struct line line;
    memcpy(&line, value, sizeof line);
    if (LOCK_FREE)
        __atomic_store((struct line *)to, &line, __ATOMIC_RELEASE);
    else
        for (int i = 0; i < 2; i++)
            __atomic_store_n((uint64_t *)to + i, line.half[i], __ATOMIC_RELEASE);
}
#endif

#define PIECE(type, body)                                                                          \
    {                                                                                              \
        type word;                                                                                 \
        body i += sizeof word;                                                                     \
    }
#define READ(type)                                                                                 \
    PIECE(type, word = __atomic_load_n((const type *)(const void *)(from + i), __ATOMIC_ACQUIRE);  \
          memcpy((unsigned char *)value + i, &word, sizeof word);)
#define WRITE(type)                                                                                \
    PIECE(type, memcpy(&word, (const unsigned char *)value + i, sizeof word);                      \
          __atomic_store_n((type *)(void *)(to + i), word, __ATOMIC_RELEASE);)

void vg_bytes_read(const unsigned char *from, void *value, uint64_t nbytes)
{
    for (uint64_t i = 0; i < nbytes;) {
        if (nbytes - i >= 16) {
            line_read(from + i, (unsigned char *)value + i);
            i += 16;
        } else if (nbytes - i >= 8)
            READ(uint64_t)
        else if (nbytes - i >= 4)
            READ(uint32_t)
        else if (nbytes - i >= 2)
            READ(uint16_t)
        else
            READ(uint8_t)
    }
}

void vg_bytes_write(unsigned char *to, const void *value, uint64_t nbytes)
{
    for (uint64_t i = 0; i < nbytes;) {
        if (nbytes - i >= 16) {
            line_write(to + i, (const unsigned char *)value + i);
            i += 16;
        } else if (nbytes - i >= 8)
            WRITE(uint64_t)
        else if (nbytes - i >= 4)
            WRITE(uint32_t)
        else if (nbytes - i >= 2)
            WRITE(uint16_t)
        else
            WRITE(uint8_t)
    }
}

#define EXCHANGE(type)                                                                             \
    {                                                                                              \
        type expected, wanted;                                                                     \
        memcpy(&expected, old, sizeof expected);                                                   \
        memcpy(&wanted, value, sizeof wanted);                                                     \
        const bool done = __atomic_compare_exchange_n((type *)(void *)to, &expected, wanted,       \
                                                      false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);  \
        memcpy(old, &expected, sizeof expected);                                                   \
        return done;                                                                               \
    }

static bool line_change(void *to, void *old, const void *value)
{
    struct line expected, wanted;
    memcpy(&expected, old, sizeof expected);
    memcpy(&wanted, value, sizeof wanted);
    const bool done = line_exchange(to, &expected, &wanted);
    memcpy(old, &expected, sizeof expected);
    return done;
}

bool vg_bytes_exchange(unsigned char *to, void *old, const void *value, uint32_t nbytes)
{
    if (nbytes == 1) EXCHANGE(uint8_t)
    if (nbytes == 2) EXCHANGE(uint16_t)
    if (nbytes == 4) EXCHANGE(uint32_t)
    if (nbytes == 8) EXCHANGE(uint64_t)
    return line_change(to, old, value);
}
