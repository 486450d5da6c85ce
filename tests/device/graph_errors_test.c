/* Captured calls that cannot succeed: what the errors say, and that nothing hangs. */
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "../driver/calls.h"
#include "graphs.h"
