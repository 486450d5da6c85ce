/* Logs one line a level, the second one twice through the same "once"; says its pid on stdout. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"

int main(int argc, char **argv)
{
    printf("%d\n", (int)getpid());
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "long") == 0) {
        char text[4000];
        memset(text, 'x', sizeof text);
        text[sizeof text - 1] = '\0';
        TT_WARN("%s", text);
        return 0;
    }
    if (argc > 1 && strcmp(argv[1], "control") == 0) {
        TT_WARN("a line\nforged, and %s", "\x1b[2J");
        return 0;
    }
    TT_WARN("a warning of %d", 42);
    errno = 17;
    for (int i = 0; i < 2; i++) TT_INFO_ONCE("some information");
    return tt_fail(TT_ERR_USAGE, "a failure") == TT_ERR_USAGE && errno == 17 ? 0 : 1;
}
