// tests/print_json_test.cpp: JSON as the command prints it (tools/command/print_json.cpp), and members that are added
// to an object, read back by another parser.
#include "command/print_json.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace falchion::tools {
namespace {

TEST(PrintJson, EachMemberAndElementHasItsLine) {
  const Json inner = Json::object({{"x", 1}, {"y", Json::array({})}});
  const Json json = Json::object({{"a", inner}, {"b", Json::object({})}, {"c", true}});
  EXPECT_EQ(pretty(json.text()), "{\n \"a\": {\n  \"x\": 1,\n  \"y\": []\n },\n \"b\": {},\n \"c\": true\n}");
  EXPECT_EQ(pretty("[1,[2]]", 2), "[\n  1,\n  [\n    2\n  ]\n]");
  EXPECT_EQ(pretty("null"), "null");
}

/// What looks like JSON inside a string is left alone, also behind a quote or a backslash.
TEST(PrintJson, StringsAreNotTouched) {
  for (const char* text : {"{a: [1, 2]}", "\"", "\\", "\\\"{", "", "a\nb"}) {
    const Json json = Json::object({{text, text}});
    const std::string shown = pretty(json.text());
    EXPECT_NE(shown.find(Json(text).text() + ": " + Json(text).text()), std::string::npos) << shown;
    EXPECT_EQ(nlohmann::json::parse(shown)[text], text);
  }
}

TEST(PrintJson, AMemberIsAddedAtTheEnd) {
  EXPECT_EQ(Json::object({}).with("a", 1).text(), R"({"a":1})");
  EXPECT_EQ(Json::object({{"a", 1}}).with("b\"", nullptr).with("c", "x").text(), R"({"a":1,"b\"":null,"c":"x"})");
}

}  // namespace
}  // namespace falchion::tools
