// src/plan/story.hpp: what explain() has to tell: sentences for people, and the facts that they are made of for
// programs.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "falchion/falchion.hpp"
#include "plan/json.hpp"

namespace falchion {

/// A sentence and its facts are told in one call, so that the text and the JSON cannot say different things.
class Story {
 public:
  using Facts = std::initializer_list<Json::Member>;

  /// A line with its heading in a column of its own, and its facts as members of the JSON object.
  void tell(std::string_view heading, std::string_view sentence, Facts facts = {});
  /// Facts that the text leaves unsaid or has said elsewhere.
  void note(Facts facts);
  /// A line as it is.
  void line(std::string text);

  /// As text: the lines. As JSON: an object of the facts, with the lines as its last member "text".
  std::string in(Format format) const;

 private:
  std::vector<std::string> lines_;
  std::vector<Json::Member> facts_;
};

}  // namespace falchion
