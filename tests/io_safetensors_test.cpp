/// io_safetensors_test.cpp: tests of safetensors files: round trips, files of other writers, every refusal with its
/// words, and the sample of examples/smollm2.
#include "io/safetensors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/array.hpp"
#include "io/file.hpp"
#include "io_support.hpp"

namespace falchion::io {
namespace {

std::string safetensors(const std::string& json, std::size_t data_bytes = 0) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(json.size() >> (8 * i) & 255);
  return out + json + std::string(data_bytes, 'x');
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& range) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + range + "}";
}

TEST(Safetensors, RoundTripOfEveryKindAndShape) {
  const Folder folder;
  std::vector<Array> want;
  for (const KindFacts& row : kinds()) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{7}, Shape{3, 0, 2}, Shape{2, 3, 5, 7}}) {
      want.push_back(random_array(std::string(row.name) + "." + std::to_string(want.size()), row.kind, shape));
    }
  }
  std::shuffle(want.begin(), want.end(), std::mt19937(1));
  const Metadata metadata = {{"", "empty key"}, {"quote\"", "back\\slash\n\x01"}, {"h\xc3\xa9", "\xe6\x97\xa5"}};
  ASSERT_TRUE(write_safetensors(folder.file("a.safetensors"), want, metadata));
  Archive got;
  const Status status = read_safetensors(folder.file("a.safetensors"), &got);
  ASSERT_TRUE(status) << status.why;
  EXPECT_EQ(got.metadata, metadata);
  ASSERT_EQ(got.arrays.size(), want.size());
  EXPECT_TRUE(std::ranges::is_sorted(got.arrays, {}, &Array::name));
  for (const Array& array : want) {
    ASSERT_NE(got.find(array.name), nullptr) << array.name;
    expect_same(*got.find(array.name), array);
  }
  EXPECT_EQ(got.find("none"), nullptr);
  EXPECT_EQ(got.find(""), nullptr);
}

TEST(Safetensors, ArraysOutliveTheArchive) {
  const Folder folder;
  const Array want = random_array("a", Kind::f32, {100});
  ASSERT_TRUE(write_safetensors(folder.file("a"), {&want, 1}));
  Array kept;
  {
    Archive archive;
    ASSERT_TRUE(read_safetensors(folder.file("a"), &archive));
    kept = *archive.find("a");
  }
  expect_same(kept, want);
}

TEST(Safetensors, HeaderIsSortedAndAligned) {
  const std::vector<Array> arrays = {random_array("b", Kind::u8, {3}), random_array("z", Kind::f32, {2}),
                                     random_array("a", Kind::u8, {1})};
  std::string header;
  std::vector<std::size_t> order;
  ASSERT_TRUE(safetensors_header(arrays, {{"k", "v"}}, &header, &order));
  EXPECT_EQ(order, (std::vector<std::size_t>{1, 2, 0}));
  const std::string text = "{\"__metadata__\":{\"k\":\"v\"}," + entry("z", "F32", "[2]", "[0,8]") + "," +
                           entry("a", "U8", "[1]", "[8,9]") + "," + entry("b", "U8", "[3]", "[9,12]") + "}";
  EXPECT_EQ(header.substr(8, text.size()), text);
  EXPECT_EQ(header.size() % 64, 0u);
  ASSERT_TRUE(safetensors_header({}, {}, &header, &order));
  EXPECT_EQ(header, std::string("\x38\0\0\0\0\0\0\0", 8) + "{}" + std::string(54, ' '));
}

