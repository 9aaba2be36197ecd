/// npy.cpp: the .npy reader and writer.
#include "io/npy.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <utility>

#include "io/file.hpp"
#include "io/npy_dict.hpp"
#include "io/text.hpp"

namespace falchion::io {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);

Status kind_from(std::string_view descr, const std::string& file, Kind* out) {
  const std::string shown = "type " + in_quotes(descr);
  const bool ordered = !descr.empty() && std::string_view("<>|=").find(descr[0]) != std::string_view::npos;
  const std::string_view code = descr.substr(ordered ? 1 : 0);
  const char order = ordered ? descr[0] : '=';
  // The first row of the table with this code is the plain type: u2 means u16 and not bf16. ml_dtypes writes V2 for
  // bf16 and V1 for fp8.
  const std::string_view plain = code == "V2" ? "u2" : code == "V1" ? "u1" : code;
  const auto row = std::ranges::find(kinds(), plain, [](const KindFacts& k) { return std::string_view(k.npy); });
  if (row == kinds().end()) {
    return unsupported(file, shown + " is not read, only b1 i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 V1 V2");
  }
  if (row->bytes > 1 && order == '>') return unsupported(file, shown + " is big endian, only little endian is read");
  *out = row->kind;
  return {};
}

// Finds the header's text. Sets where it and the data begin.
Status locate_header(std::span<const std::byte> bytes, const std::string& file, std::size_t* start, std::size_t* data) {
  const std::string size = std::to_string(bytes.size());
  if (bytes.size() < 10) return refuse(file, size + " bytes are too few for a .npy file, which has at least 10");
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return refuse(file, "is no .npy file: it begins with " +
                            in_quotes({reinterpret_cast<const char*>(bytes.data()), kMagic.size()}) +
                            " at offset 0, not with '\\x93NUMPY'");
  }
  const auto major = std::to_integer<int>(bytes[6]), minor = std::to_integer<int>(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return unsupported(file, "version " + std::to_string(major) + "." + std::to_string(minor) +
                                 " at offset 6 is not read, only 1.0, 2.0 and 3.0");
  }
  const std::size_t width = major == 1 ? 2 : 4;
  *start = 8 + width;
  if (bytes.size() < *start) return refuse(file, "ends inside the header length at offset 8 (" + size + " bytes)");
  const std::uint64_t length = little_endian(bytes.subspan(8, width));
  if (length > kMaxNpyHeader) {
    return refuse(file, "header length " + std::to_string(length) + " at offset 8 is above the limit of " +
                            std::to_string(kMaxNpyHeader) + " bytes");
  }
  if (length > bytes.size() - *start) {
    return refuse(file, "header length " + std::to_string(length) + " at offset 8 runs past the end of the file (" +
                            size + " bytes)");
  }
  *data = *start + length;
  return {};
}

}  // namespace

Status parse_npy(std::span<const std::byte> bytes, const std::string& file, Array* out,
                 std::shared_ptr<const void> owner) noexcept {
  return guarded([&]() -> Status {
    std::size_t start = 0, data = 0;
    if (Status status = locate_header(bytes, file, &start, &data); !status) return status;
    NpyDict dict;
    std::string why;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + start, data - start);
    if (!parse_npy_dict(text, start, &dict, &why)) return refuse(file, why);
    Array array;
    array.shape = std::move(dict.shape);
    if (Status status = kind_from(dict.descr, file, &array.kind); !status) return status;
    const std::string shape = shape_text(array.shape);
    // With at most one extent above 1 both orders are the same; some writers then say True.
    if (dict.fortran_order && std::ranges::count_if(array.shape, [](std::int64_t n) { return n > 1; }) > 1) {
      return unsupported(file, "is in Fortran order, shape " + shape +
                                   "; only C order is read: save numpy.ascontiguousarray(x) instead of x");
    }
    std::int64_t size = 0;
    if (Status status = dense_bytes(array.shape, array.kind, &size); !status) return refuse(file, status.why);
    const std::size_t present = bytes.size() - data;
    if (static_cast<std::uint64_t>(size) != present) {
      return refuse(file, "shape " + shape + " of " + kind_name(array.kind) + " takes " + std::to_string(size) +
                              " bytes, but " + std::to_string(present) + " follow the header, which ends at offset " +
                              std::to_string(data));
    }
    array.name = std::filesystem::path(file).stem().string();
    array.bytes = bytes.subspan(data);
    array.owner = std::move(owner);
    if (Status status = align_to(static_cast<std::size_t>(kind_bytes(array.kind)), &array); !status) return status;
    *out = std::move(array);
    return {};
  });
}

Status read_npy(const std::string& path, Array* out) noexcept {
  std::shared_ptr<const MappedFile> file;
  if (Status status = MappedFile::open(path, &file); !status) return status;
  const std::span<const std::byte> bytes = file->bytes();
  return parse_npy(bytes, path, out, std::move(file));
}

Status npy_header(const Array& array, std::string* out) noexcept {
  return guarded([&]() -> Status {
    std::int64_t size = 0;
    if (Status status = dense_bytes(array.shape, array.kind, &size); !status) return refuse(array.name, status.why);
    if (static_cast<std::uint64_t>(size) != array.bytes.size()) {
      return refuse(array.name, "shape " + shape_text(array.shape) + " takes " + std::to_string(size) +
                                    " bytes, the array has " + std::to_string(array.bytes.size()));
    }
    std::string shape = shape_text(array.shape);
    if (array.shape.size() == 1) shape.insert(shape.size() - 1, ",");
    std::string text = std::string("{'descr': '") + (kind_bytes(array.kind) == 1 ? '|' : '<') + facts(array.kind).npy +
                       "', 'fortran_order': False, 'shape': " + shape + ", }";
    const std::size_t whole = (10 + text.size() + 1 + 63) / 64 * 64;  // magic, version, length, text, newline
    text.append(whole - 10 - text.size() - 1, ' ').append("\n");
    *out = std::string(kMagic) + '\1' + '\0' + static_cast<char>(text.size() & 255) +
           static_cast<char>(text.size() >> 8) + text;
    return {};
  });
}

Status write_npy(const std::string& path, const Array& array) noexcept {
  return guarded([&]() -> Status {
    std::string header;
    if (Status status = npy_header(array, &header); !status) return refuse(path, status.why);
    const std::array<std::span<const std::byte>, 2> pieces{std::as_bytes(std::span(header)), array.bytes};
    return write_file(path, pieces);
  });
}

}  // namespace falchion::io
