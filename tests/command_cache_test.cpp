// tests/command_cache_test.cpp: a KV cache in the command: its options, the section --decode of bench, and the floor
// that explain() tells.
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "support/command_lines.hpp"

namespace falchion::testing {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t out = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++out;
  return out;
}

constexpr const char* kSizes = "--b 3 --s-q 1 --s-k 80 --h-q 4 --h-k 2 --d 16";

TEST_F(CommandLines, BenchHasASectionOfDecode) {
  const CommandResult x = run(std::string("bench --decode --dtype f32 --runs 1 --warm --json ") + kSizes);
  ASSERT_EQ(x.code, 0) << x.error;
  EXPECT_EQ(count(x.out, "\"run_type\""), 11U) << x.out;
  for (const char* features :
       {"cache", "cache_page-size_256", "cache_page-size_64", "cache_page-size_16", "cache_page-size_1",
        "cache_page-size_16_append", "cache_page-size_16_append_rotary-dim_16", "cache_ragged_80",
        "cache_page-size_16_ragged_80"})
    EXPECT_EQ(count(x.out, std::string("/") + features + "/threads"), 2U) << features << "\n" << x.out;
  EXPECT_EQ(count(x.out, "/s:4_80/d:16_16/causal_cache_page-size_16/"), 2U) << x.out;
  EXPECT_EQ(count(x.out, "/s:16_80/d:16_16/causal_cache_page-size_16/"), 2U) << x.out;
}

/// The bytes of K and V, that is of 3 sequences with 80 keys of 2 heads, are those of their keys in use.
TEST_F(CommandLines, OptionsOfACacheSayThatThereIsOne) {
  const CommandResult x = run(std::string("explain --dtype f32 --page-size 16 ") + kSizes);
  ASSERT_EQ(x.code, 0) << x.error;
  EXPECT_EQ(count(x.out, "with        cache, used_k, pages of 16 keys\n"), 1U) << x.out;
  EXPECT_EQ(count(x.out, "floor       reading the 61.4 kB of K and V of sequences with 80 keys\n"), 1U) << x.out;
  const CommandResult two = run(std::string("explain --target h100 --cache ") + kSizes);
  EXPECT_EQ(count(two.out, " of sequences with 80 keys: 0.0100721 us on an H100, 0.00667826 us on an H200\n"), 1U)
      << two.out;
  const CommandResult many = run("explain --b 1 --s-q 100 --s-k 8192 --h 2 --cache --target h100");
  EXPECT_EQ(count(many.out, "floor "), 0U) << many.out;
  const CommandResult refused = run("explain --op gemm --cache --m 8");
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(count(refused.error, "--cache"), 1U) << refused.error;
  const CommandResult backward = run("bench --op attention-backward --decode");
  EXPECT_EQ(backward.code, 2);
  EXPECT_EQ(count(backward.error, "--decode has no effect here"), 1U) << backward.error;
}

/// Of 3 sequences with 80 keys in mean in a cache with room for 320, and of a roofline that reads that.
TEST_F(CommandLines, TheWorkOfACacheIsThatOfItsKeysInUse) {
  const CommandResult x = run(std::string("bench --decode --dtype f32 --runs 1 --warm --json ") + kSizes);
  std::map<std::string, double> bytes, flops;
  const auto report = nlohmann::json::parse(x.out);
  for (const auto& row : report["benchmarks"]) {
    const std::string name = row["name"];
    const double seconds = row["real_time"].get<double>() / 1e3;
    bytes[name] = row["bytes_per_second"].get<double>() * seconds;
    flops[name] = row["flops"].get<double>() * seconds;
  }
  const auto of = [](const std::map<std::string, double>& all, const std::string& features) {
    for (const auto& [name, number] : all)
      if (name.find("/" + features + "/threads") != std::string::npos) return number;
    return 0.0;
  };
  const double q = 2 * 3 * 4 * 16 * 4, keys = 2 * 3 * 80 * 2 * 16 * 4;
  EXPECT_NEAR(of(bytes, "cache"), q + keys, 1);
  EXPECT_NEAR(of(bytes, "cache_page-size_16_ragged_80"), q + keys, 0.02 * keys);
  EXPECT_NEAR(of(flops, "cache_ragged_80"), of(flops, "cache"), 0.02 * of(flops, "cache"));
  std::ofstream(folder_ / "b.json") << x.out;
  const CommandResult roofs = run("roofline --device h100 --mode decode --points b.json --format json");
  EXPECT_EQ(count(roofs.out, "\"name\": \"falchion attention_forward/"), 11U) << roofs.out << roofs.error;
}

}  // namespace
}  // namespace falchion::testing
