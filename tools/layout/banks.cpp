// tools/layout/banks.cpp: `falchion layout banks` and `swizzle`: the places of elements, and the cost of a warp's
// access.
#include "layout/banks.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "command/table.hpp"
#include "layout/request.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

using layout::Access, layout::AccessShape, layout::AccessTile, layout::Composed;

/// One warp's access: the bytes of each thread, and the coordinates that they belong to.
struct WarpAccess {
  Access access;
  AccessShape shape;
  int bits;
  std::string where;
  std::vector<std::int64_t> bytes;  // of each thread
  struct Element {
    std::int64_t row, column;
    int thread, value;
  };
  std::vector<Element> elements;
};

Composed transposed(Composed a) {
  if (a.layout.rank() != 2)
    throw UsageError{fmt::format("layout banks: {} has rank {}, not 2", to_string(a), a.layout.rank())};
  a.layout = layout::make_layout(std::vector<layout::Layout>{a.layout.mode(1), a.layout.mode(0)});
  return a;
}

/// --tile, or the tile that the access has by default: 16x16 for an ldmatrix.x4 of 16-bit elements, and whole rows for
/// the others.
AccessTile tile_of(const LayoutRequest& request, const Composed& a, const WarpAccess& warp, bool is_ldmatrix) {
  const std::int64_t each = std::max(1, warp.shape.bytes * 8 / warp.bits);  // elements of a thread
  AccessTile tile{std::min(warp.shape.threads, 16), warp.shape.threads > 16 ? 2 * each : each};
  if (!is_ldmatrix) {
    tile.columns = std::min(a.layout.mode(1).size(), warp.shape.threads * each);
    tile.rows = std::min(a.layout.mode(0).size(), std::max<std::int64_t>(1, warp.shape.threads * each / tile.columns));
  }
  if (!request.tile.empty()) {
    const auto sides = parse_numbers(request.tile, 2, 1, "--tile");
    tile.rows = sides[0];
    tile.columns = sides[1];
  }
  if (!request.at.empty()) {
    const auto corner = parse_numbers(request.at, 2, 0, "--at");
    tile.row = corner[0];
    tile.column = corner[1];
  }
  return tile;
}

/// The elements of tile_addresses(). The matrices of an ldmatrix run down a column first, other accesses along a row.
void walk_tile(const AccessTile& tile, bool is_ldmatrix, WarpAccess* warp) {
  const std::int64_t each = warp->shape.bytes * 8 / warp->bits;
  const std::int64_t across = tile.columns / each;
  for (std::size_t t = 0; t < warp->bytes.size(); ++t) {
    const auto thread = static_cast<std::int64_t>(t);
    const std::int64_t row = is_ldmatrix ? thread % tile.rows : thread / across;
    const std::int64_t column = (is_ldmatrix ? thread / tile.rows : thread % across) * each;
    for (std::int64_t v = 0; v < each; ++v)
      warp->elements.push_back({tile.row + row, tile.column + column + v, static_cast<int>(t), static_cast<int>(v)});
  }
}

/// --threads: thread -> 1-D coordinate of its first element; its other elements are adjacent in memory.
void walk_threads(const LayoutRequest& request, const Composed& a, WarpAccess* warp) {
  const layout::Layout threads = request.plain(request.threads);
  const std::int64_t rows = a.layout.mode(0).size(), size = a.layout.size(), each = warp->shape.bytes * 8 / warp->bits;
  if (threads.size() > 32)
    throw UsageError{
        fmt::format("layout banks: --threads {} has {} threads; a warp has 32", request.threads, threads.size())};
  if (warp->bits % 8 != 0 || each < 1)
    throw UsageError{
        fmt::format("layout banks: a thread of {} bytes has no element of {} bits", warp->shape.bytes, warp->bits)};
  for (std::int64_t t = 0; t < threads.size(); ++t) {
    const std::int64_t first = threads(t);
    const auto steps = [&](std::int64_t step) {  // do the elements of this direction lie next to each other?
      for (std::int64_t v = 0; v < each; ++v) {
        const std::int64_t at = first + v * step;
        if (at < 0 || at >= size || a(at) != a(first) + v) return false;
      }
      return true;
    };
    const std::int64_t step = steps(rows) ? rows : 1;
    constexpr std::int64_t kFar = std::int64_t{1} << 48;
    if (first < 0 || first >= size || a(first) >= kFar || !steps(step))
      throw UsageError{
          fmt::format("layout banks: thread {} begins at coordinate {} of {}: {} elements do not lie next "
                      "to each other there",
                      t, first, to_string(a), each)};
    warp->bytes.push_back(a(first) * (warp->bits / 8));
    for (std::int64_t v = 0; v < each; ++v)
      warp->elements.push_back(
          {(first + v * step) % rows, (first + v * step) / rows, static_cast<int>(t), static_cast<int>(v)});
  }
}

