/* Whether the code is compiled for a sanitizer that looks at memory. */
#ifndef TT_BASE_SANITIZERS_H
#define TT_BASE_SANITIZERS_H

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

#endif
