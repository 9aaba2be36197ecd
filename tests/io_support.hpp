/// io_support.hpp: what the tests of src/io share: a folder, random arrays, and tables of broken files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/array.hpp"

namespace falchion::io {

using Shape = std::vector<std::int64_t>;

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// A folder that is deleted at the end of the test.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "falchion_io_XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const char* name) const { return (path_ / name).string(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline Array random_array(std::string_view name, Kind kind, const Shape& shape) {
  static std::mt19937 random(7);
  Array array;
  std::span<std::byte> bytes;
  EXPECT_TRUE(make_array(name, kind, shape, &array, &bytes));
  for (std::byte& b : bytes) b = static_cast<std::byte>(random() & (kind == Kind::boolean ? 1 : 255));
  return array;
}

inline void expect_same(const Array& got, const Array& want) {
  EXPECT_EQ(got.name, want.name);
  EXPECT_EQ(got.kind, want.kind);
  EXPECT_EQ(got.shape, want.shape);
  EXPECT_TRUE(std::ranges::equal(got.bytes, want.bytes));
}

struct Refusal {
  std::string bytes, why;
  Code code = Code::invalid;
};

inline void expect_refused(const Refusal& row, const Status& got, const std::string& file) {
  EXPECT_EQ(got.code, row.code) << row.why << " / " << got.why;
  EXPECT_NE(got.why.find(row.why), std::string::npos) << "expected: " << row.why << "\n     got: " << got.why;
  EXPECT_EQ(got.why.rfind(file + ": ", 0), 0u) << got.why;
}

}  // namespace falchion::io