WarpAccess warp_access(const LayoutRequest& request, const Composed& a) {
  const std::string name = request.access.empty() ? "ldmatrix.x4" : request.access;
  const Access* access = layout::find_access(name);
  if (access == nullptr)
    throw UsageError{fmt::format("layout banks: --access {} is not one of {}", name, layout::access_names())};
  const bool is_ldmatrix = name.rfind("ldmatrix", 0) == 0,
             trans = name.size() > 6 && name.substr(name.size() - 6) == ".trans";
  const int bits = a.element_bits > 0 ? a.element_bits : request.element_bits(16);
  WarpAccess warp{*access, layout::shape_of(*access), bits, "", {}, {}};
  if (!request.threads.empty()) {
    walk_threads(request, a, &warp);
    warp.where = "threads " + request.threads;
    return warp;
  }
  const Composed rows_first = trans ? transposed(a) : a;
  AccessTile tile = tile_of(request, rows_first, warp, is_ldmatrix);
  if (trans && !request.tile.empty()) std::swap(tile.rows, tile.columns);
  if (trans) std::swap(tile.row, tile.column);
  warp.bytes = layout::tile_addresses(*access, rows_first, bits, tile);
  walk_tile(tile, is_ldmatrix, &warp);
  if (trans) {
    for (auto& element : warp.elements) std::swap(element.row, element.column);
    std::swap(tile.rows, tile.columns);
    std::swap(tile.row, tile.column);
  }
  warp.where = fmt::format("{} x {} at ({},{})", tile.rows, tile.columns, tile.row, tile.column);
  return warp;
}

Picture draw_banks(const Composed& a, const WarpAccess& warp, const layout::Wavefronts& count) {
  Picture picture = draw_layout(a, warp.bits);
  picture.kind = Picture::Kind::banks;
  if (picture.is_heat_map()) return picture;
  for (const auto& element : warp.elements) {
    Cell& cell = picture.cells[static_cast<std::size_t>(element.row * picture.shown_columns + element.column)];
    if (cell.thread >= 0) continue;
    cell.thread = element.thread;
    cell.value = element.value;
    const auto phase = static_cast<std::size_t>(element.thread / warp.shape.threads_a_phase);
    cell.conflict = count.words_a_bank[phase][static_cast<std::size_t>(picture.bank(cell.offset))] > 1;
  }
  return picture;
}

}  // namespace

Answer answer_banks(const LayoutRequest& request) {
  const Composed a = request.composed(0);
  if (a.layout.rank() != 2)
    throw UsageError{fmt::format("layout banks: {} has rank {}, not 2", to_string(a), a.layout.rank())};
  const WarpAccess warp = warp_access(request, a);
  const layout::Wavefronts count = layout::count_wavefronts(warp.access, warp.bytes);
  const std::string name = request.access.empty() ? "ldmatrix.x4" : request.access;
  Answer out;
  Table table({"phase", "<threads", "banks asked", "words of the busiest", "<first bytes"});
  int worst = 0;
  for (std::size_t phase = 0; phase < count.words_a_bank.size(); ++phase) {
    const auto& words = count.words_a_bank[phase];
    const std::size_t first = phase * static_cast<std::size_t>(warp.shape.threads_a_phase);
    const std::size_t last = std::min(first + static_cast<std::size_t>(warp.shape.threads_a_phase), warp.bytes.size());
    const int busiest = *std::max_element(words.begin(), words.end());
    worst = std::max(worst, busiest);
    std::string bytes;
    for (std::size_t t = first; t < std::min(last, first + 8); ++t)
      bytes += (bytes.empty() ? "" : " ") + std::to_string(warp.bytes[t]);
    table.row({std::to_string(phase), fmt::format("{}-{}", first, last - 1),
               std::to_string(32 - std::count(words.begin(), words.end(), 0)), std::to_string(busiest),
               bytes + (last > first + 8 ? " ..." : "")});
  }
  out.facts = {{"layout", to_string(a)},
               {"access", fmt::format("{} of {}-bit elements, {}", name, warp.bits, warp.where)},
               {"wavefronts", std::to_string(count.wavefronts)},
               {"ideal", std::to_string(count.ideal)},
               {"conflicts", std::to_string(count.conflicts())},
               {"ways", std::to_string(worst)}};
  for (const auto& [fact, value] : out.facts) out.text += fmt::format("{:<12}{}\n", fact, value);
  out.text += "\n" + table.text();
  out.figure.title = fmt::format("{}: {} wavefronts, ideal {}", name, count.wavefronts, count.ideal);
  out.figure.subtitle =
      fmt::format("{}; {}; T: thread, below it the bank; outlined: the bank has another word to give in the same phase",
                  to_string(a), warp.where);
  if (request.draw) out.figure.pictures.push_back(draw_banks(a, warp, count));
  return out;
}

/// Before and after. "Sw<3,3,3>" LAYOUT, or one expression that has a swizzle.
Answer answer_swizzle(const LayoutRequest& request) {
  const Composed after =
      request.composed(request.args.size() > 1 ? request.arg(0) + " o 0 o " + request.arg(1) : request.arg(0));
  if (!after.has_swizzle)
    throw UsageError{fmt::format("layout swizzle: \"{}\" has no swizzle; say which: layout swizzle 'Sw<3,3,3>' LAYOUT",
                                 request.arg(0))};
  Composed before = after;
  before.has_swizzle = false;
  Answer out = answer_with(request, after, to_string(after.swizzle) + ": before and after");
  if (!request.draw) {
    if (after.layout.rank() == 2)
      out.text = "before\n" + print_layout(before) + "after\n" + print_layout(after);
    else
      out.text = fmt::format("before {}\nafter  {}\n", to_string(before), to_string(after));
    return out;
  }
  Picture right = std::move(out.figure.pictures.front());
  out.figure.pictures = {draw_layout(before, request.element_bits(16), "before")};
  out.figure.pictures.front().element_bits = right.element_bits;
  right.name = "after";
  if (right.shown_columns > 2 * right.shown_rows)
    right.top = right.shown_rows + 2;
  else
    right.left = right.shown_columns + 3;
  out.figure.pictures.push_back(std::move(right));
  return out;
}

}  // namespace falchion::tools
