// The module tutti_torch._C: how Python makes the backend.
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/functional.h>

#include "backend.hpp"
#include "errors.hpp"

namespace py = pybind11;

namespace tutti_torch
{

namespace
{

using OptionsPointer = c10::intrusive_ptr<Backend::Options>;

c10::intrusive_ptr<c10d::Backend> create(const StorePointer &store, int rank, int size,
                                         const std::string &name, const OptionsPointer &options,
                                         const c10::intrusive_ptr<c10d::ProcessGroup> &group)
{
    auto backend = c10::make_intrusive<Backend>(store, rank, size, name, options);
    backend->watch(group.get());
    return backend;
}

/* PyTorch has no such function for Python. NULL: takes the hook away. */
void set_completion_hook(const c10::intrusive_ptr<c10d::Backend> &backend,
                         const std::function<void()> &hook)
{
    constexpr int64_t id = -1; /* PyTorch's own begin at 0 */
    if (hook)
        backend->registerCompletionHook(id, [hook](const auto &) { hook(); });
    else
        backend->unregisterCompletionHook(id);
}

} // namespace

PYBIND11_MODULE(_C, module)
{
    module.doc() = "The backend tutti of torch.distributed (use init_process_group('tutti'))";
    py::module_::import("torch.distributed");

    py::class_<Backend::Options, OptionsPointer, c10d::Backend::Options>(
        module, "Options", "Options of the backend tutti.")
        .def(py::init([](std::chrono::milliseconds timeout) {
                 return c10::make_intrusive<Backend::Options>(timeout);
             }),
             py::arg("timeout") = kBackendDefaultTimeout);

    module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"),
               py::arg("name"), py::arg("options"), py::arg("group"),
               py::call_guard<py::gil_scoped_release>(),
               "Makes this rank's end of a group; all ranks of the group call it.");
    module.def(
        "_renumbered",
        [](const std::string &text, const std::string &name, const std::vector<int> &ranks) {
            return renumbered(text, {name, ranks});
        },
        "For tests: a text of a communicator with the group's numbers of the ranks.");
    module.def("_set_completion_hook", &set_completion_hook, py::arg("backend"), py::arg("hook"),
               py::call_guard<py::gil_scoped_release>(),
               "For tests: calls the hook after each call of the group; None: no more.");
    module.def("leave", &Backend::leave,
               "Ends all groups of the process; what is queued has a second to complete.");
}

} // namespace tutti_torch
