// Threads that complete futures, and so run the callbacks of users, which may block.
#ifndef TUTTI_TORCH_CALLBACKS_H
#define TUTTI_TORCH_CALLBACKS_H

#include <chrono>
#include <functional>

namespace tutti_torch
{

/* Runs the function soon, in a thread that holds no lock and on which no operation of a group
 * waits. A callback that waits for a further one does not hold that one up: there are as many
 * threads as functions that run at once. Where the system gives no more threads, the function waits
 * for one of those that there are; where there is none, it runs in this thread. Any thread. */
void run_callback(std::function<void()> function);

/* Whether functions wait for a thread that runs another one, as the system gave no more threads.
 * Who waits for such a function asks again and again: threads may be lacking later only. */
bool callbacks_lack_threads();

/* Waits until all functions have ended, at most so long; false: some still run. */
bool finish_callbacks(std::chrono::milliseconds timeout);

} // namespace tutti_torch

#endif
