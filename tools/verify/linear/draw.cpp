// tools/verify/linear/draw.cpp: random problems of linear attention, both passes.
#include <algorithm>

#include "verify/draw.hpp"

namespace falchion::tools::storm {
namespace {

double tokens(const Problem& p) {
  if (!p.linear.packed) return static_cast<double>(p.linear.b * p.linear.s);
  return static_cast<double>(sum(p.lengths_q) + p.spare);
}

/// The definition's work, which takes one column of the state after the other.
double work(const Problem& p) {
  const LinearAttention& a = p.linear;
  const double passes = (p.pass() == Pass::backward ? 6 : 1) * (a.normalise ? 2 : 1);
  return passes * tokens(p) * static_cast<double>(a.h_v * a.d_qk * a.d_v);
}
double elements(const Problem& p) {
  const LinearAttention& a = p.linear;
  return tokens(p) * static_cast<double>(a.h_qk * a.d_qk + a.h_v * a.d_v) +
         static_cast<double>(a.b * a.h_v * a.d_qk * a.d_v);
}

/// Reduces large sizes until the definition takes a reasonable time.
void fit(Dice* dice, double budget, double most_elements, Problem* p) {
  LinearAttention& a = p->linear;
  for (int i = 0; i < 200 && (work(*p) > budget || elements(*p) > most_elements); ++i) {
    const std::int64_t choice = dice->between(0, 9);
    if (choice < 3 && a.h_qk > 1) {
      const std::int64_t group = a.h_v / a.h_qk;
      a.h_qk = (a.h_qk + 1) / 2;
      a.h_v = group * a.h_qk;
    } else if (choice == 3 && a.h_v > a.h_qk) {
      a.h_v = a.h_qk * ((a.h_v / a.h_qk + 1) / 2);
    } else if (choice < 6 && a.b > 1) {
      a.b = (a.b + 1) / 2;
      tidy(p);
    } else if (choice < 7) {
      (a.d_qk > a.d_v ? a.d_qk : a.d_v) = (std::max(a.d_qk, a.d_v) + 1) / 2;
    } else {
      a.s = (a.s + 1) / 2;
      for (std::int64_t& n : p->lengths_q) n = n > 1 ? (n + 1) / 2 : n;
    }
  }
}

void draw_sizes(Dice* dice, Problem* p) {
  LinearAttention& a = p->linear;
  const double kind = dice->uniform();
  const bool long_one = kind > 0.8, many = kind < 0.15;
  a.b = many ? dice->log_between(4, 64) : dice->between(1, 4);
  a.h_qk = dice->between(1, many ? 12 : 4);
  a.h_v = a.h_qk * (dice->chance(0.6) ? 1 : dice->pick<std::int64_t>({2, 3, 4, 5, 8, 16}));
  a.s = draw_length(dice, long_one ? 5000 : many ? 80 : 600);
  a.d_qk = draw_head_dim(dice, long_one || many ? 64 : 256);
  a.d_v = dice->chance(0.6) ? a.d_qk : draw_head_dim(dice, long_one || many ? 64 : 256);
  if (dice->chance(0.3)) {
    a.packed = true;
    p->lengths_q = draw_lengths(dice, a.b, a.s);
    if (dice->chance(0.3)) p->spare = dice->between(1, 40);
  }
  if (dice->chance(0.01)) a.b = 0;
  if (dice->chance(0.01)) a.h_qk = a.h_v = 0;
  fit(dice, dice->chance(0.02) ? 1e8 : dice->chance(0.6) ? 4e6 : 2e7, 3e6, p);
  if (a.packed && dice->chance(0.1)) a.s = dice->chance(0.5) ? a.s / 2 : a.s * 2;
  if (dice->chance(0.2)) p->segments = static_cast<int>(dice->between(1, 9));
}

void draw_features(Dice* dice, Problem* p) {
  LinearAttention& a = p->linear;
  if (dice->chance(0.3)) a.scale = dice->pick({1.F, -0.3F, 0.05F});
  if (dice->chance(0.35)) a.feature_map = FeatureMap::elu_plus_one;
  a.normalise = dice->chance(a.feature_map == FeatureMap::elu_plus_one ? 0.5 : 0.1);
  // Otherwise the divisor could be near 0.
  if (a.normalise && a.feature_map == FeatureMap::identity) p->data.shape = "positive";
  a.reverse = dice->chance(0.25);
  a.decay = dice->pick({Decay::none, Decay::none, Decay::head, Decay::token, Decay::token});
  p->data.decay =
      a.decay == Decay::none ? Data{}.decay : dice->pick<const char*>({"weak", "weak", "mixed", "strong", "forget"});
  a.initial_state = dice->chance(0.4);
  a.final_state = dice->chance(0.4);
  p->in_place = dice->chance(0.3);
  if (dice->chance(0.1)) {
    p->data.q = dice->pick({0.1F, 8.F});
    p->data.k = dice->pick({0.1F, 4.F});
  }
  // Only forward, because the contract says nothing of NaN and Inf in the backward pass.
  if (p->pass() == Pass::forward && dice->chance(0.03))
    p->data.plant.emplace_back(dice->pick<const char*>({"nan_q", "nan_k", "nan_v", "inf_q", "inf_v"}));
}

void draw_storages(Dice* dice, Problem* p) {
  if (dice->chance(0.4)) return;
  const auto give = [&](const char* operand, bool rows, bool input) {
    if (const Storage storage = draw_storage(dice, rows, input); storage != Storage{}) p->storage[operand] = storage;
  };
  for (const char* operand : {"q", "k", "v", "grad_o"}) give(operand, true, true);
  for (const char* operand : {"o", "grad_q", "grad_k", "grad_v"}) give(operand, true, false);
  for (const char* operand : {"decay", "initial_state", "initial_z", "grad_final_state", "grad_final_z"})
    give(operand, false, true);
  for (const char* operand : {"final_state", "final_z", "grad_decay", "grad_initial_state", "grad_initial_z"})
    give(operand, false, false);
  if (const auto decay = p->storage.find("decay"); decay != p->storage.end())
    decay->second.zero &= ~2U;  // a decay that is equal for all tokens would be a decay by head
}

}  // namespace

void draw_linear_attention(Dice* dice, Problem* p) {
  draw_sizes(dice, p);
  draw_features(dice, p);
  draw_storages(dice, p);
}

}  // namespace falchion::tools::storm
