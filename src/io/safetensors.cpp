/// safetensors.cpp: the safetensors reader and writer.
#include "io/safetensors.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "io/file.hpp"
#include "io/safetensors_json.hpp"
#include "io/text.hpp"

namespace falchion::io {
namespace {

constexpr std::size_t kLengthBytes = 8;

Status locate_header(std::span<const std::byte> bytes, const std::string& file, std::size_t* data) {
  const std::string size = std::to_string(bytes.size());
  if (bytes.size() < kLengthBytes) {
    return refuse(file, size + " bytes are too few for a safetensors file, which begins with a length of 8 bytes");
  }
  const std::uint64_t length = little_endian(bytes.first(kLengthBytes));
  if (length > kMaxSafetensorsHeader) {
    return refuse(file, "header length " + std::to_string(length) + " at offset 0 is above the limit of " +
                            std::to_string(kMaxSafetensorsHeader) + " bytes (is this a safetensors file?)");
  }
  if (length > bytes.size() - kLengthBytes) {
    return refuse(file, "header length " + std::to_string(length) + " at offset 0 runs past the end of the file (" +
                            size + " bytes)");
  }
  *data = kLengthBytes + static_cast<std::size_t>(length);
  return {};
}

// One entry, checked against the file alone: its type, its range, its size.
Status check_entry(const SafetensorsEntry& entry, std::size_t data, std::size_t data_size, const std::string& file,
                   Kind* kind) {
  const std::string name = in_quotes(entry.name);
  const auto row = std::ranges::find(kinds(), entry.dtype, &KindFacts::safetensors);
  if (row == kinds().end()) {
    std::string known;
    for (const KindFacts& k : kinds()) known.append(" ").append(k.safetensors);
    return unsupported(file, name + " has dtype " + in_quotes(entry.dtype) + ", only these are read:" + known);
  }
  *kind = row->kind;
  const std::string range = "data_offsets [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + "]";
  if (entry.begin > entry.end) return refuse(file, name + " has " + range + ", which end before they begin");
  if (entry.end > data_size) {
    return refuse(file, name + " has " + range + ", past the end of the data (" + std::to_string(data_size) +
                            " bytes from offset " + std::to_string(data) + ")");
  }
  std::int64_t size = 0;
  if (Status status = dense_bytes(entry.shape, *kind, &size); !status) return refuse(file, name + ": " + status.why);
  if (static_cast<std::uint64_t>(size) != entry.end - entry.begin) {
    return refuse(file, name + ": shape " + shape_text(entry.shape) + " of " + kind_name(*kind) + " takes " +
                            std::to_string(size) + " bytes, but " + range + " hold " +
                            std::to_string(entry.end - entry.begin) + ", at offset " +
                            std::to_string(data + entry.begin));
  }
  return {};
}

// The arrays, in the order of their data, must touch: the format allows no byte that belongs to two arrays or to none.
Status check_cover(const std::vector<SafetensorsEntry>& sorted, std::size_t data, std::size_t data_size,
                   const std::string& file) {
  std::uint64_t covered = 0;
  for (const SafetensorsEntry& entry : sorted) {
    if (entry.begin != covered) {
      const bool hole = entry.begin > covered;
      return refuse(file, in_quotes(entry.name) + " begins at byte " + std::to_string(entry.begin) +
                              " of the data (offset " + std::to_string(data + entry.begin) +
                              "), but the arrays before it end at " + std::to_string(covered) +
                              (hole ? ": a hole" : ": an overlap"));
    }
    covered = entry.end;
  }
  if (covered == data_size) return {};
  return refuse(file, std::to_string(data_size - covered) + " bytes at offset " + std::to_string(data + covered) +
                          " belong to no array");
}

// Why this array cannot be written, or nothing.
Status check_writable(const Array& array) {
  if (array.name == "__metadata__") return {Code::invalid, "an array cannot be named '__metadata__'"};
  std::int64_t size = 0;
  if (Status status = dense_bytes(array.shape, array.kind, &size); !status)
    return refuse(in_quotes(array.name), status.why);
  if (static_cast<std::uint64_t>(size) == array.bytes.size()) return {};
  return refuse(in_quotes(array.name), "shape " + shape_text(array.shape) + " takes " + std::to_string(size) +
                                           " bytes, the array has " + std::to_string(array.bytes.size()));
}

bool append_string(const std::string& text, std::string* out, Status* status) {
  std::string escaped;
  if (!to_json_string(text, &escaped)) {
    *status = {Code::invalid, in_quotes(text) + " is not UTF-8"};
    return false;
  }
  out->append(escaped);
  return true;
}

Status metadata_json(const Metadata& metadata, std::string* out) {
  Status status;
  *out += "\"__metadata__\":{";
  for (const auto& [key, value] : metadata) {
    if (out->back() != '{') *out += ',';
    if (!append_string(key, out, &status)) return status;
    *out += ':';
    if (!append_string(value, out, &status)) return status;
  }
  *out += '}';
  return status;
}

}  // namespace

