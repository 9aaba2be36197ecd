// python/xla/merge.hpp: merge as a custom call. Its buffers have no names: they are o and lse of each part in turn.
#pragma once

#include "call.hpp"

namespace falchion::xla_ffi {

struct Merge;

template <>
xla::ffi::Error call<Merge>(std::int32_t pass, const Platform& platform, const xla::ffi::RemainingArgs& inputs,
                            const xla::ffi::RemainingRets& results, xla::ffi::Dictionary dictionary);

}  // namespace falchion::xla_ffi
