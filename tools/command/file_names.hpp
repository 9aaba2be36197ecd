// tools/command/file_names.hpp: the files that a command line names, looked at before anything is computed.
#pragma once

#include <string>
#include <vector>

namespace falchion::tools {

/// Two outputs in one file would lose the first, and an output over an input would lose what it was made from: both
/// are refused, however the two names are spelled (./x, a link). So is an output that cannot be written: better now
/// than after an hour of work. Inputs are named first; an empty path is an option that was not given.
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
