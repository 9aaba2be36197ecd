// tools/roofline/model.cpp
#include "roofline/model.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace falchion::tools::roofline {
namespace {

constexpr double kTera = 1e12;

// Exponentials are 16 per cycle and multiprocessor, at the clock at which the data sheet's FLOP/s hold (1.41 and
// 1.83 GHz). The L2 of an A100 is NVIDIA's 5120 B per cycle. No data sheet has Hopper's: an H200 gave 14.6 TB/s to
// loads of 16 bytes that miss the L1, where each multiprocessor read other lines of 32 MB (bench/roofline_probe.py).
Device a100(const char* key, const char* title, double hbm) {
  return {key, title, "data sheet", 312 * kTera, 312 * kTera, 19.5 * kTera, hbm, 5120 * 1.41e9, 108 * 16 * 1.41e9};
}
Device hopper(const char* key, const char* title, double hbm) {
  return {key,           title,          "data sheet; L2 measured on an H200",
          989.4 * kTera, 1978.9 * kTera, 66.9 * kTera,
          hbm,           14.6 * kTera,   132 * 16 * 1.83e9};
}

std::vector<Device> make_devices() {
  Device measured = hopper("h200-measured", "H200 measured", 4.3 * kTera);
  measured.source = "measured: products by cuBLAS, copy, L2, exponentials";
  measured.flops_16 = 788 * kTera;
  measured.flops_8 = 1495 * kTera;
  measured.flops_32 = 0;
  measured.exps = 4.18 * kTera;
  return {a100("a100-80", "A100-80 SXM", 2.039 * kTera), a100("a100-40", "A100-40 SXM", 1.555 * kTera),
          hopper("h100", "H100 SXM", 3.35 * kTera), hopper("h200", "H200", 4.8 * kTera), measured};
}

double over(double work, double rate) { return rate > 0 ? work / rate : 0; }

}  // namespace

double Device::flops(int element_bytes) const {
  return element_bytes == 1 ? flops_8 : element_bytes == 2 ? flops_16 : flops_32;
}

double Device::ridge(int element_bytes) const { return flops(element_bytes) / hbm; }

const std::vector<Device>& devices() {
  static const std::vector<Device> all = make_devices();
  return all;
}

const Device* find_device(const std::string& key) {
  const std::string wanted = key == "a100" ? "a100-80" : key;
  for (const Device& device : devices())
    if (device.key == wanted) return &device;
  return nullptr;
}

Work attention(const Attention& a) {
  const double e = a.element_bytes, half = a.causal ? 0.5 : 1, scores = a.b * a.h_q * a.s_q * a.s_k;
  const double rows = a.b * a.h_q * a.s_q * (a.d + a.d_v) * e, keys = a.b * a.h_k * a.s_k * (a.d + a.d_v) * e;
  const double blocks = std::ceil(a.group() * a.s_q / a.block_rows);
  Work work;
  work.element_bytes = a.element_bytes;
  work.flop = 2 * (a.d + a.d_v) * scores * half;
  work.exps = scores * half;
  work.hbm = rows + keys + (a.lse ? 4 * a.b * a.h_q * a.s_q : 0);
  work.l2 = rows + keys * std::max(1.0, blocks * half);
  if (a.unfused) {  // S and P are written and read as a whole, with what is masked
    work.hbm += 4 * e * scores;
    work.l2 += 4 * e * scores;
  }
  return work;
}

Work attention_backward(const Attention& a) {
  const double e = a.element_bytes, half = a.causal ? 0.5 : 1, scores = a.b * a.h_q * a.s_q * a.s_k;
  const double q_rows = a.b * a.h_q * a.s_q, k_rows = a.b * a.h_k * a.s_k, d = a.d + a.d_v;
  const double blocks = std::max(1.0, std::ceil(a.s_k / a.block_rows) * half);
  Work work;
  work.element_bytes = a.element_bytes;
  work.flop = 2 * (3 * a.d + 2 * a.d_v) * scores * half;
  work.exps = scores * half;
  work.hbm = 2 * (q_rows + k_rows) * d * e + 4 * q_rows;
  work.l2 = 2 * k_rows * d * e + q_rows * blocks * (d * e + 4 * a.d);
  return work;
}

