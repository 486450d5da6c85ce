// How the ranks of a communicator find each other: the unique id goes over PyTorch's store. The
// value of the key is OK and the id, or NO and the text of rank 0's error. Rank 0 deletes the key
// when all have joined. A round that died before that leaves an id whose root has gone: ranks of
// the next round that find it wait until rank 0 has replaced it.
#include "rendezvous.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "callbacks.hpp"
#include "deadlines.hpp"

namespace tutti_torch
{

namespace
{

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr size_t MARK = 2;           /* bytes of OK and NO */
constexpr Milliseconds LOOK = 500ms; /* from one look at the peers to the next */
constexpr Milliseconds LONGEST_PAUSE = 50ms;
constexpr Milliseconds REPLACEMENT = 60s;   /* a stale id has been replaced until then */
constexpr Milliseconds LOOK_AGAIN = 100ms;  /* at an id that is stale */
constexpr Milliseconds END_OF_PROCESS = 2s; /* from its closed connections to its death */

/* The time that a meeting has. */
class Patience
{
  public:
    explicit Patience(Milliseconds timeout)
        : has_end_(timeout.count() > 0), end_(Clock::now() + (has_end_ ? timeout : 0ms))
    {
    }
    bool is_over() const
    {
        return has_end_ && Clock::now() >= end_;
    }
    /* Not more than `most`, at least 1 ms. */
    Milliseconds left(Milliseconds most) const
    {
        if (!has_end_) return most;
        const auto left = std::chrono::ceil<Milliseconds>(end_ - Clock::now());
        return std::clamp<Milliseconds>(left, 1ms, std::max<Milliseconds>(most, 1ms));
    }
    /* As the library takes it; 0: no end. */
    int left_ms() const
    {
        return has_end_ ? whole_ms(left(Milliseconds(INT_MAX))) : 0;
    }

