// Threads that complete futures, and so run the callbacks of users, which may block.
#include "callbacks.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "process.hpp"

namespace tutti_torch
{

namespace
{

struct Pool {
    std::mutex lock;
    std::condition_variable work, idle;
    /* guarded by lock */
    std::deque<std::function<void()>> queue;
    size_t nidle = 0;    /* threads that wait for work */
    size_t nrunning = 0; /* functions that run */

    void serve();
    void run(std::function<void()> function);
    bool finish(std::chrono::milliseconds timeout);
};

void Pool::serve()
{
    std::unique_lock<std::mutex> guard(lock);
    for (;;) {
        nidle++;
        work.wait(guard, [this] { return !queue.empty(); });
        nidle--;
        std::function<void()> function = std::move(queue.front());
        queue.pop_front();
        nrunning++;
        guard.unlock();
        function();
        function = nullptr; /* frees what it holds without the lock */
        guard.lock();
        nrunning--;
        if (queue.empty() && !nrunning) idle.notify_all();
    }
}

void Pool::run(std::function<void()> function)
{
    std::lock_guard<std::mutex> guard(lock);
    queue.push_back(std::move(function));
    if (queue.size() > nidle) std::thread([this] { serve(); }).detach();
    work.notify_one();
}

bool Pool::finish(std::chrono::milliseconds timeout)
{
    std::unique_lock<std::mutex> guard(lock);
    return idle.wait_for(guard, timeout, [this] { return queue.empty() && !nrunning; });
}

} // namespace

void run_callback(std::function<void()> function)
{
    of_process<Pool>().run(std::move(function));
}

bool finish_callbacks(std::chrono::milliseconds timeout)
{
    return of_process<Pool>().finish(timeout);
}

} // namespace tutti_torch
