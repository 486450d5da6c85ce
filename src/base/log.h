/* The log: one line an event, to stderr or TUTTI_LOG_FILE. Where NCCL's variables count
 * (tt_config_use_nccl) lines have NCCL's form, and go to standard output if NCCL_DEBUG is given. */
#ifndef TT_BASE_LOG_H
#define TT_BASE_LOG_H

enum tt_log_level { TT_LOG_NONE, TT_LOG_WARN, TT_LOG_INFO };

/* Writes "host:pid:tid tutti LEVEL text\n", or in NCCL's form "host:pid:tid [device] NCCL LEVEL
 * text\n", in one write; to stderr only where that is still what it was at the library's first use
 * (base/stderr.h). At INFO only what TUTTI_LOG_SUBSYSTEMS lets through, by the folder of `file`.
 * Thread-safe; keeps errno. */
void tt_log(enum tt_log_level level, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The level in force (config TUTTI_LOG), read once. */
enum tt_log_level tt_log_level(void);

/* The device that this thread's lines name in NCCL's form; 0 until it was set. */
void tt_log_set_device(int device);

/* In NCCL's form, where NCCL_DEBUG is given and not NONE: "NCCL version " and the text, once a
 * process. */
void tt_log_version(const char *version);

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
