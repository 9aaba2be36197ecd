// src/api/trace_dump.cpp: writes the inputs of a run into a .safetensors file: each tensor in C order under the
// operand's name, and the problem's line as metadata. `falchion run --dump FILE` runs it again.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "api/trace.hpp"
#include "base/size.hpp"
#include "plan/json.hpp"
#include "plan/operation.hpp"
#include "runtime/runtime.hpp"

namespace falchion::trace {
namespace {

const char* type_name(DType x) {
  switch (x) {
    case DType::f32: return "F32";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
    case DType::boolean: return "BOOL";
    case DType::e4m3: return "F8_E4M3";
    case DType::e5m2: return "F8_E5M2";
    case DType::i32: return "I32";
    default: return "I8";
  }
}

/// The elements of a tensor in C order. From a device they come in one copy of all the memory between the first and the
/// last of them.
std::vector<std::byte> elements_of(const Tensor& x) {
  if (is_empty(x) || x.data == nullptr) return {};
  const std::int64_t size = size_of(x.dtype);
  std::int64_t low = 0, high = 0, count = 1;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const std::int64_t last = x.shape[axis] > 1 ? (x.shape[axis] - 1) * x.stride[axis] : 0;
    (last < 0 ? low : high) += last;
    count *= x.shape[axis];
  }
  const auto* from = static_cast<const std::byte*>(x.data);
  std::vector<std::byte> copied;
  if (!cuda::host_can_use(cuda::place_of(x.data))) {
    copied.resize(static_cast<std::size_t>((high - low + 1) * size));
    if (!cuda::copy(copied.data(), from + low * size, copied.size())) return {};
    from = copied.data() - low * size;
  }
  std::vector<std::byte> out(static_cast<std::size_t>(count * size));
  std::byte* to = out.data();
  const auto step = [&](std::size_t axis, std::int64_t i) { return x.shape[axis] > 1 ? i * x.stride[axis] : 0; };
  for (std::int64_t i = 0; i < x.shape[0]; ++i)
    for (std::int64_t j = 0; j < x.shape[1]; ++j)
      for (std::int64_t k = 0; k < x.shape[2]; ++k)
        for (std::int64_t l = 0; l < x.shape[3]; ++l, to += size)
          std::memcpy(to, from + (step(0, i) + step(1, j) + step(2, k) + step(3, l)) * size,
                      static_cast<std::size_t>(size));
  return out;
}

/// An output is read if gradients are accumulated into it.
bool is_read(const PlanData& plan, const Operand& operand) {
  const bool adds = plan.is<AttentionPlan>() && plan.attention().problem.grads == Grads::accumulate;
  return !operand.output || adds;
}

std::string header_of(const Json& metadata, const std::vector<const Operand*>& read,
                      const std::vector<std::vector<std::byte>>& bytes) {
  Json header = Json::object({{"__metadata__", metadata}});
  std::size_t at = 0;
  for (std::size_t i = 0; i < read.size(); ++i) {
    const std::size_t end = at + bytes[i].size();
    std::vector<Json> shape(read[i]->x->shape.begin(), read[i]->x->shape.end());
    header = header.with(read[i]->name, Json::object({{"dtype", type_name(read[i]->x->dtype)},
                                                      {"shape", Json::array(shape)},
                                                      {"data_offsets", Json::array(std::vector<Json>{at, end})}}));
    at = end;
  }
  std::string out = header.text();
  out.resize((out.size() + 7) / 8 * 8, ' ');
  return out;
}

/// First under another name, so that a killed run leaves the file of the previous one.
bool write(const std::string& path, const std::string& header, const std::vector<std::vector<std::byte>>& bytes) {
  const std::string part = path + ".part";
  struct Close {
    void operator()(std::FILE* file) const { static_cast<void>(std::fclose(file)); }
  };
  const std::unique_ptr<std::FILE, Close> file(std::fopen(part.c_str(), "wb"));
  if (file == nullptr) return false;
  const std::uint64_t length = header.size();
  bool good = std::fwrite(&length, sizeof length, 1, file.get()) == 1;
  good = good && std::fwrite(header.data(), 1, header.size(), file.get()) == header.size();
  for (const std::vector<std::byte>& piece : bytes)
    good = good && std::fwrite(piece.data(), 1, piece.size(), file.get()) == piece.size();
  return good && std::fflush(file.get()) == 0 && std::rename(part.c_str(), path.c_str()) == 0;
}

}  // namespace

template <class Operands_>
void dump(const PlanData& plan, const Operands_& x, const OperandList& list) noexcept try {
  const char* path = wanted().dump;
  if (path == nullptr) return;
  if (is_gpu(plan.backend) && !cuda::synchronize()) return;  // what fills the operands may still run
  std::vector<const Operand*> read;
  std::vector<std::vector<std::byte>> bytes;
  for (const Operand& operand : list.tensors()) {
    if (!operand.wanted || !is_read(plan, operand)) continue;
    read.push_back(&operand);
    bytes.push_back(elements_of(*operand.x));
  }
  std::string note;
  const Json metadata = Json::object({{"writer", std::string("falchion ") + version()},
                                      {"describe", describe(plan)},
                                      {"problem", line::to_text(problem_of(plan, x, list, true, &note))},
                                      {"note", note}});
  static_cast<void>(write(path, header_of(metadata, read, bytes), bytes));
} catch (...) { static_cast<void>(plan); }

template void dump(const PlanData&, const Operands&, const OperandList&) noexcept;
template void dump(const PlanData&, const LinearOperands&, const OperandList&) noexcept;
template void dump(const PlanData&, const GemmOperands&, const OperandList&) noexcept;
template void dump(const PlanData&, const NormOperands&, const OperandList&) noexcept;
template void dump(const PlanData&, const QuantiseOperands&, const OperandList&) noexcept;

}  // namespace falchion::trace
