// tools/roofline/model.hpp: the least time of attention: the counted work divided by the rates of a device. It is
// arithmetic alone: nothing is read, printed or measured here. docs/roofline.md derives every formula.
#pragma once

#include <array>
#include <string>
#include <vector>

namespace falchion::tools::roofline {

/// Rates per second. A rate of 0 is not known, and its roof is left out.
struct Device {
  std::string key, title, source;
  double flops_16 = 0, flops_8 = 0, flops_32 = 0;  // dense products by bytes of an element; f32 without tensor cores
  double hbm = 0, l2 = 0;                          // bytes
  double exps = 0;                                 // exponentials
  std::string memory_name = "HBM", math_name = "tensor cores";

  double flops(int element_bytes) const;
  double ridge(int element_bytes = 2) const;  ///< FLOP/B from which the products bind and memory no longer does
};

/// a100-80, a100-40, h100, h200 by their data sheets, and h200-measured.
const std::vector<Device>& devices();
/// Null for a name that is none of them; "a100" is a100-80.
const Device* find_device(const std::string& key);

/// The work of one call. hbm counts each operand once. l2 counts the loads of the multiprocessors from the L2, tile by
/// tile.
struct Work {
  double flop = 0, hbm = 0, l2 = 0, exps = 0;
  int element_bytes = 2;

  double intensity() const { return flop / hbm; }
  double l2_intensity() const { return flop / l2; }
};

struct Attention {
  double b = 1, h_q = 32, h_k = 8, s_q = 4096, s_k = 4096, d = 128, d_v = 128;
  int element_bytes = 2;
  bool causal = false;      // half the scores, as is usual
  bool lse = false;         // 4 bytes a row more
  bool unfused = false;     // S and P are written and read
  double block_rows = 128;  // how many query rows, of all heads that share a K/V head, read K and V together

  double group() const { return h_q / h_k; }
};

/// Softmax attention, prefill and decode alike.
Work attention(const Attention& a);
/// The backward pass of softmax attention. q, k, v, o and the gradient of o are read, the gradients of q, k and v are
/// written, and there are as many exponentials as in the forward pass. block_rows is how many keys read Q and the
/// gradient of O together; each such block adds its part of the gradient of q in f32.
Work attention_backward(const Attention& a);
/// Absorbed MLA decode. All heads share one latent of d numbers for each key, of which the first d_v are the values.
/// h_k is not used.
Work mla_decode(const Attention& a);
/// Linear attention with one token for each sequence and head, where the f32
/// state d x d_v is read, changed and written.
Work linear_recurrent(double b, double heads, double d, double d_v, int element_bytes);

struct Chunked {
  double b = 1, heads = 32, s = 4096, d = 128, d_v = 128, chunk = 64;
  bool spill = false;  // the f32 state goes to memory and back each chunk
  int element_bytes = 2;
};
/// Linear attention, a prompt, chunk by chunk.
Work linear_chunked(const Chunked& c);

/// A shape and its name: "b1 h32/8 s4096 d128 full".
struct Case {
  std::string name;
  Work work;
};

struct Gemm {
  double m = 4096, n = 4096, k = 4096;
  int element_bytes = 2;
  double tile_m = 128, tile_n = 256;
};
Work gemm(const Gemm& g);

enum class Roof { hbm, l2, math, exp };
constexpr int kRoofs = 4;
std::string roof_name(const Device& device, Roof roof);

/// The time at each roof, or 0 where there is none. `binds` has the slowest roof
/// first and then those within kTie of it.
struct Bound {
  std::array<double, kRoofs> seconds{};
  double least = 0;
  std::vector<Roof> binds;

  double at(Roof roof) const { return seconds[static_cast<std::size_t>(roof)]; }
};
constexpr double kTie = 0.05;
Bound bound(const Device& device, const Work& work);
std::string binds_text(const Device& device, const Bound& bound);  ///< "L2 = tensor cores"

/// The length s_q = s_k from which fused prefill is compute bound. Infinite when
/// unfused and d / bytes is below the ridge.
double prefill_crossover(const Device& device, Attention a);
/// The same of the backward pass.
double backward_crossover(const Device& device, Attention a);
/// Query rows times heads a K/V head from which decode is compute bound.
double decode_crossover(const Device& device, int element_bytes);
/// The chunk from which linear attention is compute bound.
double chunk_crossover(const Device& device, double d, bool spill, int element_bytes);
/// n from which an n x n x n product is compute bound.
double gemm_crossover(const Device& device, int element_bytes);
/// Time of the exponentials over time of the products.
double exp_share(const Device& device, double d, int element_bytes);

/// One line of the table of docs/roofline.md for one device.
struct Row {
  std::string key, mode, label, unit;
  std::vector<double> values;
  std::vector<int> digits;  // after the point, a value each; -1: four in all
  std::string word;         // instead of values

  std::string cell() const;  ///< "412 / 824"
};
/// The whole column. The rows and their order are the same for each device. An empty mode asks for all of them.
std::vector<Row> column(const Device& device, const std::string& mode = "");

}  // namespace falchion::tools::roofline
