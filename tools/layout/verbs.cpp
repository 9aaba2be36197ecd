// tools/layout/verbs.cpp: the verbs of `falchion layout` that are CuTe's algebra.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "command/table.hpp"
#include "layout/request.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

using layout::Composed, layout::IntTuple, layout::Layout;

constexpr std::int64_t kMostRows = std::int64_t{1} << 18;
constexpr std::int64_t kMostCompared = std::int64_t{1} << 22;

Answer answer_with(const LayoutRequest& request, const Layout& layout) {
  return tools::answer_with(request, as_composed(layout));
}

/// A slice as CuTe's tensors have it: its layout, and how far on it begins.
Answer answer_with_slice(const LayoutRequest& request, const layout::ComposedSlice& slice) {
  Answer out = tools::answer_with(request, slice.layout);
  out.text = fmt::format("{} at {}\n", to_string(slice.layout), slice.offset_of);
  out.facts.emplace_back("at", std::to_string(slice.offset_of));
  return out;
}

const char* yes_no(bool is) { return is ? "yes" : "no"; }

/// For layouts with too many offsets to compare: true where each stride steps over all that the smaller ones reach.
const char* injective(const Layout& a) {
  if (a.size() <= kMostCompared) return yes_no(layout::is_injective(a));
  const std::vector<layout::Int> shape = layout::flatten(a.shape), stride = layout::flatten(a.stride);
  std::vector<std::pair<std::int64_t, std::int64_t>> modes;  // stride, how far it reaches
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (shape[i].value > 1)
      modes.emplace_back(std::abs(stride[i].value), std::abs(stride[i].value) * (shape[i].value - 1));
  std::ranges::sort(modes);
  std::int64_t reached = 0;
  for (const auto& [step, reach] : modes) {
    if (step <= reached) return "unknown";
    reached += reach;
  }
  return "yes";
}

std::string lines(const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string out;
  for (const auto& [name, value] : facts) out += fmt::format("{:<22}{}\n", name, value);
  return out;
}

template <class Kind, std::size_t N>
Kind kind_of(const LayoutRequest& request, const std::array<std::pair<const char*, Kind>, N>& kinds) {
  std::string names;
  for (const auto& [name, kind] : kinds) {
    if (request.kind == name) return kind;
    names += std::string(names.empty() ? "" : ", ") + name;
  }
  throw UsageError{fmt::format("layout {}: --kind {} is not one of {}", request.verb, request.kind, names)};
}

}  // namespace

Answer answer_print(const LayoutRequest& request) { return tools::answer_with(request, request.composed(0)); }

Answer answer_table(const LayoutRequest& request) {
  const Composed a = request.composed(0);
  Answer out = tools::answer_with(request, a);
  if (request.draw) return out;
  if (request.element.empty() && a.layout.rank() != 2)
    throw UsageError{fmt::format("layout table: {} has rank {}, print_layout needs 2; --elem 16b prints it as a tensor",
                                 to_string(a), a.layout.rank())};
  out.text = request.element.empty() ? print_layout(a) : print_tensor(a, request.element_bits(16));
  return out;
}

Answer answer_info(const LayoutRequest& request) {
  const Composed a = request.composed(0);
  Answer out = tools::answer_with(request, a);
  const int bits = a.element_bits > 0 ? a.element_bits : request.element_bits(16);
  const std::int64_t together = layout::contiguous_elements(a);
  out.facts = {{"layout", to_string(a)},
               {"rank", std::to_string(a.layout.rank())},
               {"depth", std::to_string(layout::depth(a.layout.shape))},
               {"size", std::to_string(a.layout.size())},
               {"cosize", std::to_string(a.layout.cosize())},
               {"coalesced", to_string(layout::coalesce(a.layout))},
               {"congruent", yes_no(layout::congruent(a.layout.shape, a.layout.stride))},
               {"injective", injective(a.layout)},
               {"contiguous elements", std::to_string(together)},
               {"contiguous bits", fmt::format("{} of {}-bit elements", together * bits, bits)}};
  out.text = lines(out.facts);
  return out;
}

