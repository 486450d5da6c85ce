/* Whether the code is compiled for a sanitizer that looks at memory, as macros and as functions. */
#ifndef TT_BASE_SANITIZERS_H
#define TT_BASE_SANITIZERS_H

#include <stdbool.h>

#ifdef __has_feature /* Clang's */
#if __has_feature(address_sanitizer)
#define TT_ADDRESS_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define TT_THREAD_SANITIZER 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__ /* GCC's */
#define TT_ADDRESS_SANITIZER 1
#endif
#ifdef __SANITIZE_THREAD__
#define TT_THREAD_SANITIZER 1
#endif

static inline bool tt_is_address_sanitizer(void)
{
#ifdef TT_ADDRESS_SANITIZER
    return true;
#else
    return false;
#endif
}

static inline bool tt_is_thread_sanitizer(void)
{
#ifdef TT_THREAD_SANITIZER
    return true;
#else
    return false;
#endif
}

#endif
