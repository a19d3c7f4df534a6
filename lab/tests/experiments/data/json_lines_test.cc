#include "experiments/data/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using testing::HasSubstr;

class JsonLinesFile : public testing::Test {
 protected:
  std::string error(const std::string& content) const {
    write_text(dir_ / "f.jsonl", content);
    return test::error_of([&] {
      JsonLines lines(dir_ / "f.jsonl");
      while (lines.next()) {
      }
    });
  }
  static Record record(const char* json) { return {"f:1", nlohmann::json::parse(json)}; }

  TempDir dir_;
};

TEST_F(JsonLinesFile, ReadsObjectsAndSkipsBlankLines) {
  write_text(dir_ / "f.jsonl", "\xEF\xBB\xBF\n{\"a\": 1}\n\n  \r\n{\"a\": 2}");
  JsonLines lines(dir_ / "f.jsonl");
  EXPECT_THAT(lines.next()->place, testing::EndsWith("f.jsonl:2"));
  const auto second = lines.next();
  EXPECT_THAT(second->place, testing::EndsWith("f.jsonl:5"));
  EXPECT_EQ(second->number("a"), 2);
  EXPECT_FALSE(lines.next().has_value());
}

TEST_F(JsonLinesFile, NamesTheLineOfDamage) {
  EXPECT_THAT(error("{\"a\": 1}\n{\"a\": "), HasSubstr("f.jsonl:2: not valid JSON at byte"));
  JsonLines lines(dir_ / "f.jsonl");
  EXPECT_TRUE(lines.next());
  EXPECT_EQ(test::code_of([&] { lines.next(); }), ErrorCode::bad_file);
  EXPECT_THAT(error("{}\n[1]"), HasSubstr("f.jsonl:2: array where an object was expected"));
  EXPECT_THAT(error("{\"a\": \"\xff\"}"), HasSubstr("f.jsonl:1: not valid JSON"));
  EXPECT_THAT(error("{\"a\": " + std::string(100, '[') + std::string(100, ']') + "}"),
              HasSubstr("nested deeper than 64"));
  EXPECT_THAT(error("{\"a\": 1e999}"), HasSubstr("too large"));
  EXPECT_THAT(error(""), HasSubstr("holds no sample"));
  EXPECT_THAT(error("\n \n"), HasSubstr("holds no sample"));
}

TEST_F(JsonLinesFile, NamesFilesThatAreNotThere) {
  EXPECT_THAT(test::error_of([&] { JsonLines lines(dir_ / "none"); }), HasSubstr("No such file"));
  EXPECT_THAT(test::error_of([&] { JsonLines lines(dir_.path()); }), HasSubstr("is a folder"));
  EXPECT_THAT(test::error_of([&] { json_lines_files(dir_.path()); }), HasSubstr("no .jsonl file"));
  write_text(dir_ / "b.jsonl", "");
  write_text(dir_ / "a.jsonl", "");
  write_text(dir_ / "c.txt", "");
  EXPECT_EQ(json_lines_files(dir_.path()),
            (std::vector<std::filesystem::path>{dir_ / "a.jsonl", dir_ / "b.jsonl"}));
}

TEST_F(JsonLinesFile, GettersNameFieldAndType) {
  const Record r = record(
      R"({"t": "x", "n": 12, "s": "-7", "l": ["a", "b"], "o": {"p": 1}, "e": [], "m": [1],
          "nil": null, "f": 1.5, "big": "12345678901234567890"})");
  EXPECT_EQ(r.text("t"), "x");
  EXPECT_EQ(r.number("n"), 12);
  EXPECT_EQ(r.number("s"), -7);
  EXPECT_EQ(r.digits("big"), "12345678901234567890");
  EXPECT_EQ(r.texts("l"), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(r.object("o").number("p"), 1);
  EXPECT_FALSE(r.has("nil"));
  const auto error = [&](auto&& get) { return test::error_of([&] { get(r); }); };
  EXPECT_THAT(error([](const Record& q) { q.text("x"); }), "f:1: the field \"x\" is missing");
  EXPECT_THAT(error([](const Record& q) { q.text("nil"); }), HasSubstr("missing"));
  EXPECT_THAT(error([](const Record& q) { q.text("n"); }), HasSubstr("is number; expected text"));
  EXPECT_THAT(error([](const Record& q) { q.number("f"); }), HasSubstr("expected a whole number"));
  EXPECT_THAT(error([](const Record& q) { q.number("t"); }),
              HasSubstr("is \"x\"; expected a whole"));
  EXPECT_THAT(error([](const Record& q) { q.number("big"); }), HasSubstr("too large"));
  EXPECT_THAT(error([](const Record& q) { q.texts("e"); }), HasSubstr("is empty"));
  EXPECT_THAT(error([](const Record& q) { q.texts("m"); }), HasSubstr("holds number"));
  EXPECT_THAT(error([](const Record& q) { q.texts("t"); }), HasSubstr("expected a list of texts"));
  EXPECT_THAT(error([](const Record& q) { q.object("t"); }), HasSubstr("expected an object"));
}

}  // namespace
}  // namespace ballast
