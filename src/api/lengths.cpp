// src/api/lengths.cpp: what kernels clamp in silence, said aloud.
#include <cstdint>

#include "api/check.hpp"
#include "api/validate.hpp"
#include "falchion/falchion.hpp"

namespace falchion {
namespace {

void check_cu_seqlens(const char* name, const std::int32_t* cu, std::int64_t b, std::int64_t total,
                      const char* longest_name, std::int64_t longest, Check* check) {
  check->require(cu[0] == 0, name, "[0] = ", cu[0], ": it starts at 0");
  for (std::int64_t i = 0; i < b && check->ok(); ++i) {
    check->require(cu[i] <= cu[i + 1], name, "[", i + 1, "] = ", cu[i + 1], " is below ", name, "[", i, "] = ", cu[i],
                   ": it is sorted");
    const std::int64_t length = std::int64_t{cu[i + 1]} - cu[i];
    check->require(length <= longest, name, ": sequence ", i, " has ", length, " rows, over ", longest_name, " = ",
                   longest);
  }
  check->require(cu[b] == total, name, "[", b, "] = ", cu[b], ": it ends at the total, ", total);
}

void check_used(const char* name, const std::int32_t* used, const std::int32_t* cu, std::int64_t b,
                std::int64_t capacity, Check* check) {
  for (std::int64_t i = 0; i < b && check->ok(); ++i) {
    const std::int64_t limit = cu != nullptr ? std::int64_t{cu[i + 1]} - cu[i] : capacity;
    check->require(used[i] >= 0 && used[i] <= limit, name, "[", i, "] = ", used[i], ": it is in [0, ", limit, "]");
  }
}

}  // namespace

Status validate_lengths(const Attention& a, const Operands& x) noexcept try {
  if (Status status = validate_problem(a, Pass::forward); !status) return status;
  if (Status status = validate_operands(a, x); !status) return status;
  Check check;
  if (a.packed) {
    check_cu_seqlens("cu_seqlens_q", x.cu_seqlens_q, a.b, x.q.shape[1], "s_q", a.s_q, &check);
    check_cu_seqlens("cu_seqlens_k", x.cu_seqlens_k, a.b, x.k.shape[1], "s_k", a.s_k, &check);
  }
  if (a.used_q) check_used("used_q", x.used_q, x.cu_seqlens_q, a.b, a.s_q, &check);
  if (a.used_k) check_used("used_k", x.used_k, x.cu_seqlens_k, a.b, a.s_k, &check);
  return check.take();
} catch (...) { return caught(); }

}  // namespace falchion
