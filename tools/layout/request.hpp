// tools/layout/request.hpp: a request to `falchion layout`, with its arguments read as layouts, tuples and numbers.
#pragma once

#include <string>
#include <vector>

#include "layout/parse.hpp"
#include "layout/picture.hpp"

namespace falchion::tools {

struct LayoutRequest {
  std::string verb;
  std::vector<std::string> args;
  bool dynamic = false;  // literals without an underscore are dynamic, as in CuTe's print
  std::vector<std::string> defines;
  std::string kind = "logical", order, element, access, tile, at, threads, atoms, thread_layout, value_layout, on;
  std::int64_t thread = 0;
  bool by_mode = false;
  bool draw = false;  // pictures are wanted

  const std::string& arg(std::size_t i) const;  ///< UsageError where it is missing
  layout::Composed composed(std::size_t i) const { return composed(arg(i)); }
  layout::Composed composed(const std::string& text) const;
  layout::Layout plain(std::size_t i) const { return plain(arg(i)); }
  layout::Layout plain(const std::string& text) const;  ///< refuses a swizzle
  /// --thr, --val, --atoms: CuTe needs these at compile time, so --dynamic does not apply to them.
  layout::Layout static_layout(const std::string& text) const;
  layout::IntTuple tuple(std::size_t i) const { return tuple(arg(i)); }
  layout::IntTuple tuple(const std::string& text) const;
  layout::Tiler tiler(std::size_t i) const;
  std::int64_t integer(std::size_t i) const;
  int element_bits(int otherwise) const;  ///< of --elem 16b

 private:
  layout::Names names(const std::string& text) const;
};

/// "16b" or "16": 1 to 128 bits.
int parse_bits(const std::string& text);
/// Reads a text such as "16x16", "0,0" or "64,16,16": this many integers, each from least to 2^20.
std::vector<std::int64_t> parse_numbers(const std::string& text, std::size_t count, std::int64_t least,
                                        const std::string& what);
/// A coordinate without the underscores of static integers: (1,(0,2)).
std::string coordinate_text(const layout::IntTuple& coordinate);
/// A layout as an answer: its print, facts, and its picture where one is wanted.
Answer answer_with(const LayoutRequest& request, const layout::Composed& layout, const std::string& title = "");
layout::Composed as_composed(const layout::Layout& layout);

/// One verb of `falchion layout`.
struct LayoutVerb {
  const char *name, *arguments, *meaning;
  std::size_t least, most;  // how many arguments
  Answer (*answer)(const LayoutRequest& request);
};

// These answers are in verbs.cpp, the verbs of the algebra.
Answer answer_print(const LayoutRequest&);
Answer answer_table(const LayoutRequest&);
Answer answer_info(const LayoutRequest&);
Answer answer_coords(const LayoutRequest&);
Answer answer_idx(const LayoutRequest&);
Answer answer_crd(const LayoutRequest&);
Answer answer_coalesce(const LayoutRequest&);
Answer answer_compose(const LayoutRequest&);
Answer answer_complement(const LayoutRequest&);
Answer answer_divide(const LayoutRequest&);
Answer answer_product(const LayoutRequest&);
Answer answer_tile_to_shape(const LayoutRequest&);
Answer answer_inverse(const LayoutRequest&);
Answer answer_recast(const LayoutRequest&);
Answer answer_slice(const LayoutRequest&);
Answer answer_local_tile(const LayoutRequest&);
Answer answer_local_partition(const LayoutRequest&);
Answer answer_compat(const LayoutRequest&);
// These answers are in atoms.cpp, banks.cpp and kernels.cpp.
Answer answer_mma(const LayoutRequest&);
Answer answer_copy(const LayoutRequest&);
Answer answer_swizzle(const LayoutRequest&);
Answer answer_banks(const LayoutRequest&);
Answer answer_explain(const LayoutRequest&);

}  // namespace falchion::tools