  private:
    const bool has_end_;
    const Clock::time_point end_;
};

std::string name_of_rank(const Meeting &meeting, int rank)
{
    return renumbered("rank " + std::to_string(rank), meeting.numbering);
}

/* The store has failed. It may be part of a peer that has died, of which one learns soon after. */
[[noreturn]] void fail_store(const Meeting &meeting, const std::exception_ptr &error)
{
    const auto end = Clock::now() + END_OF_PROCESS;
    for (bool is_over = !meeting.look; !is_over; std::this_thread::sleep_for(50ms)) {
        is_over = Clock::now() >= end;
        meeting.look(); /* also after the end, where this thread has slept for longer */
    }
    TORCH_CHECK_WITH(DistBackendError, false, meeting.failure,
                     ": the store failed: ", text_of(error));
}

/* function(), which uses the store and owns what it uses. A store may not answer for long: where
 * there are peers to look at, a thread for callbacks waits for it, longer than the meeting if need
 * be. */
template <class Function>
auto with_store(const Meeting &meeting, const Patience &patience, Function function)
{
    std::packaged_task<decltype(function())()> task(std::move(function));
    auto answer = task.get_future();
    if (meeting.look)
        run_callback([own = std::make_shared<decltype(task)>(std::move(task))] { (*own)(); });
    else
        task();
    /* A question at the very deadline has two LOOKs: the process may have been stopped in one. */
    for (bool was_over = false; answer.wait_for(LOOK) != std::future_status::ready;) {
        meeting.look();
        TORCH_CHECK_WITH(DistBackendError, !was_over, meeting.failure, ": ",
                         name_of_rank(meeting, meeting.rank), " waited ", meeting.timeout.count(),
                         " ms, and the store does not answer");
        was_over = patience.is_over();
    }
    try {
        return answer.get();
    } catch (const std::exception &) {
        fail_store(meeting, std::current_exception());
    }
}

/* The store over a connection of its own: another thread's wait holds up all of the same
 * connection. */
c10::intrusive_ptr<c10d::Store> connect_again(const Meeting &meeting, const Patience &patience)
{
    return with_store(meeting, patience, [old = meeting.store] { return old->clone(); });
}

void put(const Meeting &meeting, const Patience &patience, const std::string &key,
         const std::string &value)
{
    const std::vector<uint8_t> bytes(value.begin(), value.end());
    with_store(meeting, patience, [store = meeting.store, key, bytes] { store->set(key, bytes); });
}

bool has(const Meeting &meeting, const Patience &patience, const std::string &key)
{
    return with_store(meeting, patience,
                      [store = meeting.store, key] { return store->check({key}); });
}

std::string value_of(const Meeting &meeting, const Patience &patience)
{
    return with_store(meeting, patience, [store = meeting.store, key = meeting.key] {
        const std::vector<uint8_t> value = store->get(key);
        return std::string(value.begin(), value.end());
    });
}

/* Nobody needs the keys any more; some kinds of stores cannot delete. A thread may delete them when
 * the group has ended: those of messages have the id of their group in them, so that they are no
 * later group's. */
void drop_keys(const Meeting &meeting)
{
    const auto drop = [store = meeting.store, keys = std::array{meeting.key, meeting.ready_key}] {
        for (const std::string &key : keys) {
            try {
                if (!key.empty()) store->deleteKey(key);
            } catch (const std::exception &) {
            }
        }
    };
    if (meeting.look)
        run_callback(drop);
    else
        drop();
}

/* Waits until the key is there, without a look at peers. False: the time is over. */
bool wait_at_store(const Meeting &meeting, const std::string &key, const Patience &patience)
{
    do {
        const Milliseconds most = patience.left(Milliseconds(INT_MAX));
        const auto begun = Clock::now();
        try {
            meeting.store->wait({key}, most);
            return true;
        } catch (const std::exception &) {
            /* Stores have several exceptions for a wait that was too short. */
            if (Clock::now() - begun < most - 50ms) fail_store(meeting, std::current_exception());
        }
    } while (!patience.is_over());
    return false;
}

/* Waits until the key is there, and looks at the peers. False: the time is over. The store is asked
 * again and again: PyTorch's TCP store logs a warning for each wait that was too short. */
bool wait_and_look(const Meeting &meeting, const std::string &key, const Patience &patience)
{
    Milliseconds pause = 0ms;
    Clock::time_point look = Clock::now() + LOOK;
    while (!has(meeting, patience, key)) {
        if (patience.is_over()) return false;
        pause = std::min(pause + pause / 4 + 1ms, LONGEST_PAUSE);
        std::this_thread::sleep_for(patience.left(pause));
        if (Clock::now() < look) continue;
        meeting.look();
        look = Clock::now() + LOOK;
    }
    return true;
}

/* Waits for the key that another rank sets; `lacks`: what that rank has not done. */
void await(const Meeting &meeting, const std::string &key, const Patience &patience, int other,
           const char *lacks)
{
    const bool has_come = meeting.look ? wait_and_look(meeting, key, patience)
                                       : wait_at_store(meeting, key, patience);
    TORCH_CHECK_WITH(DistBackendError, has_come, meeting.failure, ": ",
                     name_of_rank(meeting, meeting.rank), " waited ", meeting.timeout.count(),
                     " ms, and ", name_of_rank(meeting, other), " has not ", lacks);
}

tuttiUniqueId give_id(const Meeting &meeting, const Patience &patience)
{
    tuttiUniqueId id;
    const tuttiResult_t result = tuttiGetUniqueId(&id);
    if (result != tuttiSuccess) {
        put(meeting, patience, meeting.key, "NO" + last_error(result, nullptr));
        check(result, nullptr);
    }
    put(meeting, patience, meeting.key, "OK" + std::string(id.internal, sizeof id.internal));
    return id;
}

tuttiUniqueId id_of(const Meeting &meeting, const std::string &value)
{
    TORCH_CHECK_WITH(DistBackendError, value.compare(0, MARK, "OK") == 0, name_of_rank(meeting, 0),
                     " could not make the id of communicator ", meeting.numbering.name, ": ",
                     value.size() > MARK ? value.substr(MARK) : value);
    tuttiUniqueId id;
    TORCH_CHECK_WITH(DistBackendError, value.size() == MARK + sizeof id.internal, "the store has ",
                     value.size(), " bytes at the key ", meeting.key, ", expected ",
                     MARK + sizeof id.internal, ": something else uses this key");
    std::memcpy(id.internal, value.data() + MARK, sizeof id.internal);
    return id;
}

tuttiResult_t join(const Meeting &meeting, const tuttiUniqueId &id, const Patience &patience,
                   tuttiComm_t *comm)
{
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = whole_ms(meeting.timeout);
    config.initTimeoutMs = patience.left_ms();
    config.commName = meeting.numbering.name.c_str();
    config.device = -1;
    config.computeThreads = at::get_num_threads();
    return tuttiCommInitRankConfig(comm, meeting.nranks, id, meeting.rank, &config);
}

/* Whether nobody answers, or somebody else, where rank 0 was when it made the id. */
bool has_no_root(tuttiResult_t result)
{
    const std::string text = last_error(result, nullptr);
    return result == tuttiRemoteError &&
           (text.find("the root of this unique id has gone") != std::string::npos ||
            text.find("where rank 0 listens") != std::string::npos);
}

/* Waits until the value at the key is another one than `stale`. False: the time is over. */
bool await_other(const Meeting &meeting, const Patience &patience, std::string *stale)
{
    const Patience replacement(patience.left(REPLACEMENT));
    do {
        if (meeting.look) meeting.look();
        std::this_thread::sleep_for(replacement.left(LOOK_AGAIN));
        if (!has(meeting, patience, meeting.key)) continue;
        std::string value = value_of(meeting, patience);
        if (value == *stale) continue;
        *stale = std::move(value);
        return true;
    } while (!replacement.is_over());
    return false;
}

tuttiComm_t meet_as_root(const Meeting &meeting, const Patience &patience, tuttiUniqueId *id)
{
    if (!meeting.ready_key.empty())
        await(meeting, meeting.ready_key, patience, 1, "begun to receive it");
    *id = give_id(meeting, patience);
    tuttiComm_t comm = nullptr;
    check(join(meeting, *id, patience, &comm), nullptr, meeting.numbering);
    drop_keys(meeting);
    return comm;
}

tuttiComm_t meet_root(const Meeting &meeting, const Patience &patience, tuttiUniqueId *id)
{
    if (!meeting.ready_key.empty()) put(meeting, patience, meeting.ready_key, "1");
    await(meeting, meeting.key, patience, 0,
          meeting.ready_key.empty() ? "made the id" : "begun to send it");
    std::string value = value_of(meeting, patience);
    for (;;) {
        *id = id_of(meeting, value);
        tuttiComm_t comm = nullptr;
        const tuttiResult_t result = join(meeting, *id, patience, &comm);
        if (result == tuttiSuccess) return comm;
        const std::string text = renumbered(last_error(result, nullptr), meeting.numbering);
        TORCH_CHECK_WITH(DistBackendError,
                         has_no_root(result) && await_other(meeting, patience, &value), text);
    }
}

} // namespace

tuttiComm_t meet(Meeting meeting, tuttiUniqueId *used)
{
    const Patience patience(meeting.timeout);
    tuttiUniqueId id;
    if (meeting.look) meeting.store = connect_again(meeting, patience);
    const tuttiComm_t comm = meeting.rank == 0 ? meet_as_root(meeting, patience, &id)
                                               : meet_root(meeting, patience, &id);
    if (used) *used = id;
    return comm;
}

} // namespace tutti_torch
