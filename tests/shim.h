/* GoogleTest from C: TEST registers a function, CHECK records a failure and goes on, REQUIRE
 * returns. */
#ifndef TT_TESTS_SHIM_H
#define TT_TESTS_SHIM_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called by the macros. Names are literals. */
void tt_test_register(const char *suite, const char *name, const char *file, int line,
                      void (*body)(void));
void tt_test_fail(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void tt_test_skip(const char *file, int line, const char *why);
bool tt_test_failed(void);    /* whether the running test has failed */
bool tt_test_sanitized(void); /* whether the library is built with a sanitizer */
/* Whether the next part of a sweep runs here. Without a sanitizer all do. A sanitizer needs every
 * path once, not every combination: there the first part that a test asks for runs, and of the
 * others one of n, always the same ones. For one thread of a test. */
bool tt_test_share(unsigned n);
/* For a loop that waits for another thread, process or the kernel: gives the processor up for a
 * tenth of a millisecond. With sched_yield alone such a loop takes a core for as long as it waits.
 */
void tt_test_pause(void);

#ifdef __cplusplus
}
#endif

#define TEST(suite, name)                                                                          \
    static void test_##suite##_##name(void);                                                       \
    __attribute__((constructor)) static void register_##suite##_##name(void)                       \
    {                                                                                              \
        tt_test_register(#suite, #name, __FILE__, __LINE__, test_##suite##_##name);                \
    }                                                                                              \
    static void test_##suite##_##name(void)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) tt_test_fail(__FILE__, __LINE__, "not true: %s", #condition);            \
    } while (0)
#define CHECK_MESSAGE(condition, ...)                                                              \
    do {                                                                                           \
        if (!(condition)) tt_test_fail(__FILE__, __LINE__, __VA_ARGS__);                           \
    } while (0)
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            tt_test_fail(__FILE__, __LINE__, "not true: %s", #condition);                          \
            return;                                                                                \
        }                                                                                          \
    } while (0)
#define CHECK_EQ(a, b)                                                                             \
    do {                                                                                           \
        const long long tt_a = (long long)(a), tt_b = (long long)(b);                              \
        if (tt_a != tt_b)                                                                          \
            tt_test_fail(__FILE__, __LINE__, "%s = %lld, expected %s = %lld", #a, tt_a, #b, tt_b); \
    } while (0)
#define CHECK_STR(a, b)                                                                            \
    do {                                                                                           \
        const char *tt_a = (a), *tt_b = (b);                                                       \
        if (__builtin_strcmp(tt_a, tt_b) != 0)                                                     \
            tt_test_fail(__FILE__, __LINE__, "%s = \"%s\", expected \"%s\"", #a, tt_a, tt_b);      \
    } while (0)
#define SKIP(why)                                                                                  \
    do {                                                                                           \
        tt_test_skip(__FILE__, __LINE__, why);                                                     \
        return;                                                                                    \
    } while (0)

#endif
