// How the ranks of a group find each other: the unique id goes over PyTorch's store. The value of
// the key is OK and the id, or NO and the text of rank 0's error.
#include "rendezvous.hpp"

#include <cstring>
#include <vector>

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include "deadlines.hpp"
#include "errors.hpp"

namespace tutti_torch
{

namespace
{

constexpr size_t MARK = 2; /* bytes of OK and NO */

void put_value(const Meeting &meeting, const std::string &mark, const std::string &bytes)
{
    const std::string value = mark + bytes;
    meeting.store->set(meeting.key, std::vector<uint8_t>(value.begin(), value.end()));
}

tuttiUniqueId give_id(const Meeting &meeting)
{
    tuttiUniqueId id;
    const tuttiResult_t result = tuttiGetUniqueId(&id);
    if (result != tuttiSuccess) {
        put_value(meeting, "NO", last_error(result, nullptr));
        check(result, nullptr);
    }
    put_value(meeting, "OK", std::string(id.internal, sizeof id.internal));
    return id;
}

tuttiUniqueId get_id(const Meeting &meeting)
{
    if (meeting.timeout.count() > 0)
        meeting.store->wait({meeting.key}, meeting.timeout);
    else
        meeting.store->wait({meeting.key});
    const std::vector<uint8_t> value = meeting.store->get(meeting.key);
    const std::string text(value.begin(), value.end());
    TORCH_CHECK_WITH(DistBackendError, text.compare(0, MARK, "OK") == 0,
                     "rank 0 could not make the id of communicator ", meeting.name, ": ",
                     text.size() > MARK ? text.substr(MARK) : text);
    tuttiUniqueId id;
    TORCH_CHECK_WITH(DistBackendError, text.size() == MARK + sizeof id.internal, "the store has ",
                     text.size(), " bytes at the key ", meeting.key, ", expected ",
                     MARK + sizeof id.internal, ": something else uses this key");
    std::memcpy(id.internal, text.data() + MARK, sizeof id.internal);
    return id;
}

} // namespace

tuttiComm_t meet(const Meeting &meeting)
{
    const tuttiUniqueId id = meeting.rank == 0 ? give_id(meeting) : get_id(meeting);
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = config.initTimeoutMs = whole_ms(meeting.timeout);
    config.commName = meeting.name.c_str();
    config.device = -1;
    config.computeThreads = at::get_num_threads();
    tuttiComm_t comm;
    check(tuttiCommInitRankConfig(&comm, meeting.nranks, id, meeting.rank, &config), nullptr);
    return comm;
}

} // namespace tutti_torch
