// src/api/merge.cpp: partial results over disjoint keys -> one. The formula is FlashDecoding's: with m the largest lse,
// lse = m + log(sum_i e^(lse_i - m)) and o = sum_i e^(lse_i - lse) o_i. On a GPU src/gpu/attention_forward/merge.cu
// computes the same.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "api/check.hpp"
#include "api/operand_list.hpp"
#include "api/run.hpp"
#include "args/gpu_merge_args.hpp"
#include "falchion/falchion.hpp"
#include "plan/launch.hpp"
#include "plan/text.hpp"
#include "policy/dtype.hpp"
#include "runtime/place.hpp"
#include "runtime/runtime.hpp"

namespace falchion {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double load(const Tensor& x, std::int64_t offset) {
  if (x.dtype == DType::f32) return static_cast<const float*>(x.data)[offset];
  const std::uint16_t half = static_cast<const std::uint16_t*>(x.data)[offset];
  return x.dtype == DType::f16 ? f32_from_f16(half) : f32_from_bf16(half);
}
void store(const Tensor& x, std::int64_t offset, double value) {
  const float single = static_cast<float>(value);
  if (x.dtype == DType::f32) static_cast<float*>(x.data)[offset] = single;
  if (x.dtype == DType::f16) static_cast<std::uint16_t*>(x.data)[offset] = f16_from_f32(single);
  if (x.dtype == DType::bf16) static_cast<std::uint16_t*>(x.data)[offset] = bf16_from_f32(single);
}
std::int64_t at(const Tensor& x, std::int64_t i, std::int64_t j, std::int64_t k) {
  return i * x.stride[0] + j * x.stride[1] + k * x.stride[2];
}

/// States over disjoint keys, and the one that they make.
struct Merge {
  std::span<const Tensor> o_parts, lse_parts;
  const Tensor &o, &lse;
  bool two = false;  // of the form for two, whose parts are o_a, lse_a, o_b and lse_b

