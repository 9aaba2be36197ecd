// tools/verify/attention/shrink.cpp: what may be simpler in a problem of softmax attention.
#include <cstddef>

#include "base/fields.hpp"
#include "verify/shrink_steps.hpp"

namespace falchion::tools::storm {
namespace {

/// Keys of a tensor instead of a cache, rows instead of pages, and pages that lie in a simpler way.
void simplify_cache(const Problem& from, Steps* steps) {
  offer(from, steps, [](Problem& p) { p.attention.split_keys = 0; });
  if (!from.attention.cache) return;
  offer(from, steps, [](Problem& p) {
    p.attention.cache = false;
    if (p.attention.packed) p.lengths_k.assign(p.lengths_q.size(), p.attention.s_k);
  });
  offer(from, steps, [](Problem& p) { p.attention.dtype_k = DType::as_q; });
  offer(from, steps, [](Problem& p) { p.k_scale = p.v_scale = {7}; });
  offer(from, steps, [](Problem& p) { p.attention.append = false; });
  offer(from, steps, [](Problem& p) { p.attention.rotary_dim = 0; });
  offer(from, steps, [](Problem& p) { p.attention.rotary_pairs = false; });
  smaller(from, steps, 2, [](Problem& p) -> std::int64_t& { return p.attention.rotary_dim; });
  smaller(from, steps, 1, [](Problem& p) -> std::int64_t& { return p.positions; });
  offer(from, steps, [](Problem& p) { p.attention.page_size = 0; });
  for (std::size_t i = 0; i < from.pages.size(); ++i)
    offer(from, steps, [&](Problem& p) { p.pages.erase(p.pages.begin() + static_cast<std::ptrdiff_t>(i)); });
  for (const std::int64_t size : {std::int64_t{1}, std::int64_t{16}, from.attention.page_size / 2})
    if (size > 0 && size < from.attention.page_size)
      offer(from, steps, [&](Problem& p) { p.attention.page_size = size; });
}

/// q of a usual type, v of 8 bits instead of 16, scales that more share.
void simplify_bytes_of_q(const Problem& from, Steps* steps) {
  if (!is_8bit(from.attention.dtype)) return;
  offer(from, steps, [](Problem& p) { p.attention.dtype = DType::bf16; });
  offer(from, steps, [](Problem& p) { p.attention.dtype_v = DType::e4m3; });
  offer(from, steps, [](Problem& p) { p.attention.dtype_o = DType::as_q; });
  offer(from, steps, [](Problem& p) { p.attention.k_scale_rows = 0; });
  offer(from, steps, [](Problem& p) { p.attention.k_scale_rows = 128; });
  if (const std::int64_t two_blocks = from.attention.k_scale_rows + 1; from.attention.s_k > two_blocks)
    offer(from, steps, [&](Problem& p) { p.attention.s_k = two_blocks; });
  for (Broadcast Problem::*scale : {&Problem::q_scale, &Problem::k_scale, &Problem::v_scale})
    offer(from, steps, [&](Problem& p) { p.*scale = {7}; });
}

}  // namespace

void simplify_attention(const Problem& from, Steps* steps) {
  using enum FieldKind;
  each_field(from.attention, [&](const Field& field, const auto&) {
    const bool is_feature =
        field.kind == tensor || field.kind == output || field.kind == lengths || field.kind == number;
    if (field.forward && is_feature) offer(from, steps, [&](Problem& p) { reset(&p.attention, field); });
  });
  simplify_cache(from, steps);
  simplify_bytes_of_q(from, steps);
  if (from.attention.packed && from.attention.b > 0)
    offer(from, steps, [](Problem& p) {
      p.attention.packed = false;
      p.attention.b = 1;
      p.attention.s_q = p.lengths_q[0];
      if (!p.attention.cache) p.attention.s_k = p.lengths_k[0];
    });
  offer(from, steps, [](Problem& p) { p.rng_in_memory = false; });
  offer(from, steps, [](Problem& p) { p.origin = {}; });
  offer(from, steps, [](Problem& p) { p.slopes_by_batch = false; });
  offer(from, steps, [](Problem& p) { p.sinks_by_batch = false; });
  offer(from, steps, [](Problem& p) { p.attention.band = {}; });
  offer(from, steps, [](Problem& p) { p.attention.band.left = Band::unbounded; });
  if (from.attention.band.align != Align::unset)  // which is simpler still
    offer(from, steps, [](Problem& p) { p.attention.band.align = Align::bottom_right; });
  offer(from, steps, [](Problem& p) { p.attention.band.right = Band::unbounded; });
  offer(from, steps, [](Problem& p) { p.attention.band.offset = 0; });
  offer(from, steps, [](Problem& p) { p.attention.band.offset /= 2; });
  offer(from, steps, [](Problem& p) { p.bias = {}; });
  offer(from, steps, [](Problem& p) { p.mask = {}; });
  offer(from, steps, [](Problem& p) { p.bias_dtype = DType::f32; });
  offer(from, steps, [](Problem& p) { p.attention.h_q = p.attention.h_k; });
  if (from.attention.h_k > 0) {
    const std::int64_t group = from.attention.h_q / from.attention.h_k;
    for (const std::int64_t heads : {std::int64_t{1}, from.attention.h_k / 2})
      if (heads > 0)
        offer(from, steps, [&](Problem& p) {
          p.attention.h_k = heads;
          p.attention.h_q = heads * group;
        });
    for (const std::int64_t g : {std::int64_t{1}, group / 2, group - 1})
      if (g > 0) offer(from, steps, [&](Problem& p) { p.attention.h_q = p.attention.h_k * g; });
  }
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.attention.s_q; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.attention.s_k; });
  smaller(from, steps, 1, [](Problem& p) -> std::int64_t& { return p.attention.d_qk; });
  smaller(from, steps, 1, [](Problem& p) -> std::int64_t& { return p.attention.d_v; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.attention.band.left; });
  smaller(from, steps, 0, [](Problem& p) -> std::int64_t& { return p.attention.band.right; });
}

}  // namespace falchion::tools::storm
