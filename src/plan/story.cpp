// src/plan/story.cpp: see story.hpp.
#include "plan/story.hpp"

#include <utility>

#include "plan/text.hpp"

namespace falchion {

void Story::tell(std::string_view heading, std::string_view sentence, Facts facts) {
  constexpr std::size_t kColumn = 12;
  const std::size_t gap = heading.size() < kColumn ? kColumn - heading.size() : 1;
  line(text(heading, std::string(gap, ' '), sentence));
  note(facts);
}

void Story::note(Facts facts) { facts_.insert(facts_.end(), facts.begin(), facts.end()); }

void Story::line(std::string text) { lines_.push_back(std::move(text)); }

std::string Story::in(Format format) const {
  if (format == Format::json) {
    std::vector<Json::Member> members = facts_;
    members.emplace_back("text", Json::array(std::vector<Json>(lines_.begin(), lines_.end())));
    return Json::object(members).text();
  }
  std::string out;
  for (const std::string& line : lines_) out += text(line, "\n");
  return out;
}

}  // namespace falchion
