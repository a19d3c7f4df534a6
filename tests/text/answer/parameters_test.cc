// Values that models write without quotes, by what schemas say of them.
#include "text/answer/parameters.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

namespace ballast {
namespace {

std::string made(const std::string& text, const std::string& schema) {
  return parameter_json(
      text,
      Json::parse(R"({"$defs":{"Flag":{"type":"boolean"},"a b/c":{"type":"integer"},
      "Loop":{"$ref":"#/$defs/Loop"},"Node":{"anyOf":[{"$ref":"#/$defs/Node"},{"type":"array"}]}},
      "properties":{"x":)" +
                  schema + "}}"),
      "x");
}

TEST(Parameters, HaveTheTypeThatTheSchemaSaysHowever) {
  const std::vector<std::tuple<std::string, std::string, std::string>> all = {
      {"5", R"({"type":"integer"})", "5"},
      {" 5\n", R"({"type":["integer","null"]})", "5"},
      {"None", R"({"type":["integer","null"]})", "null"},
      {"5", R"({"anyOf":[{"type":"integer"},{"type":"null"}]})", "5"},
      {"5", R"({"oneOf":[{"type":"number"},{"type":"boolean"}]})", "5"},
      {"5.5", R"({"oneOf":[{"type":"number"},{"type":"boolean"}]})", "5.5"},
      {"True", R"({"oneOf":[{"type":"number"},{"type":"boolean"}]})", "true"},
      {R"({"a": 1})", R"({"anyOf":[{"type":"object"},{"type":"string"}]})", R"({"a": 1})"},
      {"{'a': True}", R"({"anyOf":[{"type":"object"},{"type":"string"}]})", R"({"a":true})"},
      {"[a]", R"({"anyOf":[{"type":"array"},{"type":"string"}]})", R"("[a]")"},
      {"word", R"({"anyOf":[{"type":"object"},{"type":"string"}]})", R"("word")"},
      {R"(["a", "b"])", R"({"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}]})",
       R"(["a", "b"])"},
      {"[a, 'b',]", R"({"type":"array"})", R"(["a","b"])"},
      {"5", R"({"allOf":[{"type":["integer","string"]},{"type":"string"}]})", R"("5")"},
      {"5", R"({"allOf":[{"description":"d"},{"minimum":3}]})", "5"},
      {"true", R"({"$ref":"#/$defs/Flag"})", "true"},
      {"5", R"({"$ref":"#/$defs/a%20b~1c"})", "5"},
      {"5", R"({"anyOf":[{"$ref":"#/$defs/a%20b~1c"},{"type":"null"}]})", "5"},
      {"[1]", R"({"$ref":"#/$defs/Node"})", "[1]"},
      {"5", R"({"$ref":"#/$defs/Loop"})", R"("5")"},
      {"5", R"({"$ref":"#/$defs/None"})", R"("5")"},
      {"5", R"({"$ref":"https://example.com/x"})", R"("5")"},
      {"2", R"({"enum":[1,2,3]})", "2"},
      {"2", R"({"enum":["1","2"]})", R"("2")"},
      {"2", R"({"enum":[1,"2"]})", R"("2")"},
      {"auto", R"({"enum":[1,"auto"]})", R"("auto")"},
      {"true", R"({"const":true})", "true"},
      {"7", R"({"const":"7"})", R"("7")"},
      {"5", R"({"type":"integer","nullable":true})", "5"},
      {"null", R"({"type":"integer","nullable":true})", "null"},
      {"{}", R"({"properties":{}})", "{}"},
      {"[]", R"({"items":{}})", "[]"},
      {"5.0", R"({"type":"integer"})", "5.0"},
      {"5.5", R"({"type":"integer"})", R"("5.5")"},
      {"12345678901234567890123", R"({"type":"integer"})", "12345678901234567890123"},
      {"five", R"({"type":"integer"})", R"("five")"},
      {"5", R"({"type":"string"})", R"("5")"},
      {"null", R"({"type":"string"})", R"("null")"},
      {"null", R"({"type":["string","null"]})", "null"},
      {"5", R"({"description":"any"})", R"("5")"},
      {"5", "{}", R"("5")"},
      {"5", "true", R"("5")"},
  };
  for (const auto& [text, schema, json] : all) EXPECT_EQ(made(text, schema), json) << schema;
}

TEST(Parameters, AreFoundWhereverTheFunctionSaysThem) {
  const auto of = [](const std::string& schema) {
    return parameter_json("5", Json::parse(schema), "x");
  };
  EXPECT_EQ(of(R"({"$ref":"#/$defs/P","$defs":{"P":{"properties":{"x":{"type":"integer"}}}}})"),
            "5");
  EXPECT_EQ(of(R"({"allOf":[{"properties":{"y":{}}},{"properties":{"x":{"type":"integer"}}}]})"),
            "5");
  EXPECT_EQ(of(R"({"properties":{},"additionalProperties":{"type":"integer"}})"), "5");
  EXPECT_EQ(of(R"({"properties":{"y":{"type":"integer"}}})"), R"("5")");
  EXPECT_EQ(of("null"), R"("5")");
}

TEST(Parameters, ReferencesThatMultiplyEnd) {
  std::string schema = R"({"$defs":{)";
  for (int i = 0; i < 40; ++i) {
    const std::string next = R"({"$ref":"#/$defs/d)" + std::to_string(i + 1) + R"("})";
    schema += "\"d" + std::to_string(i) + R"(":{"anyOf":[)" + next + "," + next + "]},";
  }
  schema += R"("d40":{}},"properties":{"x":{"$ref":"#/$defs/d0"}}})";
  EXPECT_EQ(parameter_json("5", Json::parse(schema), "x"), R"("5")");
}

}  // namespace
}  // namespace ballast
