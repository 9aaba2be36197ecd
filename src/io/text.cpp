/// text.cpp: the wording of text.hpp.
#include "io/text.hpp"

namespace falchion::io {

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      out += c;
    } else {
      out.append("\\x").append(1, kHex[byte >> 4]).append(1, kHex[byte & 15]);
    }
  }
  return out += text.size() > kLongest ? "'..." : "'";
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string out = "(";
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    out.append(axis == 0 ? "" : ", ").append(std::to_string(shape[axis]));
  }
  return out += ")";
}

}  // namespace falchion::io
