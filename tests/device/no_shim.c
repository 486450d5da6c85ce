/* In place of the tests' shim, for programs that are no tests themselves: calls of the driver that
 * fail end the process. */
#include <stdio.h>
#include <stdlib.h>

#include "shim.h"

void tt_test_fail(const char *file, int line, const char *format, ...)
{
    (void)format;
    fprintf(stderr, "%s:%d: a call of the driver failed\n", file, line);
    exit(3);
}
