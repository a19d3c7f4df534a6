#include "formats/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/json_file.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using testing::HasSubstr;

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST(JsonText, HasALimitOfDepth) {
  EXPECT_EQ(parse_json_text(nested(kDeepestJson), "a").dump(), nested(kDeepestJson));
  for (const std::string& deep :
       {nested(kDeepestJson + 1), std::string(1'000'000, '['), std::string(1'000'000, '{')}) {
    EXPECT_EQ(error_of([&] { parse_json_text(deep, "a"); }), "a: JSON nested deeper than 64");
  }
  // Brackets in texts are none, nor is depth what has been closed.
  const std::string texts = "[\"" + std::string(100, '[') + "\\\"[[\", \"\\\\\", [1]]";
  EXPECT_EQ(parse_json_text(texts, "a").size(), 3u);
  std::string many = "[0";
  for (int i = 0; i < 1000; ++i) many += ",[{}]";
  EXPECT_EQ(parse_json_text(many + "]", "a").size(), 1001u);
}

TEST(JsonText, HasALimitOfSize) {
  EXPECT_EQ(parse_json_text("[1]", "a", {.bytes = 3}).size(), 1u);
  EXPECT_EQ(error_of([] { parse_json_text("[12]", "a", {.bytes = 3}); }),
            "a: 4 bytes are too many for JSON; at most 3 are read");
  const TempDir dir;
  write_text(dir / "large", std::string((32 << 20) + 1, ' '));
  EXPECT_THAT(error_of([&] { read_json(dir / "large"); }), HasSubstr("too many for JSON"));
}

// The limit is of what a document would take, not of its text.
TEST(JsonText, HasALimitOfMemory) {
  const auto many = [](const std::string& value, std::size_t count) {
    std::string text = "[0";
    for (std::size_t i = 0; i < count; ++i) text += "," + value;
    return text + "]";
  };
  for (const std::string value : {"0", "[]", "{}", "{\"\":0}", "\"\"", "[0]"}) {
    EXPECT_THAT(
        error_of([&] { parse_json_text(many(value, value == "0" ? 9'000'000 : 3'000'000), "a"); }),
        HasSubstr("small values"))
        << value;
  }
  // A large vocabulary without blanks.
  std::string vocabulary = R"({"model":{"vocab":{"":0)", merges = R"(},"merges":[["a","b"])";
  for (int i = 0; i < 262'144; ++i) {
    vocabulary += ",\"" + std::to_string(i) + "\":" + std::to_string(i);
    merges += R"(,["ab","cd"],["a","b"],["c","d"])";
  }
  const auto document = parse_json_text(vocabulary + merges + "]}}", "a");
  EXPECT_EQ(document["model"]["vocab"].size(), 262'145u);
}

TEST(JsonText, HasLimitsOfValuesAndFields) {
  EXPECT_EQ(parse_json_text("[1,[2,3]]", "a", {.values = 4}).size(), 2u);
  EXPECT_EQ(error_of([] { parse_json_text("[1,[2,3,4]]", "a", {.values = 4}); }),
            "a: JSON of more than 4 values");
  const std::string two = R"({"a:,": {"b": 1, "c": 2}, "d": 3})";
  EXPECT_EQ(parse_json_text(two, "a", {.fields = 2}).size(), 2u);
  EXPECT_EQ(error_of([&] { parse_json_text(two, "a", {.fields = 1}); }),
            "a: a JSON object of more than 1 fields");
}

TEST(JsonText, SaysWhereItIsNoJsonAndRepeatsNothingOfIt) {
  EXPECT_EQ(error_of([] { parse_json_text("{\"a\": \x1b[31m}", "a"); }),
            "a: not valid JSON at byte 7");
  EXPECT_EQ(error_of([] { parse_json_text("[1e999]", "a"); }),
            "a: a number in this JSON is too large");
  EXPECT_EQ(error_of([] { parse_json_text("\"\xff\"", "a"); }), "a: not valid JSON at byte 2");
  const auto ordered = parse_json_text<nlohmann::ordered_json>(R"({"b": 1, "a": 2})", "a");
  EXPECT_EQ(ordered.begin().key(), "b");
}

}  // namespace
}  // namespace ballast