/// Prints each coordinate in three ways: 1-D, by top mode, and natural.
Answer answer_coords(const LayoutRequest& request) {
  const IntTuple shape = request.composed(0).layout.shape;
  const std::int64_t size = layout::product(shape).value;
  if (size > kMostRows)
    throw UsageError{
        fmt::format("layout coords: {} has {} coordinates, more than {}", to_string(shape), size, kMostRows)};
  std::vector<IntTuple> extents;
  for (std::size_t i = 0; i < shape.rank(); ++i) extents.emplace_back(layout::product(shape.mode(i)));
  const IntTuple flat = shape.is_tuple() ? IntTuple(extents) : shape;
  // The last coordinate is the longest, so a row has at most three times its length and the spaces between.
  const IntTuple last[] = {IntTuple(layout::Int{size - 1}), layout::idx2crd(size - 1, flat),
                           layout::idx2crd(size - 1, shape)};
  std::size_t bytes = 5;
  for (const IntTuple& coordinate : last) bytes += coordinate_text(coordinate).size();
  bytes *= static_cast<std::size_t>(size);
  if (bytes > layout::kMostText)
    throw UsageError{fmt::format("layout coords: {}: about {} bytes of text, more than {}", to_string(shape), bytes,
                                 layout::kMostText)};
  Table table({"1-D", fmt::format("<{}-D", shape.rank()), "<natural"});
  for (std::int64_t i = 0; i < size; ++i)
    table.row(
        {std::to_string(i), coordinate_text(layout::idx2crd(i, flat)), coordinate_text(layout::idx2crd(i, shape))});
  Answer out;
  out.figure.title = to_string(shape);
  out.facts = {{"shape", to_string(shape)}, {"size", std::to_string(size)}};
  out.text = table.text();
  return out;
}

Answer answer_idx(const LayoutRequest& request) {
  const IntTuple coordinate = request.tuple(0);
  const Composed a = request.composed(1);
  const std::int64_t index = layout::crd2idx(coordinate, a.layout.shape), offset = a(index);
  Answer out = tools::answer_with(request, a);
  out.facts = {{"coordinate", coordinate_text(coordinate)},
               {"index", std::to_string(index)},
               {"offset", std::to_string(offset)}};
  out.text = lines(out.facts);
  return out;
}

Answer answer_crd(const LayoutRequest& request) {
  const std::int64_t index = request.integer(0);
  const Composed a = request.composed(1);
  if (index < 0 || index >= a.layout.size())
    throw UsageError{fmt::format("layout crd: {} is outside 0..{} of {}", index, a.layout.size() - 1, to_string(a))};
  Answer out = tools::answer_with(request, a);
  out.facts = {{"index", std::to_string(index)},
               {"coordinate", coordinate_text(layout::idx2crd(index, a.layout.shape))},
               {"offset", std::to_string(a(index))}};
  out.text = lines(out.facts);
  return out;
}

Answer answer_coalesce(const LayoutRequest& request) {
  Composed a = request.composed(0);
  a.layout = request.by_mode ? layout::coalesce_by_mode(a.layout) : layout::coalesce(a.layout);
  return tools::answer_with(request, a);
}

Answer answer_compose(const LayoutRequest& request) {
  const Composed a = request.composed(0);
  const layout::Tiler b = request.tiler(1);
  if (!b.is_tuple) return tools::answer_with(request, layout::composition(a, b.modes.front()));
  Composed out = a;
  out.layout = layout::composition(a.layout, b);
  return tools::answer_with(request, out);
}

Answer answer_complement(const LayoutRequest& request) {
  return answer_with(request, layout::complement(request.plain(0), request.tuple(1)));
}

Answer answer_divide(const LayoutRequest& request) {
  using layout::DivideKind;
  constexpr std::array<std::pair<const char*, DivideKind>, 4> kKinds{{{"logical", DivideKind::logical},
                                                                      {"zipped", DivideKind::zipped},
                                                                      {"tiled", DivideKind::tiled},
                                                                      {"flat", DivideKind::flat}}};
  Composed a = request.composed(0);
  a.layout = layout::divide(kind_of(request, kKinds), a.layout, request.tiler(1));
  return tools::answer_with(request, a);
}