  std::size_t parts() const { return o_parts.size(); }
  std::string name(const char* what, std::size_t part) const {
    return two ? text(what, part == 0 ? "_a" : "_b") : text(what, "_parts[", part, "]");
  }
};

/// The outputs and one part. The shapes follow from o: it is (b, s, h, d), an lse (b, h, s, 1). Each row is read before
/// it is written, so an output may be an input.
OperandList operands_of(const Merge& m, std::size_t part, const char* o_name, const char* lse_name) {
  const Shape any{kAnyExtent, kAnyExtent, kAnyExtent, kAnyExtent};
  const Shape states = m.o.shape;
  const Shape rows{states[0], states[2], states[1], 1};
  const Tensor &o = m.o_parts[part], &lse = m.lse_parts[part];
  OperandList list("merge", "with this o it is");
  const auto state = [&](const char* name, const Tensor& x, const Shape& shape) {
    return Operand{.name = name, .x = &x, .dtype = x.dtype, .shape = shape};  // each has a type of its own
  };
  Operand out = state("o", m.o, any);
  out.output = true;
  out.in_place = {&o};
  list.add(out);
  list.add({.name = "lse", .x = &m.lse, .shape = rows, .output = true, .in_place = {&lse}});
  list.add(state(o_name, o, states));
  list.add({.name = lse_name, .x = &lse, .shape = rows});
  return list;
}

void check_part(const Merge& m, std::size_t part, Check* check) {
  const std::string o = m.name("o", part), lse = m.name("lse", part);
  const OperandList list = operands_of(m, part, o.c_str(), lse.c_str());
  for (const Operand& operand : list.tensors()) {
    const DType dtype = operand.dtype;
    check->require(dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16, operand.name, ".dtype = ", dtype,
                   ": it must be f32, f16 or bf16");
  }
  check_operands(list, check);
  check->require(m.o.shape[3] >= 1, "o.shape[3] = ", m.o.shape[3], ": a head dim must be 1 or more");
  check_overlaps(list, check);
}

/// Calls f(name, tensor, what else its name has) for every tensor, until it returns a failure.
template <class F>
Status each_tensor(const Merge& m, const F& f) {
  if (Status status = f(std::string("o"), m.o); !status) return status;
  if (Status status = f(std::string("lse"), m.lse); !status) return status;
  for (std::size_t i = 0; i < m.parts(); ++i) {
    if (Status status = f(m.name("o", i), m.o_parts[i]); !status) return status;
    if (Status status = f(m.name("lse", i), m.lse_parts[i]); !status) return status;
  }
  return {};
}

/// The side that the merge is on, and the tensor that decides it: the first that only one side can use, or else one in
/// managed memory, which the one-call forms leave to the GPU too.
struct Side {
  bool gpu = false;
  std::string name;
};
Status find_side(const Merge& m, Side* side) {
  bool decided = false;
  return each_tensor(m, [&](const std::string& name, const Tensor& x) -> Status {
    const cuda::Place place = cuda::place_of(data_of(x));
    if (place == cuda::Place::unknown) return unknown_place(name.c_str(), "merge");
    if (decided || data_of(x) == nullptr || place == cuda::Place::pinned) return {};
    const bool gpu = place != cuda::Place::host && (place != cuda::Place::managed || cuda::is_built());
    if (place == cuda::Place::managed && side->gpu) return {};
    *side = {gpu, name};
    decided = place != cuda::Place::managed;
    return {};
  });
}

Status check_host(const Merge& m, const Side& side) {
  return each_tensor(m, [&](const std::string& name, const Tensor& x) -> Status {
    if (cuda::host_can_use(cuda::place_of(data_of(x)))) return {};
    return {Code::invalid,
            text(name, " lies on a GPU, but ", side.name, " in host memory: merge takes all on one side")};
  });
}

/// The current device, on which this thread has a context afterwards.
Status check_gpu(const Merge& m, const Side& side) {
  if (!cuda::is_built())
    return {
        Code::invalid,
        text(side.name, " lies on a GPU, and this build has no GPU variants: merge takes tensors in ", "host memory")};
  if (Status status = cuda::broken_context(); !status) return status;
  if (Status status = cuda::make_context(); !status) return status;
  return each_tensor(m, [&](const std::string& name, const Tensor& x) -> Status {
    const void* data = data_of(x);
    const cuda::Place place = cuda::place_of(data);
    if (data == nullptr || cuda::device_can_use(place)) return {};
    if (place == cuda::Place::unknown) return unknown_place(name.c_str(), "merge");
    if (place == cuda::Place::host)
      return {Code::invalid,
              text(name, " lies in host memory, but ", side.name, " on a GPU: merge takes all on one side")};
    return {Code::invalid, text(name, " lies on a GPU other than the current one, which may not use its memory")};
  });
}

void check_lse(const std::string& name, const Tensor& lse, Check* check) {
  for (std::int64_t b = 0; b < lse.shape[0]; ++b) {
    for (std::int64_t h = 0; h < lse.shape[1]; ++h) {
      for (std::int64_t i = 0; i < lse.shape[2]; ++i) {
        const double x = load(lse, at(lse, b, h, i));
        check->require(x < kInfinity, name, "[", b, ", ", h, ", ", i, "] = ", x,
                       ": neither NaN nor +inf is the lse of a state");
      }
    }
  }
}

void merge_row(const Merge& m, std::int64_t b, std::int64_t h, std::int64_t i) {
  std::array<double, gpu::kMaxMergeParts> lse, weight;
  const std::size_t parts = m.parts();
  for (std::size_t p = 0; p < parts; ++p) lse[p] = load(m.lse_parts[p], at(m.lse_parts[p], b, h, i));
  const auto largest = static_cast<std::size_t>(std::max_element(lse.begin(), lse.begin() + parts) - lse.begin());
  const double high = lse[largest];
  const bool empty = high == -kInfinity;
  double sum = 0;
  for (std::size_t p = 0; p < parts; ++p) sum += weight[p] = lse[p] == -kInfinity ? 0 : std::exp(lse[p] - high);
  const auto element = [&](std::size_t p, std::int64_t d) {
    const Tensor& x = m.o_parts[p];
    return load(x, at(x, b, i, h) + d * x.stride[3]);
  };
  for (std::int64_t d = 0; d < m.o.shape[3]; ++d) {
    // The part of weight 1 comes first. Then a merge of two is commutative to the bit, even where products and sums are
    // fused.
    double value = empty ? 0 : element(largest, d);
    for (std::size_t p = 0; p < parts; ++p) {
      // Only an empty state is left out, even if it holds NaN. A NaN of another one is kept, however small its weight.
      if (p != largest && lse[p] != -kInfinity) value += weight[p] * element(p, d);
    }
    store(m.o, at(m.o, b, i, h) + d * m.o.stride[3], empty ? 0 : value / sum);
  }
  store(m.lse, at(m.lse, b, h, i), empty ? high : high + std::log(sum));
}

Status merge_on_host(const Merge& m) {
  Check check;
  for (std::size_t i = 0; i < m.parts(); ++i) check_lse(m.name("lse", i), m.lse_parts[i], &check);
  if (!check.ok()) return check.take();
  for (std::int64_t b = 0; b < m.o.shape[0]; ++b) {
    for (std::int64_t h = 0; h < m.o.shape[2]; ++h) {
      for (std::int64_t i = 0; i < m.o.shape[1]; ++i) merge_row(m, b, h, i);
    }
  }
  return {};
}

gpu::MergeArgs gpu_args(const Merge& m) {
  gpu::MergeArgs args;
  args.s = m.o.shape[1];
  args.h = m.o.shape[2];
  args.d = m.o.shape[3];
  args.rows = m.o.shape[0] * args.s * args.h;
  args.parts = static_cast<int>(m.parts());
  args.aligned = args.d % gpu::kMergeChunk == 0;
  if (args.rows <= INT32_MAX) {
    args.by_s = Divisor(args.s);
    args.by_h = Divisor(args.h);
  }
  const auto state = [&args](const Tensor& o, const Tensor& lse) {
    const View view = view_of(o);
    args.aligned = args.aligned && rows_aligned(o) && view.stride[3] == 1;
    return gpu::MergeState{view, view_of(lse), number_of(o.dtype)};
  };
  args.merged = state(m.o, m.lse);
  for (std::size_t i = 0; i < m.parts(); ++i) args.part[i] = state(m.o_parts[i], m.lse_parts[i]);
  return args;
}

Status merge(const Merge& m, Stream stream) {
  Check check;
  for (std::size_t i = 0; i < m.parts(); ++i) check_part(m, i, &check);
  if (!check.ok()) return check.take();
  Side side;
  if (cuda::driver_is_loaded()) {
    if (Status status = find_side(m, &side); !status) return status;
    if (Status status = side.gpu ? check_gpu(m, side) : check_host(m, side); !status) return status;
  }
  if (!side.gpu) return merge_on_host(m);
  if (is_empty(m.o)) return {};
  return cuda::status_of(gpu::launch_merge(gpu_args(m), stream), "launch");
}

}  // namespace

Status merge(const Tensor* o_parts, const Tensor* lse_parts, std::size_t parts, const Tensor& o, const Tensor& lse,
             Stream stream) noexcept try {
  Check check;
  check.require(parts >= 1, "parts = ", parts, ": there must be 1 or more");
  check.supported(parts <= gpu::kMaxMergeParts, "parts = ", parts, ": merge takes up to ", gpu::kMaxMergeParts);
  check.require(o_parts != nullptr, "o_parts is null");
  check.require(lse_parts != nullptr, "lse_parts is null");
  return check.ok() ? merge(Merge{{o_parts, parts}, {lse_parts, parts}, o, lse}, stream) : check.take();
} catch (...) { return caught(); }

Status merge(const Tensor& o_a, const Tensor& lse_a, const Tensor& o_b, const Tensor& lse_b, const Tensor& o,
             const Tensor& lse, Stream stream) noexcept try {
  const std::array<Tensor, 2> o_parts{o_a, o_b}, lse_parts{lse_a, lse_b};
  return merge(Merge{o_parts, lse_parts, o, lse, true}, stream);
} catch (...) { return caught(); }

}  // namespace falchion
