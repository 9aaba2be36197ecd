// tools/layout/request.cpp: arguments of `falchion layout` -> layouts, tuples, numbers; an error shows its position.
#include "layout/request.hpp"

#include <fmt/core.h>

#include <cctype>
#include <charconv>

#include "layout/atoms.hpp"
#include "layout/kernels.hpp"
#include "tool.hpp"

namespace falchion::tools {
namespace {

/// The expression and a caret under the character that the parser could not read.
[[noreturn]] void refuse(const std::string& text, const layout::Error& error) {
  if (error.position < 0) throw UsageError{fmt::format("layout: \"{}\": {}", text, error.what())};
  constexpr std::size_t kShown = 160;  // a longer expression is cut around the place
  const auto at = static_cast<std::size_t>(error.position);
  const std::size_t from = at > kShown / 2 ? at - kShown / 2 : 0;
  std::string shown = from < text.size() ? text.substr(from, kShown) : "";
  for (char& c : shown) c = std::isprint(static_cast<unsigned char>(c)) != 0 ? c : '?';
  throw UsageError{
      fmt::format("layout: at character {}: {}\n  {}\n  {:>{}}", at, error.what(), shown, "^", at - from + 1)};
}

template <class Parse>
auto parsed(const std::string& text, Parse parse) {
  try {
    return parse();
  } catch (const layout::Error& error) { refuse(text, error); }
}

layout::Composed from_kernel(const layout::KernelLayout& item) { return layout::parse_layout(item.print); }

/// Adds mma:NAME.A and copy:NAME if the text uses them.
void add_atoms(const std::string& text, layout::Names* names) {
  const auto is_name = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  for (const std::string prefix : {"mma:", "copy:"})
    for (std::size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
      std::size_t end = at + prefix.size();
      while (end < text.size() && is_name(text[end])) ++end;
      const std::string whole = text.substr(at, end - at), name = whole.substr(prefix.size());
      if (prefix == "mma:") {
        const layout::MmaAtom* atom = layout::find_mma_atom(name);
        if (atom == nullptr) continue;
        (*names)[whole] = (*names)[whole + ".C"] = as_composed(atom->c);
        (*names)[whole + ".A"] = as_composed(atom->a);
        (*names)[whole + ".B"] = as_composed(atom->b);
      } else if (const layout::CopyAtom* atom = layout::find_copy_atom(name); atom != nullptr) {
        (*names)[whole] = (*names)[whole + ".D"] = as_composed(atom->dst);
        (*names)[whole + ".S"] = as_composed(atom->src);
      }
    }
}

}  // namespace

layout::Composed as_composed(const layout::Layout& layout) {
  layout::Composed out;
  out.layout = layout;
  return out;
}

const std::string& LayoutRequest::arg(std::size_t i) const {
  if (i >= args.size()) throw UsageError{fmt::format("layout {}: argument {} is missing", verb, i + 1)};
  return args[i];
}

layout::Names LayoutRequest::names(const std::string& text) const {
  layout::Names out;
  for (const layout::KernelLayout& item : layout::kernel_layouts()) {
    if (text.find(item.name) == std::string::npos) continue;
    std::string kernel(item.kernel);
    for (char& c : kernel) c = c == ':' ? '.' : c;  // in an expression a colon stands before a stride
    out[fmt::format("{}.{}", kernel, item.name)] = from_kernel(item);
    if (item.kernel == layout::kDefaultKernel) out[std::string(item.name)] = from_kernel(item);
  }
  add_atoms(text, &out);
  return out;
}

layout::Composed LayoutRequest::composed(const std::string& text) const {
  std::string all = text;
  for (const std::string& define : defines) all += " " + define;
  layout::Names known = names(all);
  for (const std::string& define : defines) {
    const std::size_t equals = define.find('=');
    if (equals == 0 || equals == std::string::npos)
      throw UsageError{fmt::format("layout: --define {}: NAME=EXPR is wanted", define)};
    const std::string value = define.substr(equals + 1);
    known[define.substr(0, equals)] = parsed(value, [&] { return layout::parse_layout(value, known, !dynamic); });
  }
  return parsed(text, [&] { return layout::parse_layout(text, known, !dynamic); });
}

layout::Layout LayoutRequest::plain(const std::string& text) const {
  const layout::Composed out = composed(text);
  if (out.has_swizzle || out.element_bits > 0 || out.offset.value != 0)
    throw UsageError{fmt::format("layout {}: \"{}\" has a swizzle or an offset; a plain layout is needed", verb, text)};
  return out.layout;
}

layout::Layout LayoutRequest::static_layout(const std::string& text) const {
  LayoutRequest request = *this;
  request.dynamic = false;
  return request.plain(text);
}

layout::IntTuple LayoutRequest::tuple(const std::string& text) const {
  return parsed(text, [&] { return layout::parse_int_tuple(text, !dynamic); });
}

layout::Tiler LayoutRequest::tiler(std::size_t i) const {
  const std::string& text = arg(i);
  const bool is_name =
      !text.empty() && std::isalpha(static_cast<unsigned char>(text[0])) != 0 && text.rfind("Int<", 0) != 0;
  if (is_name) {
    layout::Tiler out;
    out.modes.push_back(plain(text));
    return out;
  }
  return parsed(text, [&] { return layout::parse_tiler(text, !dynamic); });
}

std::int64_t LayoutRequest::integer(std::size_t i) const {
  const layout::IntTuple out = tuple(arg(i));
  if (!out.is_int()) throw UsageError{fmt::format("layout {}: \"{}\" is not an integer", verb, arg(i))};
  return out.value();
}

int LayoutRequest::element_bits(int otherwise) const { return element.empty() ? otherwise : parse_bits(element); }

int parse_bits(const std::string& text) {
  int bits = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, bits);
  const bool read = error == std::errc() && (at == end || (at + 1 == end && *at == 'b'));
  if (!read || bits < 1 || bits > 128 || (bits & (bits - 1)) != 0)
    throw UsageError{fmt::format("layout: \"{}\" is no number of bits: 1b, 2b, 4b, 8b, 16b, 32b, 64b or 128b", text)};
  return bits;
}

