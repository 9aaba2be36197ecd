// tools/command/json_value.cpp
#include "command/json_value.hpp"

#include <fmt/core.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>

#include "io/file.hpp"
#include "tool.hpp"

namespace falchion::tools {

using nlohmann::json;

JsonFile::JsonFile(const std::string& path) : path_(path) {
  std::shared_ptr<const io::MappedFile> file;
  if (const Status status = io::MappedFile::open(path, &file); !status)
    throw UsageError{status.code == Code::workspace ? path + ": " + status.why : status.why};
  const std::string_view text(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
  try {
    json_ = std::make_shared<const json>(json::parse(text));
  } catch (const json::parse_error& error) {
    throw UsageError{fmt::format("{}: is no JSON: at byte {} of {}", path, error.byte, text.size())};
  } catch (const json::exception&) {  // a number beyond a double
    throw UsageError{fmt::format("{}: is no JSON that can be read: a number in it is out of range", path)};
  }
}

JsonValue JsonFile::whole() const { return {path_, "", *json_}; }

bool JsonValue::has(const char* key) const { return value_.is_object() && value_.contains(key); }

void JsonValue::refuse(const char* expected) const {
  constexpr std::size_t kShown = 40;
  std::string shown = value_.dump(-1, ' ', true, json::error_handler_t::replace);
  if (shown.size() > kShown) shown = shown.substr(0, kShown) + "...";
  throw UsageError{fmt::format("{}: {}{}{} is not {}", file_, place_, place_.empty() ? "" : " = ", shown, expected)};
}

JsonValue JsonValue::at(const std::string& key) const {
  if (!value_.is_object()) refuse("an object");
  if (!value_.contains(key)) throw UsageError{fmt::format("{}: {} has no \"{}\"", file_, place_, key)};
  return {file_, place_ + (place_.empty() ? "" : ".") + key, value_.at(key)};
}

std::string JsonValue::text() const {
  if (!value_.is_string()) refuse("a text");
  return value_.get<std::string>();
}

double JsonValue::number() const {
  if (!value_.is_number()) refuse("a number");
  return value_.get<double>();
}

std::string JsonValue::text_or(const char* key, const std::string& otherwise) const {
  return has(key) ? at(key).text() : otherwise;
}

void JsonValue::each(const std::function<void(const JsonValue&)>& visit) const {
  if (!value_.is_array()) refuse("a list");
  for (std::size_t i = 0; i < value_.size(); ++i) visit({file_, fmt::format("{}[{}]", place_, i), value_[i]});
}

void JsonValue::each_member(const std::function<void(const std::string&, const JsonValue&)>& visit) const {
  if (!value_.is_object()) refuse("an object");
  for (const auto& [key, value] : value_.items()) visit(key, {file_, place_ + "." + key, value});
}

}  // namespace falchion::tools
