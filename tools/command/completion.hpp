// tools/command/completion.hpp: a shell's completion script, written from the tree of options.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace falchion::tools {

/// shell: "bash", "zsh" or "fish".
std::string completion_script(const CLI::App& root, const std::string& shell);

}  // namespace falchion::tools