Answer answer_product(const LayoutRequest& request) {
  using layout::ProductKind;
  constexpr std::array<std::pair<const char*, ProductKind>, 6> kKinds{{{"logical", ProductKind::logical},
                                                                       {"zipped", ProductKind::zipped},
                                                                       {"tiled", ProductKind::tiled},
                                                                       {"flat", ProductKind::flat},
                                                                       {"blocked", ProductKind::blocked},
                                                                       {"raked", ProductKind::raked}}};
  return answer_with(request, layout::product(kind_of(request, kKinds), request.plain(0), request.tiler(1)));
}

Answer answer_tile_to_shape(const LayoutRequest& request) {
  const IntTuple order = request.order.empty() ? IntTuple(std::vector<IntTuple>{}) : request.tuple(request.order);
  return tools::answer_with(request, layout::tile_to_shape(request.composed(0), request.tuple(1), order));
}

Answer answer_inverse(const LayoutRequest& request) {
  const std::string& side = request.arg(0);
  if (side != "left" && side != "right")
    throw UsageError{fmt::format("layout inverse: \"{}\" is neither left nor right", side)};
  const Layout a = request.plain(1);
  return answer_with(request, side == "left" ? layout::left_inverse(a) : layout::right_inverse(a));
}

Answer answer_recast(const LayoutRequest& request) {
  const int from = parse_bits(request.arg(1)), to = parse_bits(request.arg(2));
  return tools::answer_with(request, layout::recast(request.composed(0), from, to));
}

Answer answer_slice(const LayoutRequest& request) {
  return answer_with_slice(request, layout::slice(request.composed(0), request.tuple(1)));
}

Answer answer_local_tile(const LayoutRequest& request) {
  const IntTuple tile = request.tuple(1);
  for (const layout::Int extent : layout::flatten(tile))
    if (extent.value < 1)
      throw UsageError{fmt::format("layout local-tile: TILE {}: {} is not at least 1", to_string(tile), extent.value)};
  return answer_with_slice(request, layout::local_tile(request.composed(0), tile, request.tuple(2)));
}

Answer answer_local_partition(const LayoutRequest& request) {
  const Layout threads = request.plain(1);
  const std::vector<layout::Int> shape = layout::flatten(threads.shape), stride = layout::flatten(threads.stride);
  for (std::size_t i = 0; i < shape.size(); ++i)
    if (stride[i].value == 0 && !(shape[i].is_static && shape[i].value == 1))
      throw UsageError{fmt::format("layout local-partition: THREADS {}: {}:0 gives different threads the same place",
                                   to_string(threads), shape[i].value)};
  return answer_with_slice(request, layout::local_partition(request.composed(0), threads, request.integer(2)));
}

/// Whether two tuples are equal when 24 counts as (24).
Answer answer_compat(const LayoutRequest& request) {
  const IntTuple a = request.composed(0).layout.shape, b = request.composed(1).layout.shape;
  const std::string a_text = to_string(a), b_text = to_string(b);
  const bool forth = layout::compatible(a, b), back = layout::compatible(b, a);
  Answer out;
  out.figure.title = fmt::format("{} and {}", a_text, b_text);
  out.facts = {{"sizes", fmt::format("{} and {}", layout::product(a).value, layout::product(b).value)},
               {"equal", yes_no(layout::equal(a, b))},
               {"congruent", yes_no(layout::congruent(a, b))},
               {fmt::format("{} -> {}", a_text, b_text),
                forth ? "compatible: every coordinate of the first is one of the second" : "not compatible"},
               {fmt::format("{} -> {}", b_text, a_text),
                back ? "compatible: every coordinate of the first is one of the second" : "not compatible"}};
  out.text = lines(out.facts);
  return out;
}

}  // namespace falchion::tools
