/// file.hpp: reads a whole file as bytes in memory, and writes bytes as a whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "falchion/falchion.hpp"

namespace falchion::io {

/// A file's bytes, read only, for as long as this object lives. A regular file is mapped. So nothing is read before it
/// is touched, and if somebody else truncates the file meanwhile, touching it raises SIGBUS. (Replacing it, as
/// write_file does, is safe.) A pipe is read into memory, up to kMaxPipeBytes.
class MappedFile {
 public:
  static constexpr std::size_t kMaxPipeBytes = std::size_t{1} << 30;

  /// Errors: invalid (cannot be opened, a directory, too long for this machine), workspace (out of memory).
  static Status open(const std::string& path, std::shared_ptr<const MappedFile>* out) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }

  MappedFile() = default;
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

 private:
  Status map(int descriptor, std::size_t size, const std::string& path);
  Status read_pipe(int descriptor, const std::string& path);

  std::span<const std::byte> bytes_;
  std::vector<std::byte> read_;  // the bytes of a pipe
  bool mapped_ = false;
};

/// Writes `pieces` one after the other. A regular file is replaced in one step when all is written. So a reader never
/// sees half a file, a failure leaves the old one, and an array mapped from `path` may be among the pieces. Anything
/// else (a pipe, a device) is written in place. So is the file that this process's standard output or error goes into:
/// the bytes go behind what is there already, so the stream must be flushed first. Errors: invalid, workspace.
Status write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces) noexcept;

/// At most 8 bytes as one number, with the lowest byte first.
std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept;

}  // namespace falchion::io
