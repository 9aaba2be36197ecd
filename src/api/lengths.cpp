// src/api/lengths.cpp: reports lengths that kernels would silently clamp.
#include "api/lengths.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "api/run.hpp"
#include "api/validate.hpp"
#include "base/fields.hpp"
#include "falchion/falchion.hpp"
#include "plan/text.hpp"
#include "runtime/runtime.hpp"

namespace falchion {

void check_cu_seqlens(const char* name, const std::int32_t* cu, std::int64_t b, std::int64_t total, Check* check) {
  check->require(cu[0] == 0, name, "[0] = ", cu[0], ": it must start at 0");
  for (std::int64_t i = 0; i < b && check->ok(); ++i) {
    check->require(cu[i] <= cu[i + 1], name, "[", i + 1, "] = ", cu[i + 1], " is below ", name, "[", i, "] = ", cu[i],
                   ": it must be sorted");
    // Checked in the loop, not at the end: if b is larger than the array, the loop must not read past it.
    check->require(cu[i + 1] <= total, name, "[", i + 1, "] = ", cu[i + 1], " is over the total, ", total);
  }
  if (check->ok()) check->require(cu[b] == total, name, "[", b, "] = ", cu[b], ": it must end at the total, ", total);
}

std::int64_t longest_sequence(const std::int32_t* cu, std::int64_t b) {
  std::int64_t most = 0;
  for (std::int64_t i = 0; i < b; ++i) most = std::max(most, std::int64_t{cu[i + 1]} - cu[i]);
  return most;
}

namespace {

/// No sequence is longer than the problem says. The lengths are sorted.
void check_longest(const char* name, const std::int32_t* cu, std::int64_t b, const char* longest_name,
                   std::int64_t longest, Check* check) {
  for (std::int64_t i = 0; i < b && check->ok(); ++i) {
    const std::int64_t length = std::int64_t{cu[i + 1]} - cu[i];
    check->require(length <= longest, name, ": sequence ", i, " has ", length, " rows, over ", longest_name, " = ",
                   longest);
  }
}

/// The lengths of attention that the host can read; null if absent or elsewhere.
struct ReadLengths {
  const std::int32_t *cu_q = nullptr, *cu_k = nullptr;
#define FALCHION_LENGTHS(key, ...) const std::int32_t* key = nullptr;
#include "base/fields.def"
};

/// Used lengths, or first keys. rows: the rows of all packed sequences, or of each unpacked one. used: the used lengths
/// of the same rows, which first keys may not exceed; null: there are none.
void check_used(const char* name, const std::int32_t* values, const std::int32_t* cu, const std::int32_t* used,
                std::int64_t b, std::int64_t rows, Check* check) {
  for (std::int64_t i = 0; i < b && values != nullptr && check->ok(); ++i) {
    std::int64_t limit = cu != nullptr ? std::int64_t{cu[i + 1]} - cu[i] : rows;
    if (used != nullptr && used != values) limit = std::min<std::int64_t>(limit, used[i]);
    check->require(values[i] >= 0 && values[i] <= limit, name, "[", i, "] = ", values[i], ": it must be in [0, ", limit,
                   "]");
  }
}
void check_used(const Attention& a, const Operands& x, const ReadLengths& read, Check* check) {
#define FALCHION_LENGTHS(key, side, ...) \
  check_used(#key, read.key, read.cu_##side, read.used_##side, a.b, x.side.shape[1], check);
#include "base/fields.def"
}

/// The lengths where the host can read them; they may lie on the device.
class HostLengths {
 public:
  Status read(const char* name, const std::int32_t* data, std::int64_t count) {
    data_ = data;
    const cuda::Place place = cuda::place_of(data);
    if (cuda::host_can_use(place)) return {};
    if (place == cuda::Place::unknown) return unknown_place(name, "validate_lengths");
    if (!cuda::is_built())
      return {Code::invalid, text(name, " lies on a GPU, and this build has no GPU variants, so nothing can copy it")};
    copy_.resize(static_cast<std::size_t>(count));
    data_ = copy_.data();
    Status copied = cuda::copy(copy_.data(), data, copy_.size() * sizeof(std::int32_t));
    if (!copied) copied.why = text(name, ": ", copied.why);
    return copied;
  }
  const std::int32_t* data() const { return data_; }

 private:
  const std::int32_t* data_ = nullptr;
  std::vector<std::int32_t> copy_;
};

}  // namespace

Status check_lengths_of_host(const Attention& a, const Operands& x) {
  if (!has_lengths(a)) return {};
  if (!a.packed && x.k.shape[0] != a.b) return {};  // then b may be more than there are lengths
  const auto read = [](const std::int32_t* data) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(data) % alignof(std::int32_t) == 0;
    return aligned && cuda::host_can_use(cuda::place_of(data)) ? data : nullptr;
  };
  const auto read_cu = [&](const std::int32_t* cu) { return a.packed ? read(cu) : nullptr; };
  Check check;
  ReadLengths lengths{read_cu(x.cu_seqlens_q), read_cu(x.cu_seqlens_k)};
#define FALCHION_LENGTHS(key, ...) lengths.key = read(x.key);
#include "base/fields.def"
  check_used(a, x, lengths, &check);
  return check.take();
}

Status validate_lengths(const Attention& a, const Operands& x) noexcept try {
  const Pass pass = pass_of(x);
  if (Status status = validate_problem(a, pass); !status) return status;
  if (Status status = validate_operands(a, pass, x); !status) return status;
  HostLengths cu_q, cu_k;
  if (Status status = cu_q.read("cu_seqlens_q", a.packed ? x.cu_seqlens_q : nullptr, a.b + 1); !status) return status;
  if (Status status = cu_k.read("cu_seqlens_k", a.packed ? x.cu_seqlens_k : nullptr, a.b + 1); !status) return status;
#define FALCHION_LENGTHS(key, ...) \
  HostLengths key;                 \
  if (Status status = key.read(#key, a.key ? x.key : nullptr, a.b); !status) return status;
#include "base/fields.def"
  Check check;
  if (a.packed) {
    check_cu_seqlens("cu_seqlens_q", cu_q.data(), a.b, x.q.shape[1], &check);
    check_longest("cu_seqlens_q", cu_q.data(), a.b, "s_q", a.s_q, &check);
    check_cu_seqlens("cu_seqlens_k", cu_k.data(), a.b, x.k.shape[1], &check);
    check_longest("cu_seqlens_k", cu_k.data(), a.b, "s_k", a.s_k, &check);
  }
  ReadLengths lengths{cu_q.data(), cu_k.data()};
#define FALCHION_LENGTHS(key, ...) lengths.key = key.data();
#include "base/fields.def"
  check_used(a, x, lengths, &check);
  return check.take();
} catch (...) { return caught(); }

Status validate_lengths(const LinearAttention& a, const LinearOperands& x) noexcept try {
  const Pass pass = pass_of(x);
  if (Status status = validate_problem(a, pass); !status) return status;
  if (Status status = validate_operands(a, pass, x); !status) return status;
  HostLengths cu;
  if (Status status = cu.read("cu_seqlens", a.packed ? x.cu_seqlens : nullptr, a.b + 1); !status) return status;
  Check check;
  if (a.packed) {
    check_cu_seqlens("cu_seqlens", cu.data(), a.b, x.q.shape[1], &check);
    check_longest("cu_seqlens", cu.data(), a.b, "s", a.s, &check);
  }
  return check.take();
} catch (...) { return caught(); }

}  // namespace falchion
