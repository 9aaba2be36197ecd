// python/xla/merge.cpp: see merge.hpp.
#include "merge.hpp"

#include <array>
#include <string>

namespace falchion::xla_ffi {
namespace {

constexpr std::size_t kMostParts = 32;  // of fal_merge_parts

/// Views o and lse, which are buffers i and i + 1.
template <class Buffers>
std::string take_state(const Buffers& buffers, std::size_t i, bool heads_first, fal_tensor* o, fal_tensor* lse) {
  Buffer of_o, of_lse;
  if (!buffer_at(buffers, i, &of_o) || !buffer_at(buffers, i + 1, &of_lse)) return "o and lse are buffers in turn";
  std::string why = view("o", of_o, Axes::rows, heads_first, o);
  return why.empty() ? view("lse", of_lse, Axes::statistics, heads_first, lse) : why;
}

}  // namespace

template <>
xla::ffi::Error call<Merge>(std::int32_t, const Platform& platform, const xla::ffi::RemainingArgs& inputs,
                            const xla::ffi::RemainingRets& results, xla::ffi::Dictionary dictionary) {
  Attributes attributes(dictionary);
  const bool heads_first = attributes.flag("heads_first");
  if (!attributes.why().empty()) return invalid(attributes.why());
  std::array<fal_tensor, kMostParts> o_parts{}, lse_parts{};
  fal_tensor o{}, lse{};
  const std::size_t parts = inputs.size() / 2;
  if (parts > kMostParts) return invalid("merge of " + std::to_string(parts) + " parts: it takes at most 32");
  std::string why = take_state(results, 0, heads_first, &o, &lse);
  for (std::size_t i = 0; i < parts && why.empty(); ++i)
    why = take_state(inputs, 2 * i, heads_first, &o_parts[i], &lse_parts[i]);
  if (!why.empty()) return invalid(why);
  const fal_status status = fal_merge_parts(o_parts.data(), lse_parts.data(), parts, &o, &lse, platform.stream);
  return status == FAL_OK ? xla::ffi::Error::Success() : error_of(status);
}

}  // namespace falchion::xla_ffi
