// src/plan/story.hpp: the contents of explain(): sentences for people, and the same facts for programs.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "falchion/falchion.hpp"
#include "plan/json.hpp"

namespace falchion {

/// Each call has a sentence and its facts, so that the text and the JSON cannot differ.
class Story {
 public:
  using Facts = std::initializer_list<Json::Member>;

  /// A line with its heading in a column of its own, and its facts as members of the JSON object.
  void tell(std::string_view heading, std::string_view sentence, Facts facts = {});
  /// Facts that have no sentence, or are in another one.
  void note(Facts facts);
  /// A line without a heading.
  void line(std::string text);

  /// As text: the lines. As JSON: an object of the facts, with the lines as its last member "text".
  std::string in(Format format) const;

 private:
  std::vector<std::string> lines_;
  std::vector<Json::Member> facts_;
};

}  // namespace falchion
