// tools/command/file_names.hpp: checks the files of a command line before anything is computed.
#pragma once

#include <string>
#include <vector>

namespace falchion::tools {

/// Refuses two outputs in one file, of which the first would be lost, and an output over an input, which would be lost,
/// for all spellings of a name (./x, a link). It also refuses an output that cannot be written, before the work instead
/// of after it. Inputs are named first; an empty path is an option that was not given.
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
