// What is one of in each process.
#ifndef TUTTI_TORCH_PROCESS_H
#define TUTTI_TORCH_PROCESS_H

#include <pthread.h>

namespace tutti_torch
{

/* The process's own T. It is never freed, as threads may use it until the process ends. A child
 * made by fork has a new one: threads stay with the parent, and locks may be held for good. */
template <class T> T &of_process()
{
    static T *own = nullptr;
    static const bool made = [] {
        own = new T;
        return !pthread_atfork(nullptr, nullptr, [] { own = new T; });
    }();
    (void)made;
    return *own;
}

/* Tells a process from its parent. */
inline const void *this_process()
{
    struct Mark {
        char unused;
    };
    return &of_process<Mark>();
}

/* The error of a child that uses what its parent has made. */
inline constexpr const char *FORKED =
    "the group was made before this process was forked, and only the parent can use it; call "
    "init_process_group in the child";

} // namespace tutti_torch

#endif