TEST(Safetensors, ReadsWhatOtherWritersMayWrite) {
  const std::vector<std::pair<std::string, std::size_t>> good = {
      {safetensors("{}"), 0},
      {safetensors("{}  \n"), 0},
      {safetensors("{\"__metadata__\":{}}"), 0},
      {safetensors("{" + entry("b", "U8", "[1]", "[0,1]") + "," + entry("a", "F32", "[1]", "[1,5]") + "}", 5), 2},
      {safetensors("{" + entry("e", "F32", "[0,9]", "[4,4]") + "," + entry("a", "F32", "[]", "[0,4]") + "}", 4), 2},
      {safetensors("{" + entry("\\u00e9\\\"", "BOOL", "[]", "[0,1]") + "}", 1), 1},
  };
  for (const auto& [bytes, count] : good) {
    Archive got;
    const Status status = parse_safetensors(bytes_of(bytes), "good", &got);
    ASSERT_TRUE(status) << status.why;
    EXPECT_EQ(got.arrays.size(), count);
    for (const Array& a : got.arrays) {
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.bytes.data()) % static_cast<std::uintptr_t>(kind_bytes(a.kind)), 0u);
    }
  }
}

TEST(Safetensors, EachRefusalSaysWhatAndWhere) {
  const std::string a = entry("a", "F32", "[2]", "[0,8]");
  const auto one = [](const char* dtype, const char* shape, const char* range, std::size_t data) {
    return safetensors("{" + entry("a", dtype, shape, range) + "}", data);
  };
  std::string long_length = safetensors("{}"), limit = long_length, many = "[";
  long_length[0] = 3;
  limit.replace(0, 8, std::string("\x01\xe1\xf5\x05\0\0\0\0", 8));
  for (int i = 0; i < 64; ++i) many += "1,";
  many += "1]";
  const std::vector<Refusal> table = {
      {"1234567", "q.safetensors: 7 bytes are too few for a safetensors file"},
      {"{\"a\": 1} not", "at offset 0 is above the limit of 100000000 bytes"},
      {limit, "header length 100000001 at offset 0 is above the limit"},
      {long_length, "header length 3 at offset 0 runs past the end of the file (10 bytes)"},
      {safetensors(""), "the header begins with '' at offset 8, not with '{'"},
      {safetensors("[]"), "the header begins with '[' at offset 8"},
      {safetensors(" {}"), "the header begins with ' ' at offset 8"},
      {safetensors("\xef\xbb\xbf{}"), "the header begins with '\\xef' at offset 8"},
      {safetensors("{"), "the header is not JSON: unexpected"},
      {safetensors("{} x"), "the header is not JSON: unexpected"},
      {safetensors("{}{}"), "the header is not JSON: unexpected"},
      {safetensors("{\"\xff\":1}"), "the header is not JSON"},
      {safetensors("{\"a\":1}"), "'a': a number where there can be none, near offset"},
      {safetensors("{\"a\":null}"), "'a': a null where there can be none"},
      {safetensors("{\"a\":true}"), "'a': a boolean where there can be none"},
      {safetensors("{\"a\":\"x\"}"), "'a': a string where there can be none"},
      {safetensors("{\"a\":[]}"), "'a': a list where there can be none"},
      {safetensors("{\"a\":{}}"), "'a' has no 'dtype'"},
      {safetensors("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,0]}}"), "'a' has no 'shape'"},
      {safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}"), "'a' has no 'data_offsets'"},
      {safetensors("{\"a\":{\"colour\":1}}"), "'a' has an unknown field 'colour', near offset 22"},
      {safetensors("{\"a\":{\"shape\":[],\"shape\":[]}}"), "'a' has a second 'shape'"},
      {safetensors("{\"a\":{\"shape\":{}}}"), "'a': an object where there can be none"},
      {safetensors("{\"a\":{\"shape\":[[]]}}"), "'a': a list where there can be none"},
      {safetensors("{\"a\":{\"dtype\":4}}"), "'a': a number where there can be none"},
      {safetensors("{" + a + "," + a + "}", 8), "'a' comes a second time"},
      {safetensors("{\"__metadata__\":{},\"__metadata__\":{}}"), "'__metadata__' comes a second time"},
      {safetensors("{\"__metadata__\":{\"k\":\"v\",\"k\":\"v\"}}"), "'k' comes a second time"},
      {safetensors("{\"__metadata__\":{\"k\":1}}"), "'k': a number where there can be none"},
      {safetensors("{\"__metadata__\":{\"k\":{}}}"), "'k': an object where there can be none"},
      {one("F32", "[-2]", "[0,8]", 8), "'a': negative number -2"},
      {one("F32", "[2.0]", "[0,8]", 8), "'a': '2.0' is no whole number below 2^64"},
      {one("F32", "[2]", "[0,18446744073709551616]", 8), "'a': '18446744073709551616' is no whole number below 2^64"},
      {one("F32", "[9223372036854775808]", "[0,8]", 8), "extent 9223372036854775808 is above 2^63 - 1"},
      {one("F32", many.c_str(), "[0,4]", 4), "'a' has more than 64 axes"},
      {one("F32", "[2]", "[0]", 8), "'a' has 1 data_offsets, not 2"},
      {one("F32", "[2]", "[0,4,8]", 8), "'a' has more than 2 data_offsets"},
      {one("F4", "[2]", "[0,8]", 8), "'a' has dtype 'F4', only these are read: BOOL I8 U8 F8_E4M3", Code::unsupported},
      {one("F32", "[2]", "[8,0]", 8), "'a' has data_offsets [8, 0], which end before they begin"},
      {one("F32", "[2]", "[0,8]", 7), "past the end of the data (7 bytes from offset 62)"},
      {one("F32", "[2]", "[18446744073709551608,18446744073709551615]", 8), "past the end of the data"},
      {one("F32", "[3]", "[0,8]", 8),
       "shape (3) of float32 takes 12 bytes, but data_offsets [0, 8] hold 8, at offset 62"},
      {one("F32", "[2147483649]", "[0,4]", 4), "shape (2147483649) of float32 takes 8589934596 bytes"},
      {one("F32", "[2147483648,2147483648]", "[0,0]", 0), "takes more than 2^63 - 1 bytes"},
      {one("F32", "[0,9223372036854775807,2]", "[0,0]", 0), "takes more than 2^63 - 1 bytes"},
      {one("F32", "[2]", "[1,9]", 9),
       "'a' begins at byte 1 of the data (offset 63), but the arrays before it end at 0: a hole"},
      {safetensors("{" + a + "," + entry("b", "F32", "[2]", "[4,12]") + "}", 12), "end at 8: an overlap"},
      {safetensors("{" + a + "," + entry("b", "F32", "[2]", "[0,8]") + "}", 8), "end at 8: an overlap"},
      {safetensors("{" + a + "," + entry("b", "F32", "[0]", "[4,4]") + "}", 8), "end at 8: an overlap"},
      {safetensors("{" + a + "}", 9), "1 bytes at offset 70 belong to no array"},
      {safetensors("{}", 3), "3 bytes at offset 10 belong to no array"},
  };
  for (const Refusal& row : table) {
    Archive untouched;
    untouched.metadata["un"] = "touched";
    const Status status = parse_safetensors(bytes_of(row.bytes), "q.safetensors", &untouched);
    expect_refused(row, status, "q.safetensors");
    EXPECT_EQ(untouched.metadata.size(), 1u);
  }
}

