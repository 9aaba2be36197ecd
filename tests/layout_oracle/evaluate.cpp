// tests/layout_oracle/evaluate.cpp: the layout algebra as a filter, for the oracles. It reads lines "# operation TAB
// argument ..." and prints each with the result behind it.
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "layout/atoms.hpp"
#include "layout/parse.hpp"

namespace {

using namespace falchion::layout;
using Words = std::vector<std::string>;

const std::string& at(const Words& words, std::size_t i) {
  if (i >= words.size()) throw Error("argument " + std::to_string(i) + " is missing");
  return words[i];
}
Layout layout(const Words& words, std::size_t i) { return parse_layout(at(words, i)).layout; }
Tiler tiler(const Words& words, std::size_t i) { return parse_tiler(at(words, i)); }
IntTuple tuple(const Words& words, std::size_t i) { return parse_int_tuple(at(words, i)); }
std::int64_t number(const Words& words, std::size_t i) { return tuple(words, i).value(); }

std::string values(const Composed& a) {
  std::string out;
  for (std::int64_t i = 0; i < a.layout.size(); ++i) out += std::to_string(a(i)) + " ";
  return out;
}

/// Returns the size, cosize, rank and depth.
std::string facts(const Layout& a) {
  std::string out;
  for (const auto fact :
       {a.size(), a.cosize(), static_cast<std::int64_t>(a.rank()), static_cast<std::int64_t>(depth(a.shape))}) {
    out += std::to_string(fact) + " ";
  }
  return out;
}

/// Returns the layout that a slice keeps, and where the slice starts.
template <class Slice>
std::string placed(const Slice& slice) {
  return to_string(slice.layout) + " @ " + std::to_string(slice.offset_of);
}

const MmaAtom& mma(const Words& words) {
  const MmaAtom* atom = find_mma_atom(at(words, 0));
  if (!atom) throw Error("no mma " + words[0]);
  return *atom;
}
const CopyAtom& copy(const Words& words) {
  const CopyAtom* atom = find_copy_atom(at(words, 0));
  if (!atom) throw Error("no copy " + words[0]);
  return *atom;
}

std::string mma_atom(const Words& w) {
  const MmaAtom& atom = mma(w);
  return to_string(atom.a) + " " + to_string(atom.b) + " " + to_string(atom.c);
}

/// The words are NAME, the atoms along M, N and K, and the tile.
std::string tiled_mma(const Words& w) {
  const IntTuple tile = tuple(w, 2);
  const TiledMma tiled = make_tiled_mma(mma(w), make_layout(tuple(w, 1)), tile.mode(0).value(), tile.mode(1).value(),
                                        tile.mode(2).value());
  return to_string(tiled.thr_layout_vmnk) + " " + to_string(tiled.a) + " " + to_string(tiled.b) + " " +
         to_string(tiled.c);
}

std::string copy_atom(const Words& w) {
  const CopyAtom& atom = copy(w);
  return to_string(atom.src) + " " + to_string(atom.dst) + " " + to_string(atom.ref);
}

/// The words are NAME, bits, threads, values, and for a partition also the tensor and the thread.
TiledCopy tiled(const Words& w) {
  return make_tiled_copy(copy(w), static_cast<int>(number(w, 1)), layout(w, 2), layout(w, 3));
}

std::string tiled_copy(const Words& w) {
  const TiledCopy copy = tiled(w);
  return "(_" + std::to_string(copy.m) + ",_" + std::to_string(copy.n) + ") " + to_string(copy.tv);
}

using Operation = std::function<std::string(const Words&)>;

Operation partitions(bool source) {
  return [source](const Words& w) {
    const Partition part = partition(tiled(w), parse_layout(at(w, 4)), number(w, 5), source);
    return to_string(part.layout) + " @ " + std::to_string(part.start);
  };
}
Operation divides(DivideKind kind) {
  return [kind](const Words& w) { return to_string(divide(kind, layout(w, 0), tiler(w, 1))); };
}
Operation products(ProductKind kind) {
  return [kind](const Words& w) { return to_string(product(kind, layout(w, 0), tiler(w, 1))); };
}

const std::map<std::string, Operation>& operations() {
  static const std::map<std::string, Operation> all{
      {"print", [](const Words& w) { return to_string(parse_layout(at(w, 0))); }},
      {"print_layout", [](const Words& w) { return print_layout(parse_layout(at(w, 0))); }},
      {"print_tensor", [](const Words& w) { return print_tensor(parse_layout(at(w, 0)), 32); }},
      {"values", [](const Words& w) { return values(parse_layout(at(w, 0))); }},
      {"facts", [](const Words& w) { return facts(layout(w, 0)); }},
      {"make_layout", [](const Words& w) { return to_string(make_layout(tuple(w, 0))); }},
      {"make_layout_right", [](const Words& w) { return to_string(make_layout_right(tuple(w, 0))); }},
      {"make_ordered_layout", [](const Words& w) { return to_string(make_ordered_layout(tuple(w, 0), tuple(w, 1))); }},
      {"size", [](const Words& w) { return std::to_string(layout(w, 0).size()); }},
      {"cosize", [](const Words& w) { return std::to_string(layout(w, 0).cosize()); }},
      {"coalesce", [](const Words& w) { return to_string(coalesce(layout(w, 0))); }},
      {"coalesce_by_mode", [](const Words& w) { return to_string(coalesce_by_mode(layout(w, 0))); }},
      {"filter_zeros", [](const Words& w) { return to_string(filter_zeros(layout(w, 0))); }},
      {"flatten", [](const Words& w) { return to_string(flatten(layout(w, 0))); }},
      {"composition", [](const Words& w) { return to_string(composition(layout(w, 0), layout(w, 1))); }},
      {"composition_tiler", [](const Words& w) { return to_string(composition(layout(w, 0), tiler(w, 1))); }},
      {"complement", [](const Words& w) { return to_string(complement(layout(w, 0), tuple(w, 1))); }},
      {"right_inverse", [](const Words& w) { return to_string(right_inverse(layout(w, 0))); }},
      {"left_inverse", [](const Words& w) { return to_string(left_inverse(layout(w, 0))); }},
      {"logical_divide", divides(DivideKind::logical)},
      {"zipped_divide", divides(DivideKind::zipped)},
      {"tiled_divide", divides(DivideKind::tiled)},
      {"flat_divide", divides(DivideKind::flat)},
      {"logical_product", products(ProductKind::logical)},
      {"zipped_product", products(ProductKind::zipped)},
      {"tiled_product", products(ProductKind::tiled)},
      {"flat_product", products(ProductKind::flat)},
      {"blocked_product", products(ProductKind::blocked)},
      {"raked_product", products(ProductKind::raked)},
      {"tile_to_shape",
       [](const Words& w) {
         const IntTuple order = w.size() > 2 ? tuple(w, 2) : IntTuple();
         return to_string(tile_to_shape(parse_layout(at(w, 0)), tuple(w, 1), order));
       }},
      {"recast",
       [](const Words& w) {
         const int from = static_cast<int>(number(w, 1)), to = static_cast<int>(number(w, 2));
         return to_string(recast(parse_layout(at(w, 0)), from, to));
       }},
      {"slice", [](const Words& w) { return placed(slice(parse_layout(at(w, 0)), tuple(w, 1))); }},
      {"local_tile",
       [](const Words& w) { return placed(local_tile(parse_layout(at(w, 0)), tuple(w, 1), tuple(w, 2))); }},
      {"local_partition",
       [](const Words& w) { return placed(local_partition(parse_layout(at(w, 0)), layout(w, 1), number(w, 2))); }},
      {"mma_atom", mma_atom},
      {"tiled_mma", tiled_mma},
      {"copy_atom", copy_atom},
      {"tiled_copy", tiled_copy},
      {"partition_S", partitions(true)},
      {"partition_D", partitions(false)},
      {"idx2crd", [](const Words& w) { return to_string(idx2crd(number(w, 0), tuple(w, 1))); }},
      {"crd2idx", [](const Words& w) { return std::to_string(crd2idx(tuple(w, 0), tuple(w, 1))); }},
  };
  return all;
}

std::string answer(const std::string& line) {
  Words words(1);
  for (const char c : line) {
    if (c == '\t') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  const auto operation = operations().find(words[0]);
  if (operation == operations().end()) return "no such operation";
  words.erase(words.begin());
  try {
    return operation->second(words);
  } catch (const Error& error) { return "error at " + std::to_string(error.position) + ": " + error.what(); }
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    if (!line.starts_with("# ")) continue;
    std::string out = answer(line.substr(2));
    if (out.ends_with('\n')) out.pop_back();
    std::cout << line << '\n' << out << '\n';
  }
}
