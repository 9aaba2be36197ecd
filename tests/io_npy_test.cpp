/// io_npy_test.cpp: tests of .npy files: round trips, files of other writers, and every refusal with its words.
#include "io/npy.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "io/array.hpp"
#include "io_support.hpp"

namespace falchion::io {
namespace {

/// Returns the header of version 1 that NumPy writes for `dict`, without padding, followed by data_bytes bytes.
std::string npy(const std::string& dict, std::size_t data_bytes = 0) {
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(dict.size() & 255);
  out += static_cast<char>(dict.size() >> 8);
  return out + dict + std::string(data_bytes, 'x');
}

std::string npy_f4(const std::string& shape, std::size_t data_bytes) {
  return npy("{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }", data_bytes);
}

TEST(Npy, RoundTripOfEveryKindAndShape) {
  const Folder folder;
  for (const KindFacts& row : kinds()) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{7}, Shape{3, 0, 2}, Shape{2, 3, 5, 7}, Shape(64, 1)}) {
      const Array want = random_array("x.y", row.kind, shape);
      ASSERT_TRUE(write_npy(folder.file("x.y.npy"), want));
      Array got;
      const Status status = read_npy(folder.file("x.y.npy"), &got);
      ASSERT_TRUE(status) << row.name << ": " << status.why;
      EXPECT_EQ(got.kind == Kind::u16, row.kind == Kind::u16 || row.kind == Kind::bf16);
      ASSERT_TRUE(view_as(row.kind, &got));
      expect_same(got, want);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got.bytes.data()) % 64, 0u);
    }
  }
}

TEST(Npy, HeaderIsWhatNumPyWrites) {
  std::string header;
  ASSERT_TRUE(npy_header(random_array("a", Kind::f32, {3}), &header));
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
  EXPECT_EQ(header, std::string("\x93NUMPY\x01\x00\x76\x00", 10) + text + std::string(117 - text.size(), ' ') + "\n");
  ASSERT_TRUE(npy_header(random_array("a", Kind::boolean, {}), &header));
  EXPECT_NE(header.find("{'descr': '|b1', 'fortran_order': False, 'shape': (), }"), std::string::npos);
}

TEST(Npy, ReadsWhatOtherWritersMayWrite) {
  const std::string f = "'fortran_order': False, ";
  const std::vector<std::pair<std::string, Kind>> good = {
      {npy("{\"shape\" :(2 , 3,) ,'fortran_order':False,'descr':'=f4'}", 24), Kind::f32},
      {npy("{'descr':'<i8'," + f + "'shape':(1L,)}\n", 8), Kind::i64},
      {npy("{'descr':'>u1'," + f + "'shape':(2,)}", 2), Kind::u8},
      {npy("{'descr':'<V2'," + f + "'shape':(2,)}", 4), Kind::u16},
      {npy("{'descr':'|V1'," + f + "'shape':(2,)}", 2), Kind::u8},
      {npy("{'descr':'<f2','fortran_order':True,'shape':(1,5,1)}", 10), Kind::f16},
      {npy("{'descr':'<f2','fortran_order':True,'shape':()}", 2), Kind::f16},
  };
  for (const auto& [bytes, kind] : good) {
    Array got;
    const Status status = parse_npy(bytes_of(bytes), "good.npy", &got);
    ASSERT_TRUE(status) << status.why;
    EXPECT_EQ(got.kind, kind);
    EXPECT_EQ(got.name, "good");
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(got.bytes.data()) % static_cast<std::uintptr_t>(kind_bytes(kind)), 0u);
  }
}

TEST(Npy, Versions2And3HaveALongerLength) {
  for (const char version : {'\2', '\3'}) {
    std::string bytes = npy_f4("(2,)", 8);
    bytes[6] = version;
    bytes.insert(10, 2, '\0');
    Array got;
    const Status status = parse_npy(bytes_of(bytes), "v.npy", &got);
    ASSERT_TRUE(status) << status.why;
    EXPECT_EQ(got.shape, Shape{2});
  }
}

