// tools/command/file_names.cpp
#include "command/file_names.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tool.hpp"

namespace falchion::tools {
namespace {

namespace fs = std::filesystem;

/// The target of a path. Follows links, also those whose target does not exist yet.
fs::path destination(fs::path path) {
  constexpr int kMostLinks = 40;  // the same as Linux; more links must be a circle
  std::error_code error;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(path, error)); ++i) {
    const fs::path target = fs::read_symlink(path, error);
    if (error) break;
    path = target.is_absolute() ? target : path.parent_path() / target;
  }
  return path;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

/// Gives the same text for two names of one file. An existing file is identified by its inode, and a new one by its
/// folder's inode and its name.
std::string identity_of(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return fmt::format("{}:{}", info.st_dev, info.st_ino);
  const fs::path target = destination(path);
  if (::stat(folder_of(target).c_str(), &info) != 0) return target.string();
  return fmt::format("{}:{}/{}", info.st_dev, info.st_ino, target.filename().string());
}

void require_writable(const std::string& option, const std::string& path) {
  const auto refuse = [&](const std::string& why) { throw UsageError{fmt::format("{}: {}: {}", option, path, why)}; };
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) refuse("is a directory");
  if (exists && !S_ISREG(info.st_mode)) {
    if (::access(path.c_str(), W_OK) != 0) refuse(fmt::format("cannot be written: {}", std::strerror(errno)));
    return;
  }
  const fs::path folder = folder_of(destination(path));
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    refuse(fmt::format("cannot be written into {}: {}", folder.string(), std::strerror(errno)));
}

/// /dev/null and terminals accept any number of outputs.
bool takes_many(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISCHR(info.st_mode);
}

}  // namespace

void FileNames::reads(const std::string& option, const std::string& path) {
  if (!path.empty()) files_.push_back({option, path, identity_of(path)});
}

void FileNames::writes(const std::string& option, const std::string& path) {
  if (path.empty()) return;
  require_writable(option, path);
  const std::string identity = identity_of(path);
  for (const File& other : files_) {
    if (other.identity == identity && !takes_many(path))
      throw UsageError{fmt::format("{} {} and {} {} are one file", other.option, other.path, option, path)};
  }
  files_.push_back({option, path, identity});
}

}  // namespace falchion::tools
