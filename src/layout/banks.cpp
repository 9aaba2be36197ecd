// src/layout/banks.cpp: the phases in which shared memory's banks serve a warp, and the
// addresses of a warp's access to a tile.
#include "layout/banks.hpp"

#include <algorithm>
#include <array>
#include <set>

namespace falchion::layout {
namespace {

constexpr int kBanks = 32, kWordBytes = 4, kWarp = 32;

struct NamedAccess {
  std::string_view name;
  Access access;
  AccessShape shape;
};
// A wavefront moves 128 bytes, so the bytes that a thread asks for decide how many threads are served at a time.
constexpr std::array kAccesses{
    NamedAccess{"lds32", Access::lds32, {32, 4, 32}},
    NamedAccess{"lds64", Access::lds64, {32, 8, 16}},
    NamedAccess{"lds128", Access::lds128, {32, 16, 8}},
    NamedAccess{"sts32", Access::sts32, {32, 4, 32}},
    NamedAccess{"sts64", Access::sts64, {32, 8, 16}},
    NamedAccess{"sts128", Access::sts128, {32, 16, 8}},
    NamedAccess{"cp.async16", Access::cp_async16, {32, 16, 8}},
    NamedAccess{"ldmatrix.x1", Access::ldmatrix_x1, {8, 16, 8}},
    NamedAccess{"ldmatrix.x2", Access::ldmatrix_x2, {16, 16, 8}},
    NamedAccess{"ldmatrix.x4", Access::ldmatrix_x4, {32, 16, 8}},
};

const NamedAccess& entry(Access access) {
  return *std::find_if(kAccesses.begin(), kAccesses.end(), [&](const NamedAccess& a) { return a.access == access; });
}
bool is_ldmatrix(Access access) {
  return access == Access::ldmatrix_x1 || access == Access::ldmatrix_x2 || access == Access::ldmatrix_x4;
}
[[noreturn]] void refuse(Access access, const std::string& what) {
  throw Error("access " + std::string(entry(access).name) + ": " + what);
}
std::string text(std::int64_t value) { return std::to_string(value); }

/// How many different words threads [first, last) ask each bank for.
std::vector<int> words_of_phase(const std::vector<std::int64_t>& bytes, std::size_t first, std::size_t last,
                                int width) {
  std::array<std::set<std::int64_t>, kBanks> words;
  for (std::size_t thread = first; thread < last; ++thread) {
    for (std::int64_t word = bytes[thread] / kWordBytes; word < (bytes[thread] + width) / kWordBytes; ++word)
      words[static_cast<std::size_t>(word % kBanks)].insert(word);
  }
  std::vector<int> counts;
  for (const auto& bank : words) counts.push_back(static_cast<int>(bank.size()));
  return counts;
}

}  // namespace

const Access* find_access(std::string_view name) {
  constexpr std::string_view trans =
      ".trans";  // only the result is transposed, so the banks are asked for the same words
  const bool transposed = name.size() > trans.size() && name.substr(name.size() - trans.size()) == trans;
  if (transposed) name.remove_suffix(trans.size());
  for (const NamedAccess& a : kAccesses) {
    if (a.name == name && (!transposed || is_ldmatrix(a.access))) return &a.access;
  }
  return nullptr;
}

std::string access_names() {
  std::string names;
  for (const NamedAccess& a : kAccesses) {
    if (!names.empty()) names += ", ";
    names += std::string(a.name) + (is_ldmatrix(a.access) ? "[.trans]" : "");
  }
  return names;
}

AccessShape shape_of(Access access) { return entry(access).shape; }

Wavefronts count_wavefronts(Access access, const std::vector<std::int64_t>& bytes) {
  const AccessShape shape = shape_of(access);
  const auto threads = static_cast<std::size_t>(is_ldmatrix(access) ? shape.threads : kWarp);
  if (bytes.empty() || bytes.size() > kWarp || (is_ldmatrix(access) && bytes.size() < threads))
    refuse(access, text(static_cast<std::int64_t>(bytes.size())) + " addresses, " +
                       (is_ldmatrix(access) ? "at least " + text(shape.threads) : "at least 1") + " and at most 32");
  for (std::size_t thread = 0; thread < bytes.size(); ++thread) {
    if (bytes[thread] < 0 || bytes[thread] % shape.bytes != 0)
      refuse(access, "thread " + std::to_string(thread) + " has byte address " + text(bytes[thread]) +
                         ", which must be a multiple of " + text(shape.bytes) + ", not negative");
  }
  Wavefronts result;
  const auto step = static_cast<std::size_t>(shape.threads_a_phase);
  for (std::size_t first = 0; first < std::min(threads, bytes.size()); first += step) {
    result.words_a_bank.push_back(words_of_phase(bytes, first, std::min(first + step, bytes.size()), shape.bytes));
    result.wavefronts += *std::max_element(result.words_a_bank.back().begin(), result.words_a_bank.back().end());
    result.ideal += 1;
  }
  return result;
}

std::vector<std::int64_t> tile_addresses(Access access, const Composed& tensor, int element_bits, AccessTile tile) {
  const AccessShape shape = shape_of(access);
  if (element_bits < 8 || element_bits % 8 != 0 || shape.bytes * 8 % element_bits != 0)
    refuse(access, "elements of " + text(element_bits) + " bits, must be whole bytes that divide " + text(shape.bytes));
  if (tensor.layout.rank() != 2) refuse(access, "a layout of rank " + std::to_string(tensor.layout.rank()) + ", not 2");
  const std::int64_t a_thread = shape.bytes * 8 / element_bits;  // elements, next to each other in a row
  const std::int64_t lines = is_ldmatrix(access) ? 8 : tile.rows;
  if (tile.rows < 1 || tile.columns < 1 || tile.rows > kWarp || tile.columns > kWarp * a_thread ||
      tile.columns % a_thread != 0 || tile.rows % lines != 0 || tile.rows * (tile.columns / a_thread) > shape.threads ||
      (is_ldmatrix(access) && tile.rows * (tile.columns / a_thread) != shape.threads))
    refuse(access, "a tile of " + text(tile.rows) + "x" + text(tile.columns) + " elements, must be " +
                       text(shape.threads) + " pieces of 1x" + text(a_thread) +
                       (is_ldmatrix(access) ? ", 8 rows a matrix" : " or fewer"));
  const std::int64_t rows = product(tensor.layout.shape.mode(0)).value;
  const std::int64_t columns = product(tensor.layout.shape.mode(1)).value;
  if (tile.row < 0 || tile.column < 0 || tile.row > rows - tile.rows || tile.column > columns - tile.columns)
    refuse(access, "the tile at " + text(tile.row) + "," + text(tile.column) + " leaves the layout of " + text(rows) +
                       "x" + text(columns));
  std::vector<std::int64_t> bytes;
  const auto add = [&](std::int64_t row, std::int64_t column) {
    const IntTuple at(std::vector<IntTuple>{Int{tile.row + row}, Int{tile.column + column}});
    const std::int64_t offset = tensor(at);
    for (std::int64_t i = 1; i < a_thread; ++i) {  // the elements of a thread must lie next to each other in one access
      const IntTuple next(std::vector<IntTuple>{Int{tile.row + row}, Int{tile.column + column + i}});
      if (tensor(next) != offset + i)
        refuse(access, "row " + text(tile.row + row) + ": column " + text(tile.column + column + i) +
                           " does not lie next to the one before it");
    }
    bytes.push_back(offset * (element_bits / 8));
  };
  if (is_ldmatrix(access)) {
    for (std::int64_t column = 0; column < tile.columns; column += a_thread)
      for (std::int64_t row = 0; row < tile.rows; ++row) add(row, column);
  } else {
    for (std::int64_t row = 0; row < tile.rows; ++row)
      for (std::int64_t column = 0; column < tile.columns; column += a_thread) add(row, column);
  }
  return bytes;
}

}  // namespace falchion::layout