TEST(Npy, EachRefusalSaysWhatAndWhere) {
  const std::string f = "'fortran_order': False, ", s = "'shape': (2,), ", d = "'descr': '<f4', ";
  std::string many;
  for (int i = 0; i < 65; ++i) many += "1,";
  std::string version = npy_f4("(2,)", 8), past = npy_f4("(2,)", 0), second = version;
  version[6] = '\4';
  past.replace(8, 2, "\xff\xff");
  past.resize(128, ' ');
  second[6] = '\2';
  const std::vector<Refusal> table = {
      {"", "q.npy: 0 bytes are too few for a .npy file, which has at least 10"},
      {"\x93NUMPY\x01", "7 bytes are too few"},
      {"PK\x03\x04 a zip archive", "is no .npy file: it begins with 'PK\\x03\\x04 a' at offset 0"},
      {version, "version 4.0 at offset 6 is not read, only 1.0, 2.0 and 3.0", Code::unsupported},
      {std::string("\x93NUMPY\x02\x00\x10\x00", 10), "ends inside the header length at offset 8 (10 bytes)"},
      {past, "q.npy: header length 65535 at offset 8 runs past the end of the file (128 bytes)"},
      {second, "at offset 8 is above the limit of 1048576 bytes"},
      {npy(""), "expected '{', found the end at offset 10"},
      {npy("[1]"), "expected '{', found '[1]' at offset 10"},
      {npy("{"), "expected a key in quotes, found the end at offset 11"},
      {npy("{'descr"), "a string without its closing quote at offset 11"},
      {npy("{'descr' '<f4'}"), "expected ':', found ''<f4'}' at offset 19"},
      {npy("{'descr': [('a', '<f4')], " + f + s + "}"), "structured types are not read"},
      {npy("{" + d + d + f + s + "}"), "a second 'descr' at offset 27"},
      {npy("{" + d + f + f + s + "}"), "a second 'fortran_order'"},
      {npy("{" + d + f + s + s + "}"), "a second 'shape'"},
      {npy("{" + d + f + s + "'colour': 1}"), "unknown key 'colour'"},
      {npy("{" + f + s + "}"), "the header has no 'descr' at offset 10"},
      {npy("{" + d + s + "}"), "the header has no 'fortran_order'"},
      {npy("{" + d + f + "}"), "the header has no 'shape'"},
      {npy("{" + d + f + s + "} x"), "expected nothing after '}', found 'x'"},
      {npy("{" + d + f + s + "}" + std::string(1, '\0')), "expected nothing after '}', found '\\x00'"},
      {npy("{'descr': '<f4' 'x': 1}"), "expected ',' or '}'"},
      {npy("{" + d + "'fortran_order': 0, " + s + "}"), "expected True or False, found '0, 'shape': ' at offset 44"},
      {npy("{" + d + f + "'shape': 2}"), "expected '('"},
      {npy("{" + d + f + "'shape': (2)}"), "expected ',', found ')}'"},
      {npy("{" + d + f + "'shape': (2 3)}"), "expected ',' or ')', found '3)}'"},
      {npy("{" + d + f + "'shape': (-1,)}"), "expected an extent, a whole number from 0, found '-1,)}'"},
      {npy("{" + d + f + "'shape': (9223372036854775808,)}"), "extent '9223372036854775808' is above 2^63 - 1"},
      {npy("{" + d + f + "'shape': (" + many + ")}"), "more than 64 axes"},
      {npy("{'descr': '>f4', " + f + s + "}", 8), "type '>f4' is big endian", Code::unsupported},
      {npy("{'descr': '<c8', " + f + s + "}", 16), "type '<c8' is not read, only", Code::unsupported},
      {npy("{'descr': '<', " + f + s + "}", 16), "type '<' is not read", Code::unsupported},
      {npy("{'descr': '', " + f + s + "}", 16), "type '' is not read", Code::unsupported},
      {npy("{'descr': '|O', " + f + s + "}", 16), "type '|O' is not read", Code::unsupported},
      {npy("{" + d + "'fortran_order': True, 'shape': (2, 3)}", 24), "is in Fortran order, shape (2, 3)",
       Code::unsupported},
      {npy_f4("(2, 3)", 23), "shape (2, 3) of float32 takes 24 bytes, but 23 follow the header, which ends at offset"},
      {npy_f4("(2, 3)", 25), "takes 24 bytes, but 25 follow the header"},
      {npy_f4("()", 0), "shape () of float32 takes 4 bytes, but 0 follow"},
      {npy_f4("(2147483649,)", 4), "shape (2147483649) of float32 takes 8589934596 bytes, but 4 follow"},
      {npy_f4("(2147483648, 1073741824)", 4), "takes more than 2^63 - 1 bytes"},
      {npy_f4("(2147483648, 2147483648, 4)", 0), "takes more than 2^63 - 1 bytes"},
      {npy_f4("(0, 9223372036854775807, 2)", 0), "takes more than 2^63 - 1 bytes"},
      {npy_f4("(2305843009213693952,)", 0), "takes more than 2^63 - 1 bytes"},
  };
  for (const Refusal& row : table) {
    Array untouched;
    untouched.name = "untouched";
    const Status status = parse_npy(bytes_of(row.bytes), "q.npy", &untouched);
    expect_refused(row, status, "q.npy");
    EXPECT_EQ(untouched.name, "untouched");
  }
}

TEST(Npy, EveryTruncationIsRefused) {
  std::string header;
  const Array a = random_array("a", Kind::f32, {2, 2});
  ASSERT_TRUE(npy_header(a, &header));
  header.append(reinterpret_cast<const char*>(a.bytes.data()), a.bytes.size());
  Array got;
  for (std::size_t size = 0; size < header.size(); ++size) {
    EXPECT_FALSE(parse_npy(bytes_of(header).first(size), "a.npy", &got)) << size;
  }
  EXPECT_TRUE(parse_npy(bytes_of(header), "a.npy", &got));
}

TEST(Npy, WriterRefusesBytesThatDoNotMatch) {
  const Folder folder;
  Array a = random_array("a", Kind::f32, {4});
  a.shape = {5};
  const Status status = write_npy(folder.file("a.npy"), a);
  EXPECT_NE(status.why.find("a.npy: a: shape (5) takes 20 bytes, the array has 16"), std::string::npos) << status.why;
  EXPECT_FALSE(std::filesystem::exists(folder.file("a.npy")));
  a.shape = Shape(65, 1);
  EXPECT_NE(write_npy(folder.file("a.npy"), a).why.find("65 axes"), std::string::npos);
}

}  // namespace
}  // namespace falchion::io