const Array* Archive::find(std::string_view name) const noexcept {
  const auto place =
      std::ranges::lower_bound(arrays, name, {}, [](const Array& a) { return std::string_view(a.name); });
  return place != arrays.end() && place->name == name ? &*place : nullptr;
}

Status parse_safetensors(std::span<const std::byte> bytes, const std::string& file, Archive* out,
                         std::shared_ptr<const void> owner) noexcept {
  return guarded([&]() -> Status {
    std::size_t data = 0;
    if (Status status = locate_header(bytes, file, &data); !status) return status;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, data - kLengthBytes);
    std::vector<SafetensorsEntry> entries;
    Archive archive;
    if (Status status = parse_safetensors_json(text, kLengthBytes, file, &entries, &archive.metadata); !status)
      return status;
    std::ranges::sort(entries, {}, [](const SafetensorsEntry& e) { return std::pair(e.begin, e.end); });
    const std::size_t data_size = bytes.size() - data;
    archive.arrays.resize(entries.size());
    for (std::size_t i = 0; i < entries.size(); ++i) {
      Array& array = archive.arrays[i];
      if (Status status = check_entry(entries[i], data, data_size, file, &array.kind); !status) return status;
    }
    if (Status status = check_cover(entries, data, data_size, file); !status) return status;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      Array& array = archive.arrays[i];
      SafetensorsEntry& entry = entries[i];
      array.name = std::move(entry.name);
      array.shape = std::move(entry.shape);
      array.bytes = bytes.subspan(data + entry.begin, entry.end - entry.begin);
      array.owner = owner;
      if (Status status = align_to(static_cast<std::size_t>(kind_bytes(array.kind)), &array); !status) return status;
    }
    std::ranges::sort(archive.arrays, {}, &Array::name);
    *out = std::move(archive);
    return {};
  });
}

Status read_safetensors(const std::string& path, Archive* out) noexcept {
  std::shared_ptr<const MappedFile> file;
  if (Status status = MappedFile::open(path, &file); !status) return status;
  const std::span<const std::byte> bytes = file->bytes();
  return parse_safetensors(bytes, path, out, std::move(file));
}

Status safetensors_header(std::span<const Array> arrays, const Metadata& metadata, std::string* out,
                          std::vector<std::size_t>* order) noexcept {
  return guarded([&]() -> Status {
    std::vector<std::size_t> sorted(arrays.size());
    std::iota(sorted.begin(), sorted.end(), std::size_t{0});
    std::ranges::sort(sorted, {},
                      [&](std::size_t i) { return std::tuple(-kind_bytes(arrays[i].kind), arrays[i].name); });
    std::string text = "{";
    if (!metadata.empty()) {
      if (Status status = metadata_json(metadata, &text); !status) return status;
    }
    std::vector<std::string_view> names;
    std::uint64_t at = 0;
    for (const std::size_t i : sorted) {
      const Array& array = arrays[i];
      if (Status status = check_writable(array); !status) return status;
      if (text.size() > 1) text += ',';
      Status status;
      if (!append_string(array.name, &text, &status)) return status;
      text.append(":{\"dtype\":\"").append(facts(array.kind).safetensors).append("\",\"shape\":[");
      for (std::size_t axis = 0; axis < array.shape.size(); ++axis) {
        text.append(axis == 0 ? "" : ",").append(std::to_string(array.shape[axis]));
      }
      text.append("],\"data_offsets\":[").append(std::to_string(at)).append(",");
      at += array.bytes.size();
      text.append(std::to_string(at)).append("]}");
      names.emplace_back(array.name);
    }
    text += '}';
    std::ranges::sort(names);
    const auto twice = std::ranges::adjacent_find(names);
    if (twice != names.end()) return {Code::invalid, "two arrays are named " + in_quotes(*twice)};
    text.append((64 - (kLengthBytes + text.size()) % 64) % 64, ' ');
    if (text.size() > kMaxSafetensorsHeader) {
      return {Code::invalid, "a header of " + std::to_string(text.size()) + " bytes is above the format's limit of " +
                                 std::to_string(kMaxSafetensorsHeader)};
    }
    out->clear();
    for (std::size_t i = 0; i < kLengthBytes; ++i) *out += static_cast<char>(text.size() >> (8 * i) & 255);
    *out += text;
    *order = std::move(sorted);
    return {};
  });
}

Status write_safetensors(const std::string& path, std::span<const Array> arrays, const Metadata& metadata) noexcept {
  return guarded([&]() -> Status {
    std::string header;
    std::vector<std::size_t> order;
    if (Status status = safetensors_header(arrays, metadata, &header, &order); !status) return refuse(path, status.why);
    std::vector<std::span<const std::byte>> pieces{std::as_bytes(std::span(header))};
    for (const std::size_t i : order) pieces.push_back(arrays[i].bytes);
    return write_file(path, pieces);
  });
}

}  // namespace falchion::io
