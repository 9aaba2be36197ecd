// tools/verify/attention/draw.cpp: random problems of attention.
#include <algorithm>
#include <numeric>

#include "base/divide.hpp"
#include "base/size.hpp"
#include "verify/draw.hpp"

namespace falchion::tools::storm {
namespace {

/// The definition's work: the multiplications for each score and for P V, over all rows and keys.
double work(const Problem& p) {
  const Attention& a = p.attention;
  double pairs = 0;
  for (std::int64_t b = 0; b < a.b; ++b) {
    const auto at = static_cast<std::size_t>(b);
    const auto length = [&](const auto& packed, const auto& used, std::int64_t all) {
      if (!used.empty()) return std::clamp<std::int64_t>(used[at], 0, packed.empty() ? all : packed[at]);
      return packed.empty() ? all : packed[at];
    };
    const std::int64_t keys = length(p.lengths_k, p.used_k, a.s_k) + (a.probabilities ? a.s_k : 0);
    pairs += static_cast<double>(length(p.lengths_q, p.used_q, a.s_q)) * static_cast<double>(keys);
  }
  return pairs * static_cast<double>(a.h_q * (a.d_qk + a.d_v));
}

/// The slots of all pages with a key in use.
double slots(const Problem& p) {
  const Attention& a = p.attention;
  double out = 0;
  for (const std::int64_t n : p.used_k)
    out += static_cast<double>(ceil_div(std::clamp<std::int64_t>(n, 0, a.s_k), a.page_size) * a.page_size);
  return out;
}

/// The elements of q, k, v and o, and of the tensors with a row for each query and a column for each key.
double elements(const Problem& p) {
  const Attention& a = p.attention;
  const auto total = [&](const auto& packed, std::int64_t s) {
    return packed.empty() ? static_cast<double>(a.b * s)
                          : static_cast<double>(std::accumulate(packed.begin(), packed.end(), std::int64_t{0}));
  };
  const double q = total(p.lengths_q, a.s_q), k = a.page_size > 0 ? slots(p) : total(p.lengths_k, a.s_k);
  double out = a.page_size > 0 ? static_cast<double>(a.b * ceil_div(a.s_k, a.page_size)) : 0;  // of the table
  out += (q * static_cast<double>(a.h_q) + k * static_cast<double>(a.h_k)) * static_cast<double>(a.d_qk + a.d_v);
  if (a.bias || a.mask || a.probabilities) out += static_cast<double>(a.b * a.h_q * a.s_q * a.s_k);
  return out;
}

void halve(std::int64_t* x) { *x = (*x + 1) / 2; }
void halve(std::vector<std::int64_t>* list) {
  for (std::int64_t& x : *list) x = x > 1 ? (x + 1) / 2 : x;
}

/// Reduces large sizes until the definition takes a reasonable time.
void fit(Dice* dice, double budget, double most_elements, Problem* p) {
  Attention& a = p->attention;
  for (int i = 0; i < 200 && (work(*p) > budget || elements(*p) > most_elements); ++i) {
    const std::int64_t choice = dice->between(0, 9);
    if (choice < 2 && a.h_k > 1) {
      const std::int64_t group = a.h_q / a.h_k;
      halve(&a.h_k);
      a.h_q = group * a.h_k;
    } else if (choice == 2 && a.h_q > a.h_k) {
      a.h_q = a.h_k * ((a.h_q / a.h_k + 1) / 2);
    } else if (choice < 5 && a.b > 1) {
      halve(&a.b);
      tidy(p);
    } else if (choice < 8 && a.s_q > 1 && (a.s_q > 16 || a.s_k <= 16)) {
      halve(&a.s_q);
      halve(&p->lengths_q);
      halve(&p->used_q);
    } else if (a.s_k > 1) {
      halve(&a.s_k);
      halve(&p->lengths_k);
      halve(&p->used_k);
      halve(&p->first_k);
    }
  }
}

void draw_align(Dice* dice, Attention* a) {
  a->band.align = dice->pick({Align::bottom_right, Align::bottom_right, Align::top_left, Align::at});
  if (a->band.align != Align::at) return;
  a->band.offset =
      dice->chance(0.05) ? dice->pick<std::int64_t>({1 << 30, -(1 << 30)}) : dice->between(-a->s_q - 5, a->s_k + 5);
}

void draw_band(Dice* dice, Attention* a) {
  const double kind = dice->uniform();
  if (kind < 0.3) return;
  draw_align(dice, a);
  const auto side = [&] {
    return dice->chance(0.15) ? dice->pick<std::int64_t>({0, std::int64_t{1} << 40}) : draw_length(dice, 600);
  };
  a->band.left = kind < 0.65 ? Band::unbounded : side();
  a->band.right = kind < 0.6 ? 0 : kind < 0.85 && a->band.left != Band::unbounded ? Band::unbounded : side();
  if (kind >= 0.75) a->band.right = dice->chance(0.3) ? 0 : side();
}

void draw_scores(Dice* dice, bool plain, Problem* p) {
  Attention& a = p->attention;
  if (dice->chance(0.3)) a.score.scale = dice->pick({1.F, -0.2F, 0.02F, -1.F, 0.5F, 1e-6F, 1e-35F, 20.F});
  if (dice->chance(0.15)) a.score.softcap = dice->pick({0.5F, 5.F, 30.F, 50.F});
  if (dice->chance(0.15)) {
    a.alibi = true;
    p->slopes_by_batch = dice->chance(0.4);
    if (dice->chance(0.3)) draw_align(dice, &a);
  }
  a.sinks = dice->chance(0.2);
  p->sinks_by_batch = a.sinks && dice->chance(0.3);
  if (plain) return;
  const auto ones = [&] { return static_cast<unsigned>(dice->chance(0.5) ? 0 : dice->between(1, 7)); };
  if (dice->chance(0.35)) {
    a.bias = true;
    p->bias_dtype = dice->chance(0.6) ? DType::f32 : DType::bf16;  // bf16: the problem's own
    p->bias.one = ones();
    p->data.bias = dice->pick<const char*>({"normal", "normal", "masks", "rows", "mild", "large"});
  }
  if (dice->chance(0.3)) {
    a.mask = true;
    p->mask.one = ones();
    p->data.mask = dice->pick<const char*>({"quarter", "quarter", "rows", "rows", "all", "none"});
  }
  if (dice->chance(0.25)) {
    a.dropout = dice->pick({0.1F, 0.1F, 0.3F, 1.F, 1e-4F, 0.9F});
    p->seed = dice->bits();
    p->offset = dice->chance(0.5) ? 0 : dice->bits() >> 20;
    p->rng_in_memory = dice->chance(0.5);
    if (dice->chance(0.3)) {
      p->origin = {dice->between(0, 5), dice->between(0, 5), dice->between(0, 500), 4 * dice->between(0, 100), 0};
      if (dice->chance(0.5)) p->origin.h_q = dice->between(0, 64);
    }
  }
}

/// Sizes and lengths, by the kind of traffic.
struct Traffic {
  double budget = 2e7;
  std::int64_t b = 1, heads = 4, s_q = 300, s_k = 300;  // at most
  double packed = 0.2, used = 0.2;                      // how often
};
/// Of a KV cache: small ones, decode, ragged batches, chunks of prompts.
Traffic draw_cache_traffic(Dice* dice) {
  const double kind = dice->uniform(), large = dice->chance(0.02) ? 2e8 : 3e7;
  if (kind < 0.35) return {dice->chance(0.5) ? 2e6 : 1e7, dice->between(1, 4), 4, 70, 300, 0.3};
  if (kind < 0.6) return {large, dice->between(1, 4), 8, 16, 8000, 0.3};
  if (kind < 0.8) return {large, dice->log_between(4, 64), 16, 5, 700, 0.4};
  return {large, dice->between(1, 3), 8, 70, 2500, 0.5};
}
Traffic draw_traffic(Dice* dice) {
  const double kind = dice->uniform(), large = dice->chance(0.02) ? 2e8 : 3e7;
  if (kind < 0.5) return {dice->chance(0.5) ? 2e6 : 1e7, dice->between(1, 4), 4, 300, 300};
  if (kind < 0.62) return {large, dice->between(1, 4), 8, 20, 20000, 0.2, 0.3};      // decode: few rows, many keys
  if (kind < 0.72) return {large, dice->between(1, 8), 16, 2500, 80, 0.2, 0.3};      // many rows, few keys
  if (kind < 0.86) return {large, dice->log_between(4, 64), 16, 700, 40, 0.5, 0.5};  // ragged batches
  return {large, dice->between(1, 2), 4, 1100, 1100, 0.15, 0.15};
}

void draw_used(Dice* dice, std::int64_t most, std::vector<std::int64_t>* out) {
  for (std::int64_t& n : *out)
    if (dice->chance(0.02)) n = dice->pick<std::int64_t>({-5, most + 9, 1 << 30});  // kernels clamp such lengths
}

/// Pages, or rows. It comes after the lengths are drawn.
void draw_pages(Dice* dice, Problem* p) {
  Attention& a = p->attention;
  if (dice->chance(0.25)) return;
  a.page_size = dice->pick<std::int64_t>({1, 3, 16, 16, 48, 64, 64, 256, dice->between(1, 300)});
  const auto maybe = [&](double chance, const char* word) {
    if (dice->chance(chance)) p->pages.emplace_back(word);
  };
  maybe(0.7, "shuffled");
  maybe(0.2, "shared");
  maybe(0.25, "holes");
  maybe(0.3, "starts");
  if (!p->pages.empty() && p->pages.back() == "starts") maybe(0.25, "wrong_starts");
  maybe(0.1, "few");
}

/// New keys and their rotary embedding, whose table may be too short.
void draw_new_keys(Dice* dice, Problem* p) {
  Attention& a = p->attention;
  a.append = dice->chance(0.3);
  if (a.d_qk < 2 || !dice->chance(0.3)) return;
  a.rotary_dim = dice->chance(0.5) ? a.d_qk / 2 * 2 : 2 * dice->between(1, a.d_qk / 2);
  a.rotary_pairs = dice->chance(0.4);
  p->positions = dice->chance(0.8) ? a.s_k + 1 : dice->between(1, a.s_k + 1);
}

/// 8 bits, and who shares a scale: the tensor, a head, an entry or a page, a key.
void draw_bytes(Dice* dice, Problem* p) {
  Attention& a = p->attention;
  if (!dice->chance(0.35)) return;
  a.dtype_k = a.dtype_v = dice->pick({DType::e4m3, DType::i8});
  a.k_scale = dice->chance(0.85);
  a.v_scale = dice->chance(0.85);
  const auto ones = [&] { return dice->pick<unsigned>({7, 3, 2, 0, 0, static_cast<unsigned>(dice->between(0, 7))}); };
  if (a.k_scale) p->k_scale.one = ones();
  if (a.v_scale) p->v_scale.one = dice->chance(0.5) ? p->k_scale.one : ones();
}

/// q of 8 bits: the types of v and o, and who shares a scale: the tensor, a head, a token or a block of keys.
void draw_bytes_of_q(Dice* dice, Problem* p) {
  Attention& a = p->attention;
  if (a.dtype == DType::i8) a.dtype_v = dice->pick({DType::e4m3, DType::e4m3, DType::bf16, DType::f16});
  if (dice->chance(0.25)) a.dtype_o = dice->pick({DType::bf16, DType::f16});
  a.q_scale = dice->chance(0.8);
  a.k_scale = dice->chance(0.8);
  a.v_scale = dice->chance(0.7);
  a.k_scale_rows = dice->pick<std::int64_t>({0, 128, 128, 256, 1024});
  const auto ones = [&] { return dice->pick<unsigned>({7, 3, 2, 0, 0, static_cast<unsigned>(dice->between(0, 7))}); };
  for (Broadcast* scale : {&p->q_scale, &p->k_scale, &p->v_scale}) scale->one = ones();
  for (const char* scale : {"q_scale", "k_scale", "v_scale"})
    if (dice->chance(0.5)) p->storage[scale] = draw_storage(dice, false, true);
  if (a.k_scale_rows == 0 && dice->chance(0.3)) {  // all keys share by a stride of 0
    p->k_scale.one = dice->pick<unsigned>({0, 1, 4, 5});
    p->storage["k_scale"] = {};
    p->storage["k_scale"].zero = 2;
  }
  if (!a.packed && dice->chance(0.1)) a.split_keys = dice->pick<std::int64_t>({64, 128, 512});
  if (!dice->chance(0.15)) return;
  p->data.shape = "codes";
  if (dice->chance(0.8)) a.score.scale = dice->pick({1e-4F, 1e-5F, -1e-4F});
}

void draw_sizes(Dice* dice, Problem* p) {
  Attention& a = p->attention;
  const Traffic traffic = a.cache ? draw_cache_traffic(dice) : draw_traffic(dice);
  a.b = traffic.b;
  a.h_k = dice->between(1, traffic.heads);
  a.h_q = a.h_k * draw_group(dice);
  a.s_q = a.cache && dice->chance(0.3) ? 1 : draw_length(dice, traffic.s_q);
  a.s_k = draw_length(dice, traffic.s_k);
  const bool narrow = traffic.heads > 8;  // there are many tiles then, so each must be cheap
  a.d_qk = draw_head_dim(dice, narrow && dice->chance(0.8) ? 64 : 256);
  a.d_v = dice->chance(0.7) ? a.d_qk : draw_head_dim(dice, narrow ? 64 : 256);
  if (dice->chance(traffic.packed)) {
    a.packed = true;
    p->lengths_q = draw_lengths(dice, a.b, a.s_q);
    if (!a.cache) p->lengths_k = draw_lengths(dice, a.b, a.s_k);
    if (!a.cache && dice->chance(0.25)) {
      p->lengths_k = p->lengths_q;
      a.s_k = a.s_q;
    }
    if (dice->chance(0.2)) p->spare = dice->between(1, 40);
  }
  if (a.cache || dice->chance(traffic.used)) {
    a.used_k = true;
    p->used_k = draw_lengths(dice, a.b, a.s_k);
  }
  if (dice->chance(traffic.used / 2)) {
    a.used_q = true;
    p->used_q = draw_lengths(dice, a.b, a.s_q);
  }
  if (dice->chance(traffic.used / 2)) {
    a.first_k = true;
    p->first_k = draw_lengths(dice, a.b, (a.s_k + 1) / 2);
  }
  draw_used(dice, a.s_k, &p->first_k);
  draw_used(dice, a.s_k, &p->used_k);
  draw_used(dice, a.s_q, &p->used_q);
  if (a.cache) draw_pages(dice, p);
  if (a.cache) draw_new_keys(dice, p);
  if (a.cache) draw_bytes(dice, p);
  if (a.cache && !a.packed && dice->chance(0.2)) a.split_keys = dice->pick<std::int64_t>({64, 64, 128, 512, 1024});
  if (dice->chance(0.01)) {
    switch (dice->between(0, 1)) {
      case 0: a.b = 0; break;
      default: a.h_q = a.h_k = 0; break;
    }
  }
  // The backward pass has five products instead of two, and its judge computes each pair of a query and a key once for
  // each gradient. With a quarter of the work a trial takes as long as one of the forward pass, some 10 ms.
  const double share = p->pass() == Pass::backward ? 0.25 : 1;
  fit(dice, share * traffic.budget, share * 4e6, p);
  if (!a.packed || !dice->chance(0.15)) return;  // below, the hint of the longest length is made wrong
  a.s_q = dice->chance(0.5) ? a.s_q / 2 : a.s_q * 2;
  a.s_k = dice->chance(0.5) ? a.s_k : a.s_k * 2;
}

void draw_storages(Dice* dice, Problem* p) {
  for (const char* operand : {"q", "k", "v"}) p->storage[operand] = draw_storage(dice, true, true);
  p->storage["o"] = draw_storage(dice, true, false);
  for (const char* operand : {"lse", "row_max", "probabilities"})
    p->storage[operand] = draw_storage(dice, false, false);
  for (const char* operand : {"bias", "mask"}) {
    p->storage[operand] = draw_storage(dice, false, true);
    p->storage[operand].zero &= 7U;  // keys are never broadcast
  }
  for (const char* operand : {"alibi", "sinks"}) p->storage[operand] = draw_storage(dice, false, true);
  if (p->attention.page_size > 0) p->storage["page_table"] = draw_storage(dice, false, false);
  if (p->attention.k_scale) p->storage["k_scale"] = draw_storage(dice, false, true);
  if (p->attention.v_scale) p->storage["v_scale"] = draw_storage(dice, false, true);
  if (p->attention.append)
    for (const char* operand : {"k_new", "v_new"}) p->storage[operand] = draw_storage(dice, true, true);
  if (p->attention.rotary_dim > 0) p->storage["rotary"] = draw_storage(dice, false, true);
  if (dice->chance(0.4))
    for (auto& [operand, storage] : p->storage) storage = {};
}

void draw_data(Dice* dice, Problem* p) {
  Data& data = p->data;
  const double kind = dice->uniform();
  if (kind < 0.12) {
    data.q = dice->pick({30.F, 100.F, 0.01F});
    data.k = dice->pick({1.F, 30.F});
  }
  if (kind > 0.95) data.v = dice->pick({100.F, 1e-3F});
  // At -1e9 neighbouring f32 numbers differ by 64. So only scores that were equal before have a defined answer there.
  if ((data.bias == "large" && dice->chance(0.8)) || (data.bias == "mild" && dice->chance(0.4)))
    data.shape = "zero";
  else if (dice->chance(0.12))
    data.shape = dice->pick<const char*>({"zero", "rising", "equal"});
  if (dice->chance(0.05))
    for (std::int64_t n = dice->between(1, 2); n > 0; --n)
      data.plant.emplace_back(
          dice->pick<const char*>({"nan_q", "nan_k", "nan_v", "inf_q", "inf_k", "inf_v", "neg_q", "neg_k", "neg_v"}));
}

}  // namespace

void draw_attention(Dice* dice, Problem* p) {
  Attention& a = p->attention;
  const bool plain = dice->chance(0.55) || a.cache || is_8bit(a.dtype);  // what Hopper's own kernels do too
  a.lse = dice->chance(0.6);
  if (!plain) {
    a.row_max = dice->chance(0.2);
    a.probabilities = dice->chance(0.15);
  }
  draw_band(dice, &a);
  draw_scores(dice, plain, p);
  draw_sizes(dice, p);
  draw_storages(dice, p);
  draw_data(dice, p);
  if (is_8bit(a.dtype)) draw_bytes_of_q(dice, p);
}

}  // namespace falchion::tools::storm
