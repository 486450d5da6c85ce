/* The threads of this process. */
#ifndef TT_TESTS_THREADS_H
#define TT_TESTS_THREADS_H

#include <dirent.h>
#include <time.h>

static inline int count_now(void)
{
    int n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *task; tasks && (task = readdir(tasks));) n += task->d_name[0] != '.';
    if (tasks) closedir(tasks);
    return n;
}

/* The threads that stay: the one that served a unique id ends a moment after the last rank came. */
static inline int count_threads(void)
{
    enum { LOOKS = 40, MOST_LOOKS = 2000 };
    int n = count_now();
    for (int same = 0, i = 0; same < LOOKS && i < MOST_LOOKS; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        const int now = count_now();
        same = now == n ? same + 1 : 0;
        n = now;
    }
    return n;
}

#endif
