// Tensors in memory that other ranks of the host read and write in place. Such memory is taken from
// the system in pieces of a power of two, and kept for the next tensor of its size.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "backend.hpp"
#include "errors.hpp"
#include "process.hpp"

namespace tutti_torch
{

namespace
{

constexpr size_t LEAST_BYTES = 4096;
constexpr size_t MOST_KEPT = size_t{1} << 30; /* bytes of no tensor; beyond that they are freed */

struct Room {
    std::mutex lock;
    /* guarded by lock */
    std::map<size_t, std::vector<void *>> unused; /* by size */
    size_t nkept = 0;

    void *take(size_t nbytes);
    void give_back(void *memory, size_t nbytes);
};

void *Room::take(size_t nbytes)
{
    std::unique_lock<std::mutex> guard(lock);
    auto &some = unused[nbytes];
    if (!some.empty()) {
        void *memory = some.back();
        some.pop_back();
        nkept -= nbytes;
        return memory;
    }
    guard.unlock();
    void *memory;
    check(tuttiMemAlloc(&memory, nbytes), nullptr);
    return memory;
}

void Room::give_back(void *memory, size_t nbytes)
{
    std::unique_lock<std::mutex> guard(lock);
    if (nkept + nbytes <= MOST_KEPT) {
        unused[nbytes].push_back(memory);
        nkept += nbytes;
        return;
    }
    guard.unlock();
    (void)tuttiMemFree(memory);
}

} // namespace

at::Tensor Backend::allocateTensor(long size, at::TensorOptions options)
{
    TORCH_CHECK_VALUE(options.device().is_cpu(), "allocate_tensor: the device is ",
                      options.device(), ", expected cpu: tutti serves no other one");
    TORCH_CHECK_VALUE(size >= 0, "allocate_tensor: the size is ", size, ", expected 0 or more");
    const size_t itemsize = options.dtype().itemsize();
    const auto most = static_cast<long>(PTRDIFF_MAX / itemsize);
    TORCH_CHECK_VALUE(size <= most, "allocate_tensor: the size is ", size, ", expected at most ",
                      most, " elements of ", options.dtype());
    const size_t nbytes = static_cast<size_t>(size) * itemsize;
    if (!nbytes) return at::empty({size}, options);
    const size_t taken = std::bit_ceil(std::max(nbytes, LEAST_BYTES));
    Room &room = of_process<Room>();
    void *memory = room.take(taken);
    auto give_back = [taken, &room](void *at) {
        if (&room == &of_process<Room>()) room.give_back(at, taken); /* else it is the parent's */
    };
    return at::from_blob(memory, {size}, give_back, options);
}

} // namespace tutti_torch
