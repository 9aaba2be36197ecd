// tools/command/file_names.hpp: checks the files that a command line names before anything is computed.
#pragma once

#include <string>
#include <vector>

namespace falchion::tools {

/// Refuses two outputs in one file, where the first would be lost, and an output over an input, where the input would
/// be lost, however the two names are spelled (./x, a link). It also refuses an output that cannot be written, now and
/// not after an hour of work. Inputs are named first; an empty path is an option that was not given.
class FileNames {
 public:
  void reads(const std::string& option, const std::string& path);
  void writes(const std::string& option, const std::string& path);

 private:
  struct File {
    std::string option, path, identity;
  };
  std::vector<File> files_;
};

}  // namespace falchion::tools