Work mla_decode(const Attention& a) {
  const double e = a.element_bytes, scores = a.b * a.h_q * a.s_q * a.s_k, keys = a.b * a.s_k * a.d * e;
  Work work;
  work.element_bytes = a.element_bytes;
  work.flop = 2 * (a.d + a.d_v) * scores;
  work.exps = scores;
  work.hbm = keys;
  work.l2 = keys * std::ceil(a.h_q * a.s_q / a.block_rows);
  return work;
}

Work linear_recurrent(double b, double heads, double d, double d_v, int element_bytes) {
  Work work;
  work.element_bytes = element_bytes;
  work.flop = 4 * d * d_v * b * heads;
  work.hbm = work.l2 = 2 * 4 * d * d_v * b * heads;
  return work;
}

Work linear_chunked(const Chunked& c) {
  const double tokens = c.b * c.heads * c.s;
  Work work;
  work.element_bytes = c.element_bytes;
  work.flop = tokens * (4 * c.d * c.d_v + 2 * c.chunk * (c.d + c.d_v));
  work.hbm = tokens * (2 * c.element_bytes * (c.d + c.d_v) + (c.spill ? 8 * c.d * c.d_v / c.chunk : 0));
  work.l2 = work.hbm;
  return work;
}

Work gemm(const Gemm& g) {
  const double e = g.element_bytes;
  Work work;
  work.element_bytes = g.element_bytes;
  work.flop = 2 * g.m * g.n * g.k;
  work.hbm = e * (g.m * g.k + g.k * g.n + g.m * g.n);
  work.l2 = e * (g.m * g.k * std::ceil(g.n / g.tile_n) + g.k * g.n * std::ceil(g.m / g.tile_m) + g.m * g.n);
  return work;
}

std::string roof_name(const Device& device, Roof roof) {
  switch (roof) {
    case Roof::hbm: return device.memory_name;
    case Roof::l2: return "L2";
    case Roof::math: return device.math_name;
    case Roof::exp: return "exp units";
  }
  return "";
}

Bound bound(const Device& device, const Work& work) {
  Bound out;
  out.seconds = {over(work.hbm, device.hbm), over(work.l2, device.l2),
                 over(work.flop, device.flops(work.element_bytes)), over(work.exps, device.exps)};
  out.least = *std::max_element(out.seconds.begin(), out.seconds.end());
  for (int i = 0; i < kRoofs; ++i)
    if (out.seconds[static_cast<std::size_t>(i)] >= (1 - kTie) * out.least) out.binds.push_back(static_cast<Roof>(i));
  std::stable_sort(out.binds.begin(), out.binds.end(), [&](Roof x, Roof y) { return out.at(x) > out.at(y); });
  return out;
}

std::string binds_text(const Device& device, const Bound& bound) {
  std::string out;
  for (const Roof roof : bound.binds) out += (out.empty() ? "" : " = ") + roof_name(device, roof);
  return out;
}

double prefill_crossover(const Device& device, Attention a) {
  // flop = f s^2; bytes = c s, and t s^2 more when unfused: compute bound from s = ridge c / (f - ridge t).
  a.s_q = a.s_k = 1;
  const double f = attention(a).flop, t = a.unfused ? 4 * a.element_bytes * a.b * a.h_q : 0;
  const double c = attention(a).hbm - t, ridge = device.ridge(a.element_bytes);
  return f > ridge * t ? ridge * c / (f - ridge * t) : std::numeric_limits<double>::infinity();
}

double backward_crossover(const Device& device, Attention a) {
  a.s_q = a.s_k = 1;
  const Work one = attention_backward(a);  // the flop grow with s^2, the bytes with s
  return device.ridge(a.element_bytes) * one.hbm / one.flop;
}

double decode_crossover(const Device& device, int element_bytes) {
  return device.ridge(element_bytes) * element_bytes / 2;
}

double chunk_crossover(const Device& device, double d, bool spill, int element_bytes) {
  // (4 d^2 + 4 c d) / (4 e d + 8 d^2 / c) = ridge; without the last term when the state stays on chip.
  const double r = device.ridge(element_bytes), linear = element_bytes * r - d;
  return spill ? (linear + std::sqrt(linear * linear + 8 * d * r)) / 2 : std::max(linear, 0.0);
}

double gemm_crossover(const Device& device, int element_bytes) {
  return 1.5 * element_bytes * device.ridge(element_bytes);
}

double exp_share(const Device& device, double d, int element_bytes) {
  return device.exps > 0 ? device.flops(element_bytes) / (4 * d * device.exps) : 0;
}

