// src/api/lengths.cpp: reports lengths that kernels would silently clamp.
#include "api/lengths.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "api/run.hpp"
#include "api/validate.hpp"
#include "base/divide.hpp"
#include "base/fields.hpp"
#include "base/size.hpp"
#include "falchion/falchion.hpp"
#include "plan/text.hpp"
#include "policy/mask.hpp"
#include "ref/query.hpp"
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
  const std::int64_t rows_q = x.q.shape[1], rows_k = a.cache ? a.s_k : x.k.shape[1];
#define FALCHION_LENGTHS(key, side, ...) \
  check_used(#key, read.key, read.cu_##side, read.used_##side, a.b, rows_##side, check);
#include "base/fields.def"
}

/// How many sequences the keys are of, where they say it.
std::int64_t sequences_of_keys(const Attention& a, const Operands& x) {
  if (a.page_size == 0) return a.packed && !a.cache ? a.b : x.k.shape[0];
  return x.page_starts != nullptr ? a.b : x.page_table.shape[0];
}

/// The pages of all sequences, whose table and lengths the host can read. A page below 0 is one that was given back, so
/// it is reported only where a query sees its keys.
void check_pages(const Attention& a, const Operands& x, Check* check) {
  const CachePages pages = pages_of(a, x);
  for (std::int64_t i = 0; i <= a.b && x.page_starts != nullptr && check->ok(); ++i) {
    const std::int64_t least = i == 0 ? 0 : x.page_starts[i - 1];
    check->require(least <= x.page_starts[i] && x.page_starts[i] <= pages.columns, "page_starts[", i,
                   "] = ", x.page_starts[i], ": it must be in [", least, ", ", pages.columns, "]");
  }
  for (std::int64_t b = 0; b < a.b && check->ok(); ++b) {
    check->require(x.used_k[b] <= pages.room(b), "used_k[", b, "] = ", x.used_k[b], ": its pages hold ", pages.room(b),
                   " keys");
    const ref::Rows q = ref::queries_of(x, b), k = ref::keys_of(a, x, b);
    const BandMask mask = BandMask::make(k.length, a.band.shift(q.length, k.length), a.band.left, a.band.right);
    const Range seen = mask.visible(0, q.length);
    const std::int64_t first = pages.first_column(b), columns = ceil_div(k.begin + k.length, a.page_size);
    for (std::int64_t n = 0; n < columns && check->ok(); ++n) {
      const std::int64_t row = x.page_starts == nullptr ? b : 0, column = first + n;
      const std::int32_t page = pages.table[row * pages.stride_sequence + column * pages.stride_page];
      const bool is_seen = q.length > 0 && !seen.empty() && (n + 1) * a.page_size > k.begin + seen.begin &&
                           n * a.page_size < k.begin + seen.end;
      check->require(page < pages.count && (page >= 0 || !is_seen), "page_table[", row, "][", column, "] = ", page,
                     ": it must be in [0, ", pages.count, ")", is_seen ? ", since its keys are seen" : "");
    }
  }
}

/// Rotary embedding: the rows of each sequence stand at positions of the table.
void check_positions(const Attention& a, const Operands& x, Check* check) {
  for (std::int64_t b = 0; b < a.b && a.rotary_dim > 0 && check->ok(); ++b) {
    const std::int64_t rows = ref::queries_of(x, b).length;
    const std::int64_t last = ref::new_keys_of(a, x, b, rows).position(rows - 1);
    check->require(rows == 0 || last < x.rotary.shape[1], "rotary: the last row of sequence ", b,
                   " stands at position ", last, ", and there are ", x.rotary.shape[1]);
  }
}

