// Groups made of groups.
#include <algorithm>

#include "backend.hpp"

namespace tutti_torch
{

namespace
{

/* New options of this backend like those given, which may be another kind's or missing. */
c10::intrusive_ptr<Backend::Options>
own_options(const c10::intrusive_ptr<c10d::Backend::Options> &given,
            const c10::intrusive_ptr<c10d::Backend::Options> &usual)
{
    const auto &from = given ? given : usual;
    if (const auto same = c10::dynamic_intrusive_pointer_cast<Backend::Options>(from))
        return c10::make_intrusive<Backend::Options>(*same);
    auto own = c10::make_intrusive<Backend::Options>(from->timeout);
    own->group_name = from->group_name;
    own->global_ranks_in_group = from->global_ranks_in_group;
    return own;
}

std::string name_of(const c10::intrusive_ptr<Backend::Options> &options)
{
    return "torch group " + options->group_name;
}

} // namespace

c10::intrusive_ptr<c10d::Backend>
Backend::split(const StorePointer &store, const std::vector<int> &ranks,
               const c10::intrusive_ptr<c10d::Backend::Options> &options)
{
    const auto own = std::find(ranks.begin(), ranks.end(), rank_);
    if (own == ranks.end()) return nullptr;
    const auto chosen = own_options(options, options_);
    return c10::make_intrusive<Backend>(store->clone(), static_cast<int>(own - ranks.begin()),
                                        static_cast<int>(ranks.size()), name_of(chosen), chosen);
}

c10::intrusive_ptr<c10d::Backend>
Backend::merge(const StorePointer &store, const c10::intrusive_ptr<c10d::Backend::Options> &options,
               const int &rank, const int &size)
{
    const auto chosen = own_options(options, options_);
    return c10::make_intrusive<Backend>(store->clone(), rank, size, name_of(chosen), chosen);
}

} // namespace tutti_torch
