// tools/command/json_value.hpp: JSON of a user's file, read value by value. What is not as it should be is a UsageError
// that names the file, the place in it and what was expected there.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace falchion::tools {

/// The whole file. If it is not JSON, it is refused with the position of the first wrong byte.
nlohmann::json read_json(const std::string& path);

/// A value and where it stands: "points.json: rows[3].ms".
class JsonValue {
 public:
  JsonValue(const std::string& file, const nlohmann::json& value) : file_(file), value_(value) {}

  bool has(const char* key) const { return value_.is_object() && value_.contains(key); }
  JsonValue at(const std::string& key) const;  // of an object
  std::string text() const;
  double number() const;
  std::string text_or(const char* key, const std::string& otherwise) const;
  void each(const std::function<void(const JsonValue&)>& visit) const;  // of an array
  void each_member(const std::function<void(const std::string& key, const JsonValue&)>& visit) const;

 private:
  JsonValue(const std::string& file, std::string place, const nlohmann::json& value)
      : file_(file), place_(std::move(place)), value_(value) {}
  [[noreturn]] void refuse(const char* expected) const;

  const std::string& file_;
  std::string place_;  // "" for the whole
  const nlohmann::json& value_;
};

}  // namespace falchion::tools
