// tools/command/json_value.hpp: JSON of a user's file, read value by value. An unexpected value is a UsageError that
// names the file, the place in it and what was expected.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace falchion::tools {

/// A value and where it stands: "points.json: rows[3].ms".
class JsonValue {
 public:
  bool has(const char* key) const;
  JsonValue at(const std::string& key) const;  // of an object
  std::string text() const;
  double number() const;
  std::string text_or(const char* key, const std::string& otherwise) const;
  void each(const std::function<void(const JsonValue&)>& visit) const;  // of an array
  void each_member(const std::function<void(const std::string& key, const JsonValue&)>& visit) const;

 private:
  friend class JsonFile;
  JsonValue(const std::string& file, std::string place, const nlohmann::json& value)
      : file_(file), place_(std::move(place)), value_(value) {}
  [[noreturn]] void refuse(const char* expected) const;

  const std::string& file_;
  std::string place_;  // "" for the whole
  const nlohmann::json& value_;
};

/// A JSON file that was read as a whole. Its values point into it, so it must outlive them. If it is not JSON, it is
/// refused with the position of the first wrong byte.
class JsonFile {
 public:
  explicit JsonFile(const std::string& path);
  JsonValue whole() const;

 private:
  std::string path_;
  std::shared_ptr<const nlohmann::json> json_;
};

}  // namespace falchion::tools