/// No two sequences append to one slot.
void check_new_keys(const Attention& a, const Operands& x, Check* check) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> taken;  // page and row, by which sequence
  for (std::int64_t b = 0; b < a.b && a.append; ++b) {
    const std::int64_t rows = ref::queries_of(x, b).length;
    const NewKeys fresh = ref::new_keys_of(a, x, b, rows);
    for (std::int64_t i = 0; i < rows && check->ok(); ++i) {
      const KeyPlace place = fresh.at(i);
      if (!place.exists()) continue;
      const auto [other, is_first] = taken.emplace(std::pair(place.batch, place.row), b);
      check->require(is_first, "page_table: sequences ", other->second, " and ", b, " append to row ", place.row,
                     " of page ", place.batch);
    }
  }
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
  /// All from the first element of a tensor to its last; `data` is then where its index 0 lies.
  Status read(const char* name, const Tensor& x) {
    std::int64_t low = 0, high = 0;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      const std::int64_t last = x.shape[axis] > 1 ? (x.shape[axis] - 1) * x.stride[axis] : 0;
      (last < 0 ? low : high) += last;
    }
    if (is_empty(x)) return {};
    Status status = read(name, static_cast<const std::int32_t*>(x.data) + low, high - low + 1);
    data_ -= low;
    return status;
  }
  const std::int32_t* data() const { return data_; }

 private:
  const std::int32_t* data_ = nullptr;
  std::vector<std::int32_t> copy_;
};

}  // namespace

Status check_lengths_of_host(const Attention& a, const Operands& x) {
  if (!has_lengths(a)) return {};
  if (sequences_of_keys(a, x) != a.b) return {};  // then b may be more than there are lengths
  const auto read = [](const std::int32_t* data) {
    const bool aligned = reinterpret_cast<std::uintptr_t>(data) % alignof(std::int32_t) == 0;
    return aligned && cuda::host_can_use(cuda::place_of(data)) ? data : nullptr;
  };
  const auto read_cu = [&](const std::int32_t* cu, bool packed) { return packed ? read(cu) : nullptr; };
  Check check;
  ReadLengths lengths{read_cu(x.cu_seqlens_q, a.packed), read_cu(x.cu_seqlens_k, a.packed && !a.cache)};
#define FALCHION_LENGTHS(key, ...) lengths.key = read(x.key);
#include "base/fields.def"
  check_used(a, x, lengths, &check);
  return check.take();
}

Status validate_lengths(const Attention& a, const Operands& x) noexcept try {
  const Pass pass = pass_of(x);
  if (Status status = validate_problem(a, pass); !status) return status;
  if (Status status = validate_operands(a, pass, x); !status) return status;
  HostLengths cu_q, cu_k, table, starts;
  const bool packed_k = a.packed && !a.cache;
  if (Status status = cu_q.read("cu_seqlens_q", a.packed ? x.cu_seqlens_q : nullptr, a.b + 1); !status) return status;
  if (Status status = cu_k.read("cu_seqlens_k", packed_k ? x.cu_seqlens_k : nullptr, a.b + 1); !status) return status;
  if (Status status = table.read("page_table", a.page_size > 0 ? x.page_table : Tensor{}); !status) return status;
  if (Status status = starts.read("page_starts", x.page_starts, a.b + 1); !status) return status;
#define FALCHION_LENGTHS(key, ...) \
  HostLengths key;                 \
  if (Status status = key.read(#key, a.key ? x.key : nullptr, a.b); !status) return status;
#include "base/fields.def"
  Check check;
  if (a.packed) {
    check_cu_seqlens("cu_seqlens_q", cu_q.data(), a.b, x.q.shape[1], &check);
    check_longest("cu_seqlens_q", cu_q.data(), a.b, "s_q", a.s_q, &check);
  }
  if (packed_k) {
    check_cu_seqlens("cu_seqlens_k", cu_k.data(), a.b, x.k.shape[1], &check);
    check_longest("cu_seqlens_k", cu_k.data(), a.b, "s_k", a.s_k, &check);
  }
  ReadLengths lengths{cu_q.data(), cu_k.data()};
#define FALCHION_LENGTHS(key, ...) lengths.key = key.data();
#include "base/fields.def"
  check_used(a, x, lengths, &check);
  if (!a.cache || !check.ok()) return check.take();
  Operands on_host = x;
  on_host.cu_seqlens_q = cu_q.data();
#define FALCHION_LENGTHS(key, ...) on_host.key = key.data();
#include "base/fields.def"
  on_host.page_table.data = const_cast<std::int32_t*>(table.data());
  on_host.page_starts = starts.data();
  if (a.page_size > 0) check_pages(a, on_host, &check);
  if (check.ok()) check_positions(a, on_host, &check);
  if (check.ok() && a.page_size > 0) check_new_keys(a, on_host, &check);
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
