// tools/layout/json.cpp: an answer as JSON: facts, and each picture's shape, stride and cells.
#include <fmt/core.h>

#include <iterator>

#include "layout/picture.hpp"

namespace falchion::tools {
namespace {

/// One row of JSON for each row of cells.
template <class Of>
std::string grid(const Picture& picture, Of of) {
  std::string out = "[";
  std::size_t at = 0;
  for (std::int64_t i = 0; i < picture.shown_rows; ++i) {
    out += i == 0 ? "\n      [" : ",\n      [";
    for (std::int64_t j = 0; j < picture.shown_columns; ++j, ++at)
      out += fmt::format("{}{}", j == 0 ? "" : ",", of(picture.cells[at]));
    out += "]";
  }
  return out + "]";
}

std::string picture_json(const Picture& picture) {
  std::string out = fmt::format(
      "    {{\"name\": {}, \"expression\": {}, \"shape\": {}, \"stride\": {},\n     \"rows\": {}, \"columns\": {}, "
      "\"row_step\": {}, \"column_step\": {}, \"element_bits\": {}",
      json_text(picture.name), json_text(picture.expression), json_tuple(picture.shape), json_tuple(picture.stride),
      picture.rows, picture.columns, picture.row_step, picture.column_step, picture.element_bits);
  if (picture.kind != Picture::Kind::thread_values) {
    out += ",\n     \"offsets\": " + grid(picture, [](const Cell& cell) { return cell.offset; });
    if (picture.swizzled)
      out += ",\n     \"unswizzled\": " + grid(picture, [](const Cell& cell) { return cell.plain; });
  }
  if (picture.kind != Picture::Kind::offsets) {
    out += ",\n     \"threads\": " + grid(picture, [](const Cell& cell) { return cell.thread; });
    out += ",\n     \"values\": " + grid(picture, [](const Cell& cell) { return cell.value; });
  }
  if (picture.kind == Picture::Kind::banks) {
    out += ",\n     \"banks\": " + grid(picture, [&](const Cell& cell) { return picture.bank(cell.offset); });
    out += ",\n     \"conflicts\": " + grid(picture, [](const Cell& cell) { return cell.conflict ? 1 : 0; });
  }
  return out + "}";
}

}  // namespace

std::string answer_json(const Answer& answer) {
  std::string out = fmt::format("{{\n  \"title\": {}", json_text(answer.figure.title));
  for (const auto& [name, value] : answer.facts) out += fmt::format(",\n  {}: {}", json_text(name), json_text(value));
  out += ",\n  \"pictures\": [";
  for (std::size_t i = 0; i < answer.figure.pictures.size(); ++i)
    out += (i == 0 ? "\n" : ",\n") + picture_json(answer.figure.pictures[i]);
  return out + "]\n}\n";
}

}  // namespace falchion::tools
