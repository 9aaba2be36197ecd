// tools/layout/atoms.cpp: `falchion layout mma` and `copy`: which thread has which value, in print and in pictures.
#include "layout/atoms.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/divide.hpp"
#include "layout/request.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

using layout::Layout, layout::to_string;

template <class Atoms>
Answer list_of(const Atoms& atoms, const char* what) {
  Answer out;
  for (const auto& atom : atoms) {
    out.text += fmt::format("{:<40} {}\n", atom.name, atom.what);
    out.facts.emplace_back(atom.name, atom.what);
  }
  out.figure.title = what;
  return out;
}

/// Operands as print_latex sets them: C at the origin, A to its left, B above it with k downwards.
std::vector<Picture> pictures_of(const Layout& a, const Layout& b, const Layout& c, std::int64_t m, std::int64_t n,
                                 std::int64_t k) {
  std::vector<Picture> out{draw_thread_values(c, m, n, "C"), draw_thread_values(a, m, k, "A"),
                           draw_thread_values(b, n, k, "B", true)};
  out[1].left = -out[1].shown_columns - 1;
  out[2].top = -out[2].shown_rows - 1;
  out[2].flipped = true;
  return out;
}

std::string static_tuple(const std::vector<std::int64_t>& values, const char* zero) {
  std::string out = "(";
  for (const std::int64_t value : values)
    out += (out.size() > 1 ? "," : "") + (value == 0 ? std::string(zero) : fmt::format("_{}", value));
  return out + ")";
}

/// "4,1,1" as well as "(4,1,1)" and "(4,1,1):(1,4,4)".
Layout atoms_layout(const LayoutRequest& request) {
  const std::string& text = request.atoms;
  const bool bare = text.find('(') == std::string::npos && text.find(':') == std::string::npos;
  return request.static_layout(text.empty() ? "(1,1,1)" : bare ? "(" + text + ")" : text);
}

void add_facts(Answer* answer) {
  for (std::size_t begin = 0, end = 0; (end = answer->text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = answer->text.substr(begin, end - begin);
    const std::size_t colon = line.find(": ");
    if (line.rfind("  ", 0) != 0 || colon == std::string::npos) continue;
    answer->facts.emplace_back(line.substr(2, colon - 2), line.substr(line.find_first_not_of(' ', colon + 1)));
  }
}

/// Bits of a copy atom, 16 bytes a row: what a row of a matrix of ldmatrix is.
Picture draw_bits(const Layout& bits, int element_bits, const std::string& name) {
  const Layout elements = layout::recast(bits, 1, element_bits);
  const std::int64_t size = elements.cosize(), columns = std::min<std::int64_t>(size, 128 / element_bits);
  return draw_thread_values(elements, columns, ceil_div(size, columns), name, true);
}

void beside(Picture second, std::vector<Picture>* pictures) {
  second.left = pictures->back().left + pictures->back().shown_columns + 3;
  pictures->push_back(std::move(second));
}

layout::Partition add_partition(const LayoutRequest& request, const layout::TiledCopy& copy, bool source, Answer* out) {
  layout::Partition part = layout::partition(copy, request.composed(request.on), request.thread, source);
  out->text += fmt::format("  partition_{}:    {} at {}", source ? 'S' : 'D', to_string(part.layout), part.start);
  if (part.before_swizzling != part.start) out->text += fmt::format(", {} before the swizzle", part.before_swizzling);
  out->text += '\n';
  return part;
}

}  // namespace

