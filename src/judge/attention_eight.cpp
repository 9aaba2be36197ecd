// src/judge/attention_eight.cpp: see attention_eight.hpp. It makes each row once more in double.
#include "judge/attention_eight.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/fields.hpp"
#include "ref/query.hpp"

namespace falchion::judge {
namespace {

/// e4m3 has 3 bits of fraction, so a rounded P is off by 2^-4 of itself. One that is made of a rounded score, as if the
/// mantissa were a logarithm, is off by 0.078 of itself (docs/design/sm90_fp8.md), and the sum of the P by as much.
constexpr double kRounding = 0.085;
/// Codes of P below 2^-6 stand for less than they should, and a kernel may have 2^5 for P's largest number, not 2^8.
constexpr double kLostP = 0x1p-12;
/// Beside a sink, weights of V as small as this may be lost: a kernel's reference may be 60 bits below the top, and f32
/// ends at 2^-126.
constexpr double kLostWeight = 0x1p-64;
/// Of sums of magnitudes, for their roundings in f32.
constexpr double kSums = 0x1p-20;
/// Sums of products of e4m3 keep 13 bits on Hopper; those of i8 are exact, and f32 rounds what follows.
constexpr double kByteSums = 0x1p-11, kScores = 0x1p-21;

/// One row: p of the keys that it sees, as the definition has them.
struct Row {
  std::vector<double> p;  // exp(s - the largest)
  std::vector<std::int64_t> keys;
  double l = 0, score_off = 0;
  double share_of_sink = 0;  // of l

  explicit Row(const ref::Query<double>& query) {
    std::vector<double> scores;
    double most = -std::numeric_limits<double>::infinity(), size = 0, products = 0;
    for (std::int64_t j = 0; j < query.k_rows.length; ++j) {
      if (!query.sees(j)) continue;
      keys.push_back(j);
      scores.push_back(query.score(j));
      most = std::max(most, scores.back());
      size = std::max(size, std::abs(scores.back()));
      products = std::max(products, products_of(query, j));
    }
    const double sink = query.sink(), top = std::max(most, sink);
    for (const double s : scores) p.push_back(std::exp(s - top));
    for (const double one : p) l += one;
    const double of_sink = query.a.sinks ? std::exp(sink - top) : 0;
    l += of_sink;
    share_of_sink = of_sink / l;
    if (query.a.dtype == DType::e4m3) score_off = kByteSums * products;
    score_off += kScores * (std::isfinite(sink) ? std::max(size, std::abs(sink)) : size);
  }
  /// scale * sum |q k| of a key.
  static double products_of(const ref::Query<double>& query, std::int64_t j) {
    const std::int64_t offset = query.key_offset(query.x.k, j);
    double sum = 0;
    for (std::int64_t d = 0; d < query.a.d_qk; ++d)
      sum += std::abs(query.q[d] * double{ref::load(query.x.k, offset + ref::at(query.x.k, 3, d))});
    return std::abs(sum * query.mod.scale * query.q_scale() * query.k_scale(j));
  }
};

/// The bounds of one row's elements of o.
void add_row(const ref::Query<double>& query, const Row& row, std::int64_t at, EightBounds* out) {
  const double n = static_cast<double>(row.p.size());
  const double most = *std::max_element(row.p.begin(), row.p.end()), factor = std::abs(query.v_factor());
  const double by_scores = std::expm1(std::min(row.score_off, 100.));
  for (std::int64_t d = 0; d < query.a.d_v; ++d) {
    const auto v = [&](std::size_t i) {
      return double{ref::load(query.x.v, query.key_offset(query.x.v, row.keys[i]) + ref::at(query.x.v, 3, d))};
    };
    double o = 0, spread = 0, sum = 0, largest = 0;
    for (std::size_t i = 0; i < row.p.size(); ++i) o += row.p[i] * v(i);
    o /= row.l;
    for (std::size_t i = 0; i < row.p.size(); ++i) {
      spread += row.p[i] * std::abs(v(i) - o);
      sum += row.p[i] * std::abs(v(i));
      largest = std::max(largest, std::abs(v(i)));
    }
    const double lost = kLostP * most * largest;
    const auto element = static_cast<std::size_t>(at + d);
    const double scores = by_scores * spread + kSums * sum;
    // With a sink small weights may vanish, and all P may be off by the same, and the sink not.
    const double vanished = query.a.sinks ? kLostWeight * largest : 0;
    const double by_sink = kRounding * std::abs(o) * row.share_of_sink;
    out->each[element] = factor * ((kRounding * spread + scores + n * lost) / row.l + vanished);
    out->slack[element] = factor * ((scores + std::sqrt(n) * lost / 2) / row.l + by_sink + vanished);
  }
}

}  // namespace

EightBounds::EightBounds(const Attention& a, const Operands& x) {
  const auto& o = x.o.shape;
  const bool of_bytes = dtype_of_v(a) == DType::e4m3;
  if (of_bytes) each.assign(static_cast<std::size_t>(o[0] * o[1] * o[2] * o[3]), 0);
  slack = each;
  for (std::int64_t b = 0; b < a.b; ++b)
    for (std::int64_t h = 0; h < a.h_q; ++h) {
      ref::Query<double> query = ref::Query<double>::of(a, x, b, h, {});
      for (std::int64_t i = 0; i < query.q_rows.length; ++i) {
        query.load_q(i);
        const Row row(query);
        if (row.p.empty()) continue;
        ++rows;
        seen += static_cast<std::int64_t>(row.p.size());
        if (std::isfinite(row.score_off)) score = std::max(score, row.score_off + (of_bytes ? kRounding : 0));
        const std::int64_t at = ((query.q_rows.batch * o[1] + query.q_rows.begin + i) * o[2] + h) * o[3];
        if (of_bytes) add_row(query, row, at, this);
      }
    }
}

}  // namespace falchion::judge