TEST(Safetensors, DeepNestingAndTerminalBytesAreHarmless) {
  Archive got;
  for (const char* open : {"[", "{\"a\":"}) {
    std::string bomb = "{\"a\":";
    for (int i = 0; i < 2'000'000; ++i) bomb += open;
    const std::string bytes = safetensors(bomb);
    EXPECT_FALSE(parse_safetensors(bytes_of(bytes), "bomb", &got));
  }
  const std::string escape = safetensors("{\"\\u001b[2J" + std::string(1000, 'n') + "\":1}");
  const Status status = parse_safetensors(bytes_of(escape), "q", &got);
  EXPECT_NE(status.why.find("'\\x1b[2Jnnn"), std::string::npos) << status.why;
  EXPECT_LT(status.why.size(), 200u);
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string bytes = safetensors("{" + entry("a", "F32", "[2]", "[0,8]") + "}", 8);
  Archive got;
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(parse_safetensors(bytes_of(bytes).first(size), "a", &got)) << size;
  }
  EXPECT_TRUE(parse_safetensors(bytes_of(bytes), "a", &got));
}

TEST(Safetensors, WriterRefuses) {
  const Folder folder;
  const std::string path = folder.file("w.safetensors");
  const auto why = [&](const std::vector<Array>& arrays, const Metadata& metadata = {}) {
    return write_safetensors(path, arrays, metadata).why;
  };
  Array short_array = random_array("s", Kind::f32, {4});
  short_array.shape = {5};
  const Array a = random_array("a", Kind::u8, {1});
  EXPECT_EQ(why({a, a}), path + ": two arrays are named 'a'");
  EXPECT_EQ(why({short_array}), path + ": 's': shape (5) takes 20 bytes, the array has 16");
  EXPECT_EQ(why({random_array("__metadata__", Kind::u8, {1})}), path + ": an array cannot be named '__metadata__'");
  EXPECT_EQ(why({random_array("\xff", Kind::u8, {1})}), path + ": '\\xff' is not UTF-8");
  EXPECT_EQ(why({a}, {{"k", "\xc3"}}), path + ": '\\xc3' is not UTF-8");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

#ifdef FALCHION_SOURCE_DIR
TEST(Safetensors, ReadsTheSampleOfARealModel) {
  Archive sample;
  const Status status = read_safetensors(FALCHION_SOURCE_DIR "/examples/smollm2/smollm2_qkv.safetensors", &sample);
  ASSERT_TRUE(status) << status.why;
  ASSERT_EQ(sample.arrays.size(), 9u);
  EXPECT_EQ(sample.metadata.at("license"), "Apache-2.0");
  EXPECT_EQ(sample.metadata.at("causal"), "true");
  EXPECT_EQ(sample.metadata.at("scale"), "0.125");
  for (const char* layer : {"layer00", "layer14", "layer29"}) {
    for (const char letter : {'q', 'k', 'v'}) {
      const Array* array = sample.find(std::string(layer) + "." + letter);
      ASSERT_NE(array, nullptr) << layer << letter;
      Tensor t;
      ASSERT_TRUE(to_tensor(*array, &t));
      EXPECT_EQ(t.dtype, DType::bf16);
      EXPECT_EQ(t.shape, (std::array<std::int64_t, 4>{1, 509, letter == 'q' ? 9 : 3, 64}));
      double squares = 0;
      for (std::int64_t i = 0; i < array->elements(); ++i) {
        std::uint16_t half = 0;
        std::memcpy(&half, array->bytes.data() + 2 * i, 2);
        const float x = std::bit_cast<float>(std::uint32_t{half} << 16);
        ASSERT_TRUE(std::isfinite(x));
        squares += double{x} * x;
      }
      const double rms = std::sqrt(squares / static_cast<double>(array->elements()));
      EXPECT_GT(rms, 0.01) << array->name;
      EXPECT_LT(rms, 5) << array->name;
    }
  }
  // The script that wrote the sample and the writer here agree on order, padding and metadata.
  const Folder folder;
  ASSERT_TRUE(write_safetensors(folder.file("again"), sample.arrays, sample.metadata));
  std::shared_ptr<const MappedFile> ours, theirs;
  ASSERT_TRUE(MappedFile::open(folder.file("again"), &ours));
  ASSERT_TRUE(MappedFile::open(FALCHION_SOURCE_DIR "/examples/smollm2/smollm2_qkv.safetensors", &theirs));
  EXPECT_TRUE(std::ranges::equal(ours->bytes(), theirs->bytes()));
}
#endif

}  // namespace
}  // namespace falchion::io
