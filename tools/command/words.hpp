// tools/command/words.hpp: finds the word of a list that a text spells, or the nearest one. One table of spellings is
// used for every option.
#pragma once

#include <string>
#include <vector>

namespace falchion::tools {

/// The word that `text` spells, or "" if none. Case, '-' and '_' make no difference ("bottom_right" is bottom-right,
/// "sm_90" is sm90), and a type may have its name in NumPy and PyTorch ("float32" is f32).
std::string spelled(const std::string& text, const std::vector<std::string>& words);

/// The same; throws UsageError "OPTION: "text" is not one of a, b, c" if it spells none.
std::string word_of(const std::string& option, const std::string& text, const std::vector<std::string>& words);

/// "; did you mean WORD?" with the word nearest to `text`, or "" if none is near.
std::string did_you_mean(const std::string& text, const std::vector<std::string>& words);

}  // namespace falchion::tools
