// tools/picture/map.hpp: from an instance to the picture of one of its heads, for `falchion map` and `falchion demo`.
#pragma once

#include <string>

#include "problem/instance.hpp"

namespace falchion::tools {

/// The SVG of head `head` of sequence `batch`. Throws UsageError for a head that does not exist, packed tensors, and
/// problems whose probabilities would take more than 1 GiB.
std::string attention_map(const Instance& instance, std::int64_t batch, std::int64_t head, const std::string& title,
                          const Target& target);

}  // namespace falchion::tools