std::string Row::cell() const {
  std::string out = word;
  for (std::size_t i = 0; i < values.size(); ++i) {
    out += i == 0 ? "" : " / ";
    out += digits[i] < 0 ? fmt::format("{:.4g}", values[i]) : fmt::format("{:.{}f}", values[i], digits[i]);
  }
  return out;
}

namespace {

void add_prefill(const Device& device, std::vector<Row>* rows) {
  const auto lengths = [&](double group) {
    Attention full;
    full.h_k = full.h_q / group;
    Attention causal = full;
    causal.causal = true;
    return std::vector<double>{prefill_crossover(device, full), prefill_crossover(device, causal)};
  };
  const Attention fused;
  Attention unfused;
  unfused.unfused = true;
  const Bound x = bound(device, attention(fused)), y = bound(device, attention(unfused));
  const std::string shape = "b1 h32/8 s4096 d128 full";
  rows->push_back({"mha", "prefill", "MHA compute bound above s, full / causal", "tokens", lengths(1), {0, 0}, ""});
  rows->push_back(
      {"gqa8", "prefill", "GQA g 8 compute bound above s, full / causal", "tokens", lengths(8), {0, 0}, ""});
  rows->push_back({"compute", "prefill", shape + ": products (causal half)", "ms", {x.at(Roof::math) * 1e3}, {3}, ""});
  rows->push_back({"memory",
                   "prefill",
                   shape + ": memory, fused / unfused",
                   "ms",
                   {x.at(Roof::hbm) * 1e3, y.at(Roof::hbm) * 1e3},
                   {3, 2},
                   ""});
  if (device.exps > 0)
    rows->push_back({"exp",
                     "prefill",
                     "exponentials / products, d 128 / 64",
                     "",
                     {exp_share(device, 128, 2), exp_share(device, 64, 2)},
                     {2, 2},
                     ""});
}

void add_decode(const Device& device, std::vector<Row>* rows) {
  Attention decode, mla;
  decode.s_q = mla.s_q = 1;
  decode.h_q = decode.h_k;
  decode.s_k = mla.s_k = 8192;
  mla.h_q = 128;
  mla.d = 576;
  mla.d_v = 512;
  // Only K and V count, since one query's q and o are nothing beside 8192 keys.
  const double kv = attention(decode).hbm - 4 * decode.h_q * decode.d;
  const Work absorbed = mla_decode(mla);
  rows->push_back(
      {"decode", "decode", "b1 h_k8 s_k8192 d128: K and V once (33.6 MB)", "µs", {kv / device.hbm * 1e6}, {1}, ""});
  rows->push_back(
      {"decode_rows", "decode", "compute bound above g x query rows", "", {decode_crossover(device, 2)}, {0}, ""});
  rows->push_back({"mla",
                   "decode",
                   fmt::format("MLA decode ({:.0f} FLOP/B)", absorbed.intensity()),
                   "",
                   {},
                   {},
                   absorbed.intensity() > device.ridge() ? "compute" : "memory"});
}

void add_linear(const Device& device, std::vector<Row>* rows) {
  const Work chunk = linear_chunked({});
  rows->push_back({"chunk",
                   "linear",
                   fmt::format("chunk 64 d128, state on chip ({:.0f} FLOP/B)", chunk.intensity()),
                   "",
                   {},
                   {},
                   chunk.intensity() > device.ridge() ? "compute" : "memory"});
  rows->push_back({"chunk_crossover",
                   "linear",
                   "compute bound above chunk, d128, on chip / spilled",
                   "tokens",
                   {chunk_crossover(device, 128, false, 2), chunk_crossover(device, 128, true, 2)},
                   {0, 0},
                   ""});
}

}  // namespace

std::vector<Row> column(const Device& device, const std::string& mode) {
  std::vector<Row> rows = {{"tflops", "", "dense bf16", "TFLOP/s", {device.flops_16 / kTera}, {-1}, ""},
                           {"tbps", "", device.memory_name, "TB/s", {device.hbm / kTera}, {-1}, ""},
                           {"ridge", "", "ridge", "FLOP/B", {device.ridge()}, {0}, ""}};
  add_prefill(device, &rows);
  add_decode(device, &rows);
  add_linear(device, &rows);
  rows.push_back({"gemm", "gemm", "n x n x n compute bound above n", "", {gemm_crossover(device, 2)}, {0}, ""});
  std::erase_if(rows, [&](const Row& row) { return !mode.empty() && !row.mode.empty() && row.mode != mode; });
  return rows;
}

}  // namespace falchion::tools::roofline
