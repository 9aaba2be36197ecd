// tools/verify/draw.hpp: random problems. Problem i of a seed is the same on every machine and with any number of
// workers. Only its path is drawn from those of this machine.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "problem.hpp"
#include "problem/random_bits.hpp"

namespace falchion::tools::storm {

/// Gives random numbers one after the other.
class Dice {
 public:
  Dice(std::uint64_t seed, std::uint64_t index) : seed_(random_bits(seed, index)) {}

  std::uint64_t bits() { return random_bits(seed_, count_++); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  bool chance(double p) { return uniform() < p; }
  /// A number from least to most, both included.
  std::int64_t between(std::int64_t least, std::int64_t most) {
    return most <= least ? least
                         : least + static_cast<std::int64_t>(bits() % static_cast<std::uint64_t>(most - least + 1));
  }
  /// Each power of two between the bounds is as likely as the next.
  std::int64_t log_between(std::int64_t least, std::int64_t most);
  template <class T>
  T pick(std::initializer_list<T> of) {
    return of.begin()[bits() % of.size()];
  }
  template <class T>
  const T& pick(const std::vector<T>& of) {
    return of[bits() % of.size()];
  }

 private:
  std::uint64_t seed_, count_ = 0;
};

// All operations draw these in the same way.
std::int64_t draw_length(Dice* dice, std::int64_t most);    ///< 0, 1, near the edges of tiles, or anything up to most
std::int64_t draw_head_dim(Dice* dice, std::int64_t most);  ///< 1 to most; common ones are drawn more often
std::int64_t draw_group(Dice* dice);                        ///< query heads for each K/V head, 1 to 16
/// `rows` says that the last axis stays innermost, and `input` that axes may run backwards or have stride 0.
Storage draw_storage(Dice* dice, bool rows, bool input);
/// Lengths of b sequences, each at most `most`. They are ordinary, or most of them are empty, or all but one are.
std::vector<std::int64_t> draw_lengths(Dice* dice, std::int64_t b, std::int64_t most);

void draw_attention(Dice* dice, Problem* problem);
void draw_attention_backward(Dice* dice, Problem* problem);
void draw_linear_attention(Dice* dice, Problem* problem);
void draw_gemm(Dice* dice, Problem* problem);
void draw_norm(Dice* dice, Problem* problem);
void draw_norm_backward(Dice* dice, Problem* problem);
void draw_quantise(Dice* dice, Problem* problem);

/// The share of attention's problems whose K and V are a KV cache, if nothing else is asked for.
inline constexpr double kUsualCaches = 0.2;
/// The share of its other problems whose q has 8 bits.
inline constexpr double kUsualEight = 0.12;
/// What attention's problems are.
struct Mix {
  double caches = kUsualCaches, eight = kUsualEight;
  std::vector<DType> bytes{DType::e4m3, DType::i8};  // the types that q of 8 bits may have
};
/// types: the allowed ones. The caller chooses the path.
Problem draw_problem(std::uint64_t seed, std::uint64_t index, Op op, const std::vector<DType>& types,
                     const Mix& mix = {});

}  // namespace falchion::tools::storm
