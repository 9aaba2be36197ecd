// python/xla/buffers.cpp: see buffers.hpp.
#include "buffers.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace falchion::xla_ffi {
namespace {

using xla::ffi::DataType;

std::string wrong(std::string_view name, const Buffer& buffer, std::string_view wanted) {
  std::string why = std::string(name) + " has the shape (";
  for (std::size_t i = 0; i < buffer.dims.size(); ++i) why += (i == 0 ? "" : ", ") + std::to_string(buffer.dims[i]);
  return why + "); it must be " + std::string(wanted);
}

/// A dense tensor of four axes, in the order in which they lie.
fal_tensor dense(const Buffer& buffer, const std::array<std::int64_t, 4>& shape) {
  return fal_tensor_dense(buffer.data, dtype_of(buffer.dtype), shape[0], shape[1], shape[2], shape[3]);
}

void swap_heads(fal_tensor* x) {
  std::swap(x->shape[1], x->shape[2]);
  std::swap(x->stride[1], x->stride[2]);
}

}  // namespace

std::int32_t dtype_of(DataType dtype) {
  switch (dtype) {
    case DataType::F32: return FAL_F32;
    case DataType::F16: return FAL_F16;
    case DataType::BF16: return FAL_BF16;
    case DataType::PRED: return FAL_BOOL;
    case DataType::S8: return FAL_I8;
    case DataType::S32: return FAL_I32;
    case DataType::F8E4M3FN: return FAL_E4M3;
    default: return FAL_AS_Q;
  }
}

std::string view(std::string_view name, const Buffer& buffer, Axes axes, bool heads_first, fal_tensor* out) {
  const auto d = buffer.dims;
  const std::size_t n = d.size();
  if (dtype_of(buffer.dtype) == FAL_AS_Q) return std::string(name) + " has a type that Falchion does not know";
  switch (axes) {
    case Axes::rows:
      if (n != 3 && n != 4) return wrong(name, buffer, "(b, s, h, d), or (rows, h, d) where lengths are packed");
      *out = n == 4 ? dense(buffer, {d[0], d[1], d[2], d[3]}) : dense(buffer, {1, d[0], d[1], d[2]});
      if (heads_first) swap_heads(out);
      return "";
    case Axes::by_token:
      if (n != 1 && n != 2 && n != 3)
        return wrong(name, buffer, "(b, s, h), (rows, h) where lengths are packed, or (h)");
      *out = n == 3 ? dense(buffer, {d[0], d[1], d[2], 1}) : dense(buffer, {1, n == 2 ? d[0] : 1, d[n - 1], 1});
      if (heads_first && n != 1) swap_heads(out);
      return "";
    case Axes::statistics:
      if (n != 2 && n != 3) return wrong(name, buffer, "(b, h_q, s_q), or (h_q, rows) where lengths are packed");
      *out = n == 3 ? dense(buffer, {d[0], d[1], d[2], 1}) : dense(buffer, {1, d[0], d[1], 1});
      return "";
    case Axes::scores:
    case Axes::state:
    case Axes::whole:
      if (n != 4) {
        return wrong(name, buffer,
                     axes == Axes::scores  ? "(b, h_q, s_q, s_k)"
                     : axes == Axes::state ? "(b, h_v, d_qk, d_v)"
                                           : "one of four axes");
      }
      *out = dense(buffer, {d[0], d[1], d[2], d[3]});
      return "";
    case Axes::slopes:
      if (n != 1 && n != 2) return wrong(name, buffer, "(h_q) or (b, h_q)");
      *out = dense(buffer, {n == 2 ? d[0] : 1, 1, d[n - 1], 1});
      return "";
    case Axes::state_z:
      if (n != 3) return wrong(name, buffer, "(b, h_v, d_qk)");
      *out = dense(buffer, {d[0], d[1], d[2], 1});
      return "";
    case Axes::lengths:
    case Axes::starts:
    case Axes::rng: break;
  }
  return std::string(name) + " is no tensor";
}

std::string check_array(std::string_view name, const Buffer& buffer, Axes axes) {
  if (axes == Axes::lengths || axes == Axes::starts) {
    if (buffer.dims.size() != 1) return wrong(name, buffer, "a list of lengths");
    return buffer.dtype == DataType::S32 ? "" : std::string(name) + " must be int32";
  }
  const bool halves = buffer.dtype == DataType::U32;
  if (!halves && buffer.dtype != DataType::U64) return std::string(name) + " must be uint32 or uint64";
  const std::int64_t wanted = halves ? 4 : 2;
  return buffer.dims.size() == 1 && buffer.dims[0] == wanted ? "" : wrong(name, buffer, halves ? "(4)" : "(2)");
}

std::string check_count(std::string_view name, const Buffer& buffer, Axes axes, std::int64_t b) {
  if (axes != Axes::lengths && axes != Axes::starts) return "";
  const bool starts = axes == Axes::starts;
  if (buffer.dims[0] == (starts ? b + 1 : b)) return "";
  return std::string(name) + " has " + std::to_string(buffer.dims[0]) + " numbers; it must have " +
         (starts ? "b + 1" : "b") + ", and b = " + std::to_string(b);
}

std::string_view next_name(std::string_view* list) {
  const std::size_t end = std::min(list->find(' '), list->size());
  const std::string_view name = list->substr(0, end);
  list->remove_prefix(std::min(end + 1, list->size()));
  return name;
}

}  // namespace falchion::xla_ffi
