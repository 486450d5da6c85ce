/* Text for the user, line by line. */
#ifndef TT_BASE_OUTPUT_H
#define TT_BASE_OUTPUT_H

/* Where lines go. Plain data. */
struct tt_output {
    void (*emit)(void *arg, const char *line);
    void *arg;
};

/* One line, of at most 1023 bytes. */
void tt_say(const struct tt_output *output, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
