/* A program of a user, which the test of the installed package builds. */
#include <stdio.h>
#include <tutti.h>

int main(void)
{
    tuttiComm_t comm;
    int version = 0, value = 1, nranks = 0;
    if (tuttiGetVersion(&version) || version != TUTTI_VERSION_CODE) return 1;
    if (tuttiCommInitEnv(&comm, NULL, NULL) || tuttiCommCount(comm, &nranks)) return 2;
    if (tuttiAllReduce(&value, &value, 1, tuttiInt32, tuttiSum, comm, NULL) || value != nranks)
        return 3;
    return tuttiCommDestroy(comm) ? 4 : 0;
}
