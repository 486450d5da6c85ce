// Threads that complete futures, and so run the callbacks of users, which may block.
#include "callbacks.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "process.hpp"

namespace tutti_torch
{

namespace
{

constexpr size_t MOST_IDLE = 2;         /* threads that stay without work */
constexpr std::chrono::seconds REST{3}; /* a further one ends when it had none for so long */

struct Pool {
    std::mutex lock;
    std::condition_variable work, idle;
    /* guarded by lock */
    std::deque<std::function<void()>> queue;
    size_t nthreads = 0;
    size_t nidle = 0;           /* threads that wait for work */
    size_t nrunning = 0;        /* functions that run */
    bool lacks_threads = false; /* functions are queued, and the system gave no thread for one */

    void serve();
    void run_first(std::unique_lock<std::mutex> &guard);
    bool start_thread();
    void run(std::function<void()> function);
    bool finish(std::chrono::milliseconds timeout);
};

/* Runs the first function of the queue, without the lock. */
void Pool::run_first(std::unique_lock<std::mutex> &guard)
{
    std::function<void()> function = std::move(queue.front());
    queue.pop_front();
    if (queue.empty()) lacks_threads = false;
    nrunning++;
    guard.unlock();
    function();
    function = nullptr; /* frees what it holds without the lock */
    guard.lock();
    nrunning--;
    if (queue.empty() && !nrunning) idle.notify_all();
}

void Pool::serve()
{
    std::unique_lock<std::mutex> guard(lock);
    for (;;) {
        nidle++;
        const bool has_work = work.wait_for(guard, REST, [this] { return !queue.empty(); });
        const bool is_spare = nidle-- > MOST_IDLE;
        if (has_work)
            run_first(guard);
        else if (is_spare)
            break;
    }
    nthreads--;
}

/* False: the system gives no more threads. */
bool Pool::start_thread()
{
    try {
        std::thread([this] { serve(); }).detach();
    } catch (const std::exception &) {
        return false;
    }
    nthreads++;
    return true;
}

void Pool::run(std::function<void()> function)
{
    std::unique_lock<std::mutex> guard(lock);
    queue.push_back(std::move(function));
    if (queue.size() > nidle && !start_thread()) {
        lacks_threads = true;
        if (!nthreads) run_first(guard); /* nobody else would */
    }
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

bool callbacks_lack_threads()
{
    Pool &pool = of_process<Pool>();
    std::lock_guard<std::mutex> guard(pool.lock);
    return pool.lacks_threads;
}

bool finish_callbacks(std::chrono::milliseconds timeout)
{
    return of_process<Pool>().finish(timeout);
}

} // namespace tutti_torch