std::vector<std::int64_t> parse_numbers(const std::string& text, std::size_t count, std::int64_t least,
                                        const std::string& what) {
  std::vector<std::int64_t> out;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at < end && out.size() < count) {
    std::int64_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < least || value > (1 << 20)) break;
    out.push_back(value);
    at = next;
    if (at < end && (*at == ',' || *at == 'x') && out.size() < count) ++at;
  }
  if (out.size() != count || at != end)
    throw UsageError{fmt::format("layout: {} \"{}\": {} integers from {} to 1048576 are wanted, as in {}", what, text,
                                 count, least, count == 2 ? "16x16" : "64,16,16")};
  return out;
}

std::string coordinate_text(const layout::IntTuple& coordinate) {
  if (coordinate.is_int()) return std::to_string(coordinate.value());
  if (coordinate.is_underscore()) return "_";
  std::string out = "(";
  for (const layout::IntTuple& mode : coordinate.modes()) out += (out.size() > 1 ? "," : "") + coordinate_text(mode);
  return out + ")";
}

Answer answer_with(const LayoutRequest& request, const layout::Composed& layout, const std::string& title) {
  Answer out;
  const std::string print = to_string(layout);
  out.text = print + "\n";
  out.facts = {{"layout", print},
               {"shape", to_string(layout.layout.shape)},
               {"stride", to_string(layout.layout.stride)},
               {"size", std::to_string(layout.layout.size())},
               {"cosize", std::to_string(layout.layout.cosize())}};
  out.figure.title = title.empty() ? print : title;
  if (!request.draw) return out;
  Picture picture = draw_layout(layout, request.element_bits(16));
  out.figure.subtitle = fmt::format("{} x {} offsets; one colour: 4 neighbouring banks, elements of {} bits",
                                    picture.rows, picture.columns, picture.element_bits);
  if (picture.is_heat_map())
    out.figure.subtitle = fmt::format("{} x {} offsets, a cell each {} x {}; dark: far from the first", picture.rows,
                                      picture.columns, picture.row_step, picture.column_step);
  out.figure.pictures.push_back(std::move(picture));
  return out;
}

}  // namespace falchion::tools
