// examples/train_gpt/text.hpp: a text as bytes, and random pieces of it.
#pragma once

#include <cstdint>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "model.hpp"

namespace train_gpt {

class Text {
 public:
  explicit Text(std::vector<std::uint8_t> bytes) : bytes_(std::move(bytes)) {}
  explicit Text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
  }

  /// sizes.batch pieces, each of sizes.context bytes and the one that follows.
  Batch draw(const Sizes& sizes, std::mt19937_64* random) const {
    const auto length = static_cast<std::size_t>(sizes.context);
    if (bytes_.size() <= length)
      throw std::runtime_error("the text has " + std::to_string(bytes_.size()) + " bytes; a context of " +
                               std::to_string(length) + " needs one more than that at least");
    Batch batch;
    for (std::int64_t n = 0; n < sizes.batch; ++n) {
      const auto first = bytes_.begin() + static_cast<std::ptrdiff_t>((*random)() % (bytes_.size() - length));
      batch.tokens.insert(batch.tokens.end(), first, first + sizes.context);
      batch.targets.insert(batch.targets.end(), first + 1, first + 1 + sizes.context);
    }
    return batch;
  }
  std::size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::uint8_t> bytes_;
};

}  // namespace train_gpt
