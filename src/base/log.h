/* The log: one line an event, to stderr or TUTTI_LOG_FILE. */
#ifndef TT_BASE_LOG_H
#define TT_BASE_LOG_H

enum tt_log_level { TT_LOG_NONE, TT_LOG_WARN, TT_LOG_INFO };

/* Writes "host:pid:tid tutti LEVEL text\n" in one write; to stderr only where that is still what it
 * was at the library's first use (base/stderr.h). Thread-safe; keeps errno. */
void tt_log(enum tt_log_level level, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The level in force (config TUTTI_LOG), read once. */
enum tt_log_level tt_log_level(void);

#define TT_LOG_AT(level, ...)                                                                      \
    do {                                                                                           \
        if (tt_log_level() >= (level)) tt_log((level), __FILE__, __LINE__, __VA_ARGS__);           \
    } while (0)
#define TT_WARN(...) TT_LOG_AT(TT_LOG_WARN, __VA_ARGS__)
#define TT_INFO(...) TT_LOG_AT(TT_LOG_INFO, __VA_ARGS__)

/* Says it once per process and call site. */
#define TT_LOG_ONCE(level, ...)                                                                    \
    do {                                                                                           \
        static int tt_said;                                                                        \
        if (!__atomic_exchange_n(&tt_said, 1, __ATOMIC_RELAXED)) TT_LOG_AT((level), __VA_ARGS__);  \
    } while (0)
#define TT_WARN_ONCE(...) TT_LOG_ONCE(TT_LOG_WARN, __VA_ARGS__)
#define TT_INFO_ONCE(...) TT_LOG_ONCE(TT_LOG_INFO, __VA_ARGS__)

#endif