Answer answer_mma(const LayoutRequest& request) {
  if (request.args.empty()) return list_of(layout::mma_atoms(), "MMA atoms");
  const layout::MmaAtom* atom = layout::find_mma_atom(request.arg(0));
  if (atom == nullptr)
    throw UsageError{
        fmt::format("layout mma: there is no atom \"{}\"; falchion layout mma lists them", request.arg(0))};
  const bool tiled = !request.atoms.empty() || !request.tile.empty();
  Answer out;
  layout::TiledMma mma{atom, {}, atom->m, atom->n, atom->k, atom->a, atom->b, atom->c};
  if (tiled) {
    std::vector<std::int64_t> tile{0, 0, 0};
    if (!request.tile.empty()) tile = parse_numbers(request.tile, 3, 0, "--tile");
    mma = layout::make_tiled_mma(*atom, atoms_layout(request), tile[0], tile[1], tile[2]);
    out.text = fmt::format("TiledMMA\n  ThrLayoutVMNK:  {}\n  PermutationMNK: {}\n", to_string(mma.thr_layout_vmnk),
                           static_tuple(tile, "_"));
  }
  out.text += fmt::format(
      "MMA_Atom\n  ThrID:      {}\n  Shape_MNK:  {}\n  LayoutA_TV: {}\n  LayoutB_TV: {}\n  LayoutC_TV: {}\n",
      to_string(atom->thread_id), static_tuple({atom->m, atom->n, atom->k}, "_0"), to_string(atom->a),
      to_string(atom->b), to_string(atom->c));
  const std::string tile_text = static_tuple({mma.m, mma.n, mma.k}, "_0");
  if (tiled)
    out.text += fmt::format("Tile {}\n  TileA_TV: {}\n  TileB_TV: {}\n  TileC_TV: {}\n", tile_text, to_string(mma.a),
                            to_string(mma.b), to_string(mma.c));
  add_facts(&out);
  out.figure.title = atom->name;
  out.figure.subtitle =
      fmt::format("{}; T: thread, V: value; C = A B over {} x {} x {}", atom->what, mma.m, mma.n, mma.k);
  if (request.draw) out.figure.pictures = pictures_of(mma.a, mma.b, mma.c, mma.m, mma.n, mma.k);
  return out;
}

Answer answer_copy(const LayoutRequest& request) {
  if (request.args.empty()) return list_of(layout::copy_atoms(), "Copy atoms");
  const layout::CopyAtom* atom = layout::find_copy_atom(request.arg(0));
  if (atom == nullptr)
    throw UsageError{
        fmt::format("layout copy: there is no atom \"{}\"; falchion layout copy lists them", request.arg(0))};
  if (request.thread_layout.empty() != request.value_layout.empty())
    throw UsageError{"layout copy: --thr and --val come together"};
  if (!request.on.empty() && request.thread_layout.empty()) throw UsageError{"layout copy: --on needs --thr and --val"};
  const int bits = request.element_bits(16);
  Answer out;
  out.figure.title = atom->name;
  out.figure.subtitle = atom->what;
  if (!request.thread_layout.empty()) {
    const layout::TiledCopy copy = layout::make_tiled_copy(*atom, bits, request.static_layout(request.thread_layout),
                                                           request.static_layout(request.value_layout));
    out.text = fmt::format("TiledCopy\n  Tiler_MN:       {}\n  TiledLayout_TV: {}\n",
                           static_tuple({copy.m, copy.n}, "_0"), to_string(copy.tv));
    if (!request.on.empty()) {
      add_partition(request, copy, true, &out);
      add_partition(request, copy, false, &out);
    }
    if (request.draw) {
      const Layout source = layout::source_tv(copy), destination = layout::destination_tv(copy);
      const bool same = to_string(source) == to_string(destination);
      out.figure.pictures.push_back(draw_thread_values(source, copy.m, copy.n, same ? "" : "S"));
      if (!same) beside(draw_thread_values(destination, copy.m, copy.n, "D"), &out.figure.pictures);
    }
  } else if (request.draw) {
    out.figure.pictures.push_back(draw_bits(atom->src, bits, "S"));
    beside(draw_bits(atom->dst, bits, "D"), &out.figure.pictures);
  }
  const auto in_elements = [&](const Layout& l) { return to_string(layout::recast(l, 1, bits)); };
  out.text += fmt::format(
      "Copy_Atom\n  ThrID:        {}\n  ValLayoutSrc: {}\n  ValLayoutDst: {}\n  ValLayoutRef: {}\n  ValueType:    "
      "{}b\n",
      to_string(atom->thread_id), in_elements(atom->src), in_elements(atom->dst), in_elements(atom->ref), bits);
  add_facts(&out);
  return out;
}

}  // namespace falchion::tools
