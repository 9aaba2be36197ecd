/// file.cpp: mapping, reading and replacing files, with POSIX calls.
#include "io/file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <limits>
#include <system_error>

#include "io/text.hpp"

namespace falchion::io {
namespace {

struct Descriptor {
  int fd = -1;
  explicit Descriptor(int fd) : fd(fd) {}
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
};

Status system_error(const std::string& path, const char* action, int error) {
  return refuse(path, std::string(action).append(": ").append(std::generic_category().message(error)));
}

int open_retrying(const char* path, int flags, mode_t mode = 0) {
  int fd = -1;
  do { fd = ::open(path, flags | O_CLOEXEC, mode); } while (fd < 0 && errno == EINTR);
  return fd;
}

Status write_all(int fd, std::span<const std::span<const std::byte>> pieces, const std::string& path) {
  constexpr std::size_t kMost = std::size_t{1} << 30;  // Linux writes at most 2 GiB a call
  for (std::span<const std::byte> piece : pieces) {
    while (!piece.empty()) {
      const ssize_t written = ::write(fd, piece.data(), piece.size() < kMost ? piece.size() : kMost);
      if (written < 0 && errno != EINTR) return system_error(path, "cannot write", errno);
      if (written > 0) piece = piece.subspan(static_cast<std::size_t>(written));
    }
  }
  return {};
}

// The file that `path` leads to. A new version is written beside it first, so that the rename stays on one file system
// and a symbolic link goes on pointing to it.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, void (*)(void*)> real(::realpath(path.c_str(), nullptr), std::free);
  return real ? real.get() : path;
}

Status replace(const std::string& path, mode_t mode, bool exists, std::span<const std::span<const std::byte>> pieces) {
  static std::atomic<unsigned> serial{0};
  const std::string target = exists ? resolved(path) : path;
  const std::string fresh = target + ".tmp" + std::to_string(::getpid()) + "_" + std::to_string(serial++);
  const int fd = open_retrying(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0666);
  if (fd < 0) return system_error(path, "cannot be written", errno);
  Status status;
  if (exists && ::fchmod(fd, mode & 07777) != 0) status = system_error(path, "cannot keep its mode", errno);
  if (status) status = write_all(fd, pieces, path);
  if (::close(fd) != 0 && status)
    status = system_error(path, "cannot write", errno);  // a full quota may only show here
  if (status && ::rename(fresh.c_str(), target.c_str()) != 0) status = system_error(path, "cannot be replaced", errno);
  if (!status) ::unlink(fresh.c_str());
  return status;
}

// The descriptor of the process's own standard output or error if that stream goes into this very file, else -1.
// /dev/stdout of a command that is called with "> FILE" is such a name. If the file were replaced, the stream would go
// on writing into a file that no name leads to.
int own_stream_into(const struct stat& file) {
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat info {};
    if (::fstat(stream, &info) == 0 && info.st_dev == file.st_dev && info.st_ino == file.st_ino) return stream;
  }
  return -1;
}

Status write_in_place(int fd, std::span<const std::span<const std::byte>> pieces, const std::string& path) {
  if (fd < 0) return system_error(path, "cannot be written", errno);
  Status status = write_all(fd, pieces, path);
  if (::close(fd) != 0 && status) status = system_error(path, "cannot write", errno);
  return status;
}

}  // namespace

MappedFile::~MappedFile() {
  if (mapped_) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

Status MappedFile::map(int descriptor, std::size_t size, const std::string& path) {
  if (size == 0) return {};  // mmap refuses length 0
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
  if (start == MAP_FAILED) return system_error(path, "cannot be mapped", errno);
  mapped_ = true;
  bytes_ = {static_cast<const std::byte*>(start), size};
  return {};
}

Status MappedFile::read_pipe(int descriptor, const std::string& path) {
  constexpr std::size_t kStep = std::size_t{1} << 16;
  std::size_t size = 0;
  while (true) {
    if (read_.size() < size + kStep) read_.resize(read_.size() * 2 + kStep);
    const ssize_t got = ::read(descriptor, read_.data() + size, read_.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path, "cannot be read", errno);
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
    if (size > kMaxPipeBytes) {
      return refuse(path, "is no regular file and gives more than " + std::to_string(kMaxPipeBytes) + " bytes");
    }
  }
  bytes_ = std::span<const std::byte>(read_).first(size);
  return {};
}

Status MappedFile::open(const std::string& path, std::shared_ptr<const MappedFile>* out) noexcept {
  return guarded([&]() -> Status {
    const Descriptor file(open_retrying(path.c_str(), O_RDONLY));
    if (file.fd < 0) return system_error(path, "cannot be opened", errno);
    struct stat info {};
    if (::fstat(file.fd, &info) != 0) return system_error(path, "cannot be examined", errno);
    if (S_ISDIR(info.st_mode)) return refuse(path, "is a directory");
    auto made = std::make_shared<MappedFile>();
    Status status;
    if (!S_ISREG(info.st_mode)) {
      status = made->read_pipe(file.fd, path);
    } else if (static_cast<std::uintmax_t>(info.st_size) > std::numeric_limits<std::size_t>::max() / 2) {
      status = refuse(path, "is too long to map, " + std::to_string(info.st_size) + " bytes");
    } else {
      status = made->map(file.fd, static_cast<std::size_t>(info.st_size), path);
    }
    if (status) *out = std::move(made);
    return status;
  });
}

std::uint64_t little_endian(std::span<const std::byte> bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) value |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  return value;
}

Status write_file(const std::string& path, std::span<const std::span<const std::byte>> pieces) noexcept {
  return guarded([&]() -> Status {
    struct stat info {};
    const bool exists = ::stat(path.c_str(), &info) == 0;
    if (exists && S_ISDIR(info.st_mode)) return refuse(path, "is a directory");
    const int stream = exists ? own_stream_into(info) : -1;
    if (stream >= 0) return write_in_place(::dup(stream), pieces, path);
    if (!exists || S_ISREG(info.st_mode)) return replace(path, info.st_mode, exists, pieces);
    return write_in_place(open_retrying(path.c_str(), O_WRONLY), pieces, path);
  });
}

}  // namespace falchion::io
