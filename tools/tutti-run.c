/* tutti-run: starts a program once for every rank, on this host or several, and looks after them.
 */
#include "run.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "escape.h"
#include "programs/streams.h"

int64_t run_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static char where[80]; /* " on HOST", of a server */

void run_say_where(const char *host)
{
    snprintf(where, sizeof where, " on %s", host);
}

void run_say(const char *format, ...)
{
    char said[1024], text[1024];
    va_list args;
    const int used = snprintf(said, sizeof said, "tutti-run%s: ", where);
    va_start(args, format);
    vsnprintf(said + used, sizeof said - (size_t)used, format, args);
    va_end(args);
    size_t length = strlen(escape_controls(text, sizeof text - 1, said));
    text[length++] = '\n';
    (void)run_output_put(STDERR_FILENO, text, length);
}

int main(int argc, char **argv)
{
    struct run run = {.port_holder = -1, .control = -1, .front = -1, .written = -1};
    streams_begin("tutti-run");
    run_options_parse(&run.options, argc, argv);
    int code = run.options.serve ? run_receive_job(&run) : 0;
    if (code == 0 && run_divide(&run, &code)) {
        const bool several = run.options.hosts || run.options.hostfile;
        code = several ? run_launch_hosts(&run) : run_launch(&run);
        run.exit_code = code == 0 ? run_supervise(&run) : code;
        run_flush(&run);
        code = run.exit_code;
    }
    free(run.members);
    free(run.commands);
    free(run.options.exported);
    free(run.job);
    return code;
}
