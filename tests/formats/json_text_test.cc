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
}

TEST(JsonParts, WithoutTakingAreTheDocument) {
  const auto none = [](std::span<const std::string>, const SortedJson&) { return false; };
  for (const char* text :
       {"1", "-1", "1.5", "true", "null", "\"\"", "[]", "{}", R"([1,[2,{"a":[]}],"b"])",
        R"({"a":{"b":{"c":1}},"d":[{"e":null},{"f":"\u00e9"}],"a2":-3e5})", R"({"a":1,"a":[2]})"}) {
    EXPECT_EQ(parse_json_parts(text, "a", none), parse_json_text(text, "a")) << text;
  }
  for (const char* text : {"", "[", "{\"a\":}", "[1,]", "1 2", "\"\xff\"", "[1e999]", "{1:2}"}) {
    EXPECT_EQ(error_of([&] { parse_json_parts(text, "a", none); }),
              error_of([&] { parse_json_text(text, "a"); }))
        << text;
  }
  EXPECT_EQ(error_of([&] { parse_json_parts(nested(kDeepestJson + 1), "a", none); }),
            "a: JSON nested deeper than 64");
}

TEST(JsonParts, WhatIsTakenIsNotInTheDocument) {
  std::string seen;
  const auto rest =
      parse_json_parts(R"({"a":{"x":1,"y":[2,{"z":3}]},"b":[4,[5]],"c":6})", "a",
                       [&](std::span<const std::string> path, const SortedJson& value) {
                         for (const std::string& key : path) seen += "/" + key;
                         seen += "=" + value.dump() + " ";
                         return path.size() == 2 && (path[0] == "a" || path[0] == "b");
                       });
  EXPECT_EQ(seen, R"(/a/x=1 /a/y/=2 /a/y//z=3 /a/y/={"z":3} /a/y=[2,{"z":3}] /a={} /b/=4 /b//=5 )"
                  R"(/b/=[5] /b=[] /c=6 )");
  EXPECT_EQ(rest.dump(), R"({"a":{},"b":[],"c":6})");
}

// The limit of memory holds for what is left, however much is taken.
TEST(JsonParts, CountTheMemoryOfWhatIsLeft) {
  std::string text = R"({"taken":[0)";
  for (int i = 0; i < 1'200'000; ++i) text += ",[]";
  text += R"(],"left":[0)";
  const auto take = [](std::span<const std::string> path, const SortedJson&) {
    return path.size() == 2 && path[0] == "taken";
  };
  EXPECT_EQ(parse_json_parts(text + "]}", "a", take)["left"].size(), 1u);
  for (const std::string value : {",[]", ",0", ",\"\"", ",{\"\":0}"}) {
    std::string more = text;
    for (int i = 0; i < (value == ",0" ? 4'000'000 : 1'600'000); ++i) more += value;
    EXPECT_THAT(error_of([&] { parse_json_parts(more + "]}", "a", take); }),
                HasSubstr("small values"))
        << value;
  }
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

// It compares each field with all before it.
TEST(JsonText, AnObjectInOrderHasALimit) {
  std::string text = "{\"0\":0";
  for (std::size_t i = 1; i < kMostFields; ++i) text += fmt::format(",\"{}\":0", i);
  EXPECT_EQ(parse_json_text<Json>(text + "}", "a").size(), kMostFields);
  text += ",\"x\":0}";
  for (std::size_t fields : {kMostFields, 2 * kMostFields}) {
    EXPECT_EQ(error_of([&] { parse_json_text<Json>(text, "a", {.fields = fields}); }),
              "a: a JSON object of more than 1024 fields");
  }
  EXPECT_EQ(parse_json_text(text, "a").size(), kMostFields + 1);
}

TEST(JsonText, SaysWhereItIsNoJsonAndRepeatsNothingOfIt) {
  EXPECT_EQ(error_of([] { parse_json_text("{\"a\": \x1b[31m}", "a"); }),
            "a: not valid JSON at byte 7");
  EXPECT_EQ(error_of([] { parse_json_text("[1e999]", "a"); }),
            "a: a number in this JSON is too large");
  EXPECT_EQ(error_of([] { parse_json_text("\"\xff\"", "a"); }), "a: not valid JSON at byte 2");
  const auto ordered = parse_json_text<Json>(R"({"b": 1, "a": 2})", "a");
  EXPECT_EQ(ordered.begin().key(), "b");
}

}  // namespace
}  // namespace ballast
