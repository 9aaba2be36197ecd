/// io_test.cpp: tests of arrays and of whole files. io_npy_test.cpp and io_safetensors_test.cpp test the formats.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "io/array.hpp"
#include "io/file.hpp"
#include "io/npy.hpp"
#include "io_support.hpp"

namespace falchion::io {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif

TEST(Array, DenseBytesRefusesOverflowAlsoBehindAZero) {
  const std::int64_t big = std::int64_t{1} << 31;
  std::int64_t size = -1;
  ASSERT_TRUE(dense_bytes({big, big}, Kind::u8, &size));
  EXPECT_EQ(size, big * big);
  ASSERT_TRUE(dense_bytes({}, Kind::f64, &size));
  EXPECT_EQ(size, 8);
  ASSERT_TRUE(dense_bytes({3, 0, 5}, Kind::f64, &size));
  EXPECT_EQ(size, 0);
  EXPECT_EQ(dense_bytes({big, big}, Kind::f32, &size).why,
            "shape (2147483648, 2147483648) of float32 takes more than 2^63 - 1 bytes");
  EXPECT_FALSE(dense_bytes({0, big, big, big}, Kind::u8, &size));
  EXPECT_NE(dense_bytes({2, -1}, Kind::u8, &size).why.find("negative"), std::string::npos);
  EXPECT_EQ(dense_bytes(Shape(65, 1), Kind::u8, &size).why, "65 axes are above the limit of 64");
}

TEST(Array, ToTensorNamesTheAxesThatAreThere) {
  Tensor t;
  Array a = random_array("a", Kind::bf16, {2, 3, 4, 5});
  ASSERT_TRUE(to_tensor(a, &t));
  EXPECT_EQ(t.dtype, DType::bf16);
  EXPECT_EQ(t.shape, (std::array<std::int64_t, 4>{2, 3, 4, 5}));
  EXPECT_EQ(t.stride, (std::array<std::int64_t, 4>{60, 20, 5, 1}));
  EXPECT_EQ(t.data, a.bytes.data());
  ASSERT_TRUE(to_tensor(random_array("a", Kind::f32, {3, 4, 5}), &t));
  EXPECT_EQ(t.shape, (std::array<std::int64_t, 4>{1, 3, 4, 5}));
  ASSERT_TRUE(to_tensor(random_array("a", Kind::f16, {3, 5}), &t));
  EXPECT_EQ(t.shape, (std::array<std::int64_t, 4>{1, 3, 1, 5}));
  const Status rank = to_tensor(random_array("a", Kind::f16, {3}), &t);
  EXPECT_EQ(rank.why, "a: shape (3) is none of (b, s, h, d), (s, h, d), (s, d)");
  const Status kind = to_tensor(random_array("a", Kind::f64, {3, 5}), &t);
  EXPECT_EQ(kind.code, Code::unsupported);
  EXPECT_NE(kind.why.find("float64 is no type of the engine"), std::string::npos) << kind.why;
  a.bytes = a.bytes.first(8);
  EXPECT_NE(to_tensor(a, &t).why.find("takes 240 bytes, the array has 8"), std::string::npos);
}

TEST(Array, KindsAndDtypesAgree) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::e4m3, DType::boolean}) {
    EXPECT_EQ(engine_dtype(kind_of(dtype)), dtype);
  }
  EXPECT_EQ(kind_of(DType::e5m2), Kind::e5m2);
  EXPECT_EQ(kind_of(DType::i8), Kind::i8);
  EXPECT_EQ(kind_of(DType::i32), Kind::i32);
  EXPECT_FALSE(engine_dtype(Kind::i64));
}

TEST(Array, ViewAsKeepsTheSize) {
  Array a = random_array("a", Kind::u16, {4});
  ASSERT_TRUE(view_as(Kind::bf16, &a));
  EXPECT_EQ(a.kind, Kind::bf16);
  EXPECT_EQ(view_as(Kind::f32, &a).why, "a: bfloat16 of 2 bytes cannot be seen as float32 of 4");
}

TEST(Array, AlignToCopiesOnlyWhenItMust) {
  const Array whole = random_array("a", Kind::u8, {65});
  Array odd = whole;
  odd.shape = {64};
  odd.bytes = whole.bytes.subspan(1);
  const std::byte* before = odd.bytes.data();
  ASSERT_TRUE(align_to(1, &odd));
  EXPECT_EQ(odd.bytes.data(), before);
  ASSERT_TRUE(align_to(64, &odd));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(odd.bytes.data()) % 64, 0u);
  EXPECT_TRUE(std::ranges::equal(odd.bytes, whole.bytes.subspan(1)));
  EXPECT_FALSE(align_to(48, &odd));
  EXPECT_FALSE(align_to(128, &odd));
}

TEST(Array, HugeMemoryIsAStatus) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer ends the process where new would throw";
  Array a;
  const Status status = make_array("a", Kind::u8, {std::int64_t{1} << 62}, &a);
  EXPECT_EQ(status.code, Code::workspace);
  EXPECT_EQ(status.why, "out of memory");
}

TEST(File, OpenSaysWhyNot) {
  const Folder folder;
  std::shared_ptr<const MappedFile> file;
  const Status missing = MappedFile::open(folder.file("none"), &file);
  EXPECT_NE(missing.why.find("none: cannot be opened: No such file"), std::string::npos) << missing.why;
  EXPECT_NE(MappedFile::open(folder.path().string(), &file).why.find("is a directory"), std::string::npos);
  EXPECT_NE(write_file(folder.path().string(), {}).why.find("is a directory"), std::string::npos);
  EXPECT_FALSE(write_file(folder.file("no/such/folder"), {}));
  std::ofstream(folder.file("empty")).flush();
  ASSERT_TRUE(MappedFile::open(folder.file("empty"), &file));
  EXPECT_TRUE(file->bytes().empty());
}

TEST(File, WritingOverAMappedFileKeepsTheOldBytes) {
  const Folder folder;
  const std::string path = folder.file("a.npy");
  const Array first = random_array("a", Kind::f32, {1000}), second = random_array("a", Kind::f32, {10});
  ASSERT_TRUE(write_npy(path, first));
  std::filesystem::create_symlink(path, folder.file("link.npy"));
  Array mapped;
  ASSERT_TRUE(read_npy(path, &mapped));
  ASSERT_TRUE(write_npy(folder.file("link.npy"), second));
  expect_same(mapped, first);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.file("link.npy")));
  ASSERT_TRUE(read_npy(path, &mapped));
  expect_same(mapped, second);
  // No temporary file is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 2);
}

TEST(File, ReadsAndWritesPipes) {
  const Folder folder;
  const std::string path = folder.file("pipe");
  const Array sent = random_array("pipe", Kind::i32, {300, 1000});
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { EXPECT_TRUE(write_npy(path, sent)); });
  Array got;
  const Status status = read_npy(path, &got);
  writer.join();
  ASSERT_TRUE(status) << status.why;
  expect_same(got, sent);
}

}  // namespace
}  // namespace falchion::io
