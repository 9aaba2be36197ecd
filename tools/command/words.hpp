// tools/command/words.hpp: which of a few words is meant by what was typed, and which one it is nearest to where none
// is. One table of spellings serves every option.
#pragma once

#include <string>
#include <vector>

namespace falchion::tools {

/// The word that `text` spells, or "" where it spells none. Case, '-' and '_' make no difference ("bottom_right" is
/// bottom-right, "sm_90" is sm90), and a type may have its name in NumPy and PyTorch ("float32" is f32).
std::string spelled(const std::string& text, const std::vector<std::string>& words);

/// The same; throws UsageError "OPTION: "text" is not one of a, b, c" where it spells none.
std::string word_of(const std::string& option, const std::string& text, const std::vector<std::string>& words);

/// "; did you mean WORD?" with the word nearest to `text`, or "" where none is near.
std::string did_you_mean(const std::string& text, const std::vector<std::string>& words);

}  // namespace falchion::tools
