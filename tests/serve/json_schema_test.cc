#include "serve/grammar/json_schema.h"

#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "ballast/engine/sampler.h"
#include "base/os/memory.h"
#include "sanitized.h"
#include "serve/client.h"
#include "serve/grammar/json_schema.h"
#include "serve/grammar/token_texts.h"
#include "serve/http/api_error.h"

namespace ballast::test {
namespace {

using serve::compile_schema;
using serve::Grammar;
using serve::GrammarReader;
using testing::HasSubstr;
using Ordered = nlohmann::ordered_json;

// A checker of JSON Schema that shares nothing with the server: by the words of the standard.

bool has_type(const Ordered& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  return value.is_number() && std::floor(value.get<double>()) == value.get<double>();
}

bool valid(const Ordered& schema, const Ordered& value, const Ordered& root) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("$ref")) {
    const std::string pointer = schema["$ref"].get<std::string>().substr(1);
    if (!valid(root.at(Ordered::json_pointer(pointer)), value, root)) return false;
  }
  if (schema.contains("type")) {
    const Ordered types =
        schema["type"].is_array() ? schema["type"] : Ordered::array({schema["type"]});
    bool any = false;
    for (const Ordered& type : types) any |= has_type(value, type);
    if (!any) return false;
  }
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("enum")) {
    bool any = false;
    for (const Ordered& one : schema["enum"]) any |= one == value;
    if (!any) return false;
  }
  if (schema.contains("anyOf")) {
    bool any = false;
    for (const Ordered& one : schema["anyOf"]) any |= valid(one, value, root);
    if (!any) return false;
  }
  if (schema.contains("oneOf")) {
    int fits = 0;
    for (const Ordered& one : schema["oneOf"]) fits += valid(one, value, root) ? 1 : 0;
    if (fits != 1) return false;
  }
  if (schema.contains("allOf")) {
    for (const Ordered& one : schema["allOf"]) {
      if (!valid(one, value, root)) return false;
    }
  }
  if (value.is_string()) {
    std::size_t length = 0;
    for (char c : value.get<std::string>()) length += (c & 0xc0) != 0x80 ? 1 : 0;
    if (length < schema.value("minLength", 0u)) return false;
    if (schema.contains("maxLength") && length > schema["maxLength"].get<std::size_t>())
      return false;
    if (schema.contains("pattern") &&
        !std::regex_search(value.get<std::string>(),
                           std::regex(schema["pattern"].get<std::string>()))) {
      return false;
    }
  }
  if (value.is_number()) {
    const double x = value.get<double>();
    if (schema.contains("minimum") && x < schema["minimum"].get<double>()) return false;
    if (schema.contains("maximum") && x > schema["maximum"].get<double>()) return false;
    if (schema.contains("exclusiveMinimum") && x <= schema["exclusiveMinimum"].get<double>())
      return false;
    if (schema.contains("exclusiveMaximum") && x >= schema["exclusiveMaximum"].get<double>())
      return false;
    if (schema.contains("multipleOf")) {
      const double times = x / schema["multipleOf"].get<double>();
      if (std::abs(times - std::round(times)) > 1e-9 * std::max(1.0, std::abs(times))) return false;
    }
  }
  if (value.is_array()) {
    if (value.size() < schema.value("minItems", 0u)) return false;
    if (schema.contains("maxItems") && value.size() > schema["maxItems"].get<std::size_t>())
      return false;
    const Ordered first = schema.value("prefixItems", Ordered::array());
    for (std::size_t i = 0; i < value.size(); ++i) {
      const bool any = i >= first.size() && !schema.contains("items");
      if (!any && !valid(i < first.size() ? first[i] : schema["items"], value[i], root))
        return false;
    }
  }
  if (value.is_object()) {
    for (const Ordered& name : schema.value("required", Ordered::array())) {
      if (!value.contains(name.get<std::string>())) return false;
    }
    const Ordered properties = schema.value("properties", Ordered::object());
    for (const auto& [name, inner] : value.items()) {
      if (properties.contains(name)) {
        if (!valid(properties[name], inner, root)) return false;
      } else if (schema.contains("additionalProperties")) {
        if (!valid(schema["additionalProperties"], inner, root)) return false;
      }
    }
  }
  return true;
}

/// Draws schemas, and values of them in the order of their properties.
class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}

  std::size_t below(std::size_t n) { return random_() % n; }

  Ordered schema() {
    root_ = object(3);
    Ordered defs = Ordered::object();
    for (std::size_t i = 0; i < defs_.size(); ++i) {
      if (defs_[i].is_null()) defs_[i] = {{"type", "string"}};
      defs[fmt::format("d/{}~", i)] = defs_[i];
    }
    root_["$defs"] = std::move(defs);
    return root_;
  }

  Ordered value(const Ordered& schema, const Ordered& root) {
    if (schema.is_boolean() || schema.empty()) return any(2);
    if (schema.contains("$ref")) {
      return value(root.at(Ordered::json_pointer(schema["$ref"].get<std::string>().substr(1))),
                   root);
    }
    if (schema.contains("anyOf")) return value(pick(schema["anyOf"]), root);
    if (schema.contains("const")) return schema["const"];
    if (schema.contains("enum")) return pick(schema["enum"]);
    const std::string type =
        (schema["type"].is_array() ? pick(schema["type"]) : schema["type"]).get<std::string>();
    if (type == "object") {
      Ordered out = Ordered::object();
      const Ordered further = schema.value("additionalProperties", Ordered(false));
      if (!schema.contains("properties") && !further.is_object()) {
        return below(2) != 0 ? Ordered{{"k", any(1)}} : out;
      }
      const Ordered needed = schema.value("required", Ordered::array());
      for (const auto& [name, inner] : schema["properties"].items()) {
        const bool must = std::find(needed.begin(), needed.end(), name) != needed.end();
        if (must || below(2) != 0) out[name] = value(inner, root);
      }
      for (const char* name : {"nam", "zz", "a"}) {
        if (further != false && below(2) == 0 && !schema["properties"].contains(name)) {
          out[name] = value(further, root);
        }
      }
      return out;
    }
    if (type == "array") {
      Ordered out = Ordered::array();
      const std::size_t least = schema.value("minItems", 0u);
      const std::size_t count = least + below(schema.value("maxItems", least + 3) - least + 1);
      for (std::size_t i = 0; i < count; ++i) {
        out.push_back(schema.contains("items") ? value(schema["items"], root) : any(1));
      }
      return out;
    }
    if (schema.contains("minLength")) {
      std::string text;
      const std::size_t least = schema["minLength"];
      const std::size_t length = least + below(schema.value("maxLength", least + 3) - least + 1);
      for (std::size_t i = 0; i < length; ++i) text += below(2) == 0 ? "é" : "x";
      return text;
    }
    if (schema.contains("minimum")) {
      const auto low = schema["minimum"].get<double>();
      const auto high = schema.value("maximum", low + 50);
      return type == "integer" ? Ordered(static_cast<int>(low) +
                                         static_cast<int>(below(static_cast<std::size_t>(
                                             static_cast<int>(high) - static_cast<int>(low) + 1))))
                               : Ordered(below(2) == 0 ? low : high);
    }
    return scalar(type);
  }

 private:
  Ordered pick(const Ordered& list) { return list[below(list.size())]; }

  Ordered scalar(const std::string& type) {
    static const Ordered texts = {"", "a", "long text, \"quoted\"\n", "é€😀", "\\"};
    static const Ordered numbers = {0, -1, 12, 0.5, -1.25e10, 1e-7};
    if (type == "string") return pick(texts);
    if (type == "integer") return static_cast<int>(below(2000)) - 1000;
    if (type == "number") return pick(numbers);
    if (type == "boolean") return below(2) == 0;
    return nullptr;
  }

  Ordered any(int depth) {
    static const Ordered types = {"string", "number", "boolean", "null"};
    if (depth > 0 && below(3) == 0) return Ordered{{"x", any(depth - 1)}};
    if (depth > 0 && below(3) == 0) return Ordered::array({any(depth - 1), 1});
    return scalar(pick(types).get<std::string>());
  }

  Ordered object(int depth) {
    static const Ordered names = {"a", "ab", "a\"b", "é", "name", "namely", "x/y", ""};
    Ordered properties = Ordered::object(), required = Ordered::array();
    const std::size_t count = below(5);
    for (std::size_t i = 0; i < count; ++i) {
      const std::string name = pick(names);
      if (properties.contains(name)) continue;
      properties[name] = inner(depth - 1);
      if (below(2) == 0) required.push_back(name);
    }
    Ordered out = {{"type", "object"}, {"properties", properties}};
    if (!required.empty()) out["required"] = required;
    switch (below(6)) {
      case 0:
      case 1:
      case 2:
        out["additionalProperties"] = false;
        break;
      case 3:
        out["additionalProperties"] = true;
        break;
      case 4:
        out["additionalProperties"] = inner(0);
        break;
      default:
        break;
    }
    return out;
  }

  Ordered bounded() {
    const int low = static_cast<int>(below(400)) - 200;
    const int high = low + static_cast<int>(below(250));
    switch (below(4)) {
      case 0:
        return {{"type", "integer"}, {"minimum", low}, {"maximum", high}};
      case 1:
        return {{"type", "integer"}, {"minimum", low}};
      case 2:
        return {{"type", "number"}, {"minimum", low / 8.0}, {"maximum", high / 8.0}};
      default: {
        Ordered out = {{"type", "string"}, {"minLength", below(4)}};
        if (below(2) == 0) out["maxLength"] = out["minLength"].get<std::size_t>() + below(4);
        return out;
      }
    }
  }

  Ordered inner(int depth) {
    static const Ordered lists = {{1, 12, 123, -1, 0.5},
                                  {"a", "ab", "b", "\"", "é"},
                                  {true, nullptr, "x", 1, Ordered::array({1, "2"})},
                                  {Ordered{{"k", 1}}, Ordered{{"k", 12}}, Ordered::object()}};
    static const Ordered types = {"string", "number", "integer", "boolean", "null"};
    switch (below(depth > 0 ? 10 : 5)) {
      case 3:
        return bounded();
      case 0:
        return {{"enum", pick(lists)}};
      case 1:
        return {{"const", pick(pick(lists))}, {"title", "constant"}};
      case 2:
        return {{"type", Ordered::array({pick(types), pick(types)})}};
      case 5:
      case 6:
        return object(depth);
      case 7: {
        Ordered out = {{"type", "array"}, {"items", inner(depth - 1)}};
        if (below(2) == 0) out["minItems"] = below(3);
        if (below(2) == 0) out["maxItems"] = out.value("minItems", 0u) + below(3);
        return out;
      }
      case 8: {
        Ordered all = Ordered::array();
        for (std::size_t i = 0; i <= below(3); ++i) all.push_back(inner(depth - 1));
        return {{"anyOf", all}};
      }
      case 9: {
        if (below(3) == 0) return Ordered::object();
        const std::size_t i = below(3);
        if (defs_[i].is_null()) defs_[i] = inner(0);
        return {{"$ref", fmt::format("#/$defs/d~1{}~0", i)}};
      }
      default:
        return {{"type", pick(types)}};
    }
  }

  std::mt19937 random_;
  Ordered root_;
  std::vector<Ordered> defs_ = std::vector<Ordered>(3);
};

/// Bytes of `text` that the reader takes.
std::size_t taken(const std::shared_ptr<const Grammar>& grammar, const std::string& text,
                  bool& done) {
  GrammarReader reader(grammar);
  std::size_t at = 0;
  while (at < text.size() && reader.push(text[at])) ++at;
  done = reader.done();
  return at;
}

TEST(JsonSchema, TakesWhatIsValid) {
  for (unsigned seed = 0; seed < 600; ++seed) {
    Draw draw(seed);
    const Ordered schema = draw.schema();
    const auto grammar = compile_schema(schema, "s");
    for (int i = 0; i < 5; ++i) {
      const Ordered value = draw.value(schema, schema);
      ASSERT_TRUE(valid(schema, value, schema)) << schema << value;
      // Constants are taken as they are written, without spaces.
      const std::string text = value.dump();
      bool done = false;
      ASSERT_EQ(taken(grammar, text, done), text.size()) << schema << "\n" << text;
      ASSERT_TRUE(done) << schema << "\n" << text;
    }
  }
}

TEST(JsonSchema, WhatItTakesIsValid) {
  int ended = 0;
  for (unsigned seed = 0; seed < 600; ++seed) {
    Draw draw(seed);
    const Ordered schema = draw.schema();
    const auto grammar = compile_schema(schema, "s");
    for (int i = 0; i < 5; ++i) {
      GrammarReader reader(grammar);
      std::string text;
      while (!reader.done() && text.size() < 400) {
        std::vector<char> next;
        for (int c = 0; c < 256; ++c) {
          GrammarReader other = reader;
          if (other.push(static_cast<char>(c))) next.push_back(static_cast<char>(c));
        }
        ASSERT_FALSE(next.empty()) << schema << "\n" << text;  // no dead end
        char c = next[draw.below(next.size())];
        for (char end : {'"', ']', '}'}) {
          if (std::ranges::count(next, end) > 0 && draw.below(2) == 0) c = end;
        }
        ASSERT_TRUE(reader.push(c));
        text += c;
      }
      if (!reader.done()) continue;
      ++ended;
      const Ordered value = Ordered::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << text;
      ASSERT_TRUE(valid(schema, value, schema)) << schema << "\n" << text;
    }
  }
  EXPECT_GT(ended, 2000);
}

/// Texts that the reader takes whole or not, for one schema after the other.
struct Taken {
  const char* schema;
  std::vector<const char*> yes, no;
};
void check(const std::vector<Taken>& all) {
  for (const auto& [schema, yes, no] : all) {
    const auto grammar = compile_schema(Ordered::parse(schema), "s");
    const auto takes = [&](const std::string& text) {
      bool done = false;
      return taken(grammar, text, done) == text.size() && done;
    };
    for (const char* text : yes) EXPECT_TRUE(takes(text)) << schema << text;
    for (const char* text : no) EXPECT_FALSE(takes(text)) << schema << text;
  }
}

TEST(JsonSchema, Bounds) {
  check({
      {R"({"type":"object","properties":{"n":{"type":"integer","minimum":-9007199254740991,
           "maximum":9007199254740991}},"required":["n"]})",
       {R"({"n":0})", R"({"n":-9007199254740991})", R"({"n":9007199254740991})"},
       {R"({"n":9007199254740992})", R"({"n":-9007199254740992})", R"({"n":1.0})",
        R"({"n":10000000000000000})"}},
      {R"({"type":"object","properties":{"n":{"type":"integer","exclusiveMinimum":0,
           "maximum":120}},"required":["n"]})",
       {R"({"n":1})", R"({"n":120})", R"({"n":99})"},
       {R"({"n":0})", R"({"n":121})", R"({"n":-1})", R"({"n":00})", R"({"n":1e1})"}},
      {R"({"type":"object","properties":{"n":{"type":"integer","maximum":-5}},"required":["n"]})",
       {R"({"n":-5})", R"({"n":-50})"},
       {R"({"n":-4})", R"({"n":5})", R"({"n":0})"}},
      {R"({"type":"object","properties":{"n":{"type":"number","minimum":0.1,
           "exclusiveMaximum":1}},"required":["n"]})",
       {R"({"n":0.1})", R"({"n":0.999})", R"({"n":0.100000000000001})"},
       {R"({"n":0})", R"({"n":0.09})", R"({"n":1})", R"({"n":1.0})", R"({"n":0.0999999999})"}},
      {R"({"type":"object","properties":{"n":{"type":"number","minimum":0}},"required":["n"]})",
       {R"({"n":0})", R"({"n":12.5})", R"({"n":123456789.25})"},
       {R"({"n":-1})", R"({"n":1e5})"}},
      {R"({"type":"object","properties":{"t":{"type":"string","minLength":2,"maxLength":3}},
           "required":["t"]})",
       {R"({"t":"ab"})", R"({"t":"éé€"})", R"({"t":"\n\u00e9"})"},
       {R"({"t":"a"})", R"({"t":"abcd"})", R"({"t":"abc\n"})", R"({"t":""})"}},
  });
}

TEST(JsonSchema, Formats) {
  const auto of = [](const std::string& format) {
    return R"({"type":"object","properties":{"t":{"type":"string","format":")" + format +
           R"("}},"required":["t"]})";
  };
  const std::string date = of("date"), time = of("time"), both = of("date-time"), uuid = of("uuid");
  check({
      {date.c_str(),
       {R"({"t":"2026-02-28"})", R"({"t":"1999-12-01"})"},
       {R"({"t":"2026-02-30"})", R"({"t":"2026-13-01"})", R"({"t":"2026-00-01"})",
        R"({"t":"2026-2-1"})", R"({"t":"2026-02-281"})", R"({"t":"\u0032026-02-28"})"}},
      {time.c_str(), {R"({"t":"23:59:59Z"})"}, {R"({"t":"24:00:00Z"})", R"({"t":"23:60:00Z"})"}},
      {both.c_str(), {R"({"t":"2026-02-28T09:30:00Z"})"}, {R"({"t":"2026-02-28 09:30:00Z"})"}},
      {uuid.c_str(),
       {R"({"t":"123e4567-e89b-42d3-a456-426614174000"})"},
       {R"({"t":"123e4567e89b42d3a456426614174000"})"}},
  });
}

/// An object that must have a member t of a schema.
std::string of_member(const std::string& schema) {
  return R"({"type":"object","properties":{"t":)" + schema + R"(},"required":["t"]})";
}

TEST(JsonSchema, OtherFormats) {
  for (const auto& [format, good, bad] :
       std::initializer_list<std::array<const char*, 3>>{{"email", "a.b@x-y.org", "a@b"},
                                                         {"hostname", "x.example", "x..example"},
                                                         {"uri", "https://a.org/b?c=d", "a.org"},
                                                         {"ipv4", "10.0.255.1", "10.0.256.1"},
                                                         {"ipv6", "1:2:3:4:5:6:7:f", "1:2:3"},
                                                         {"duration", "P3DT4H", "P"}}) {
    const std::string schema =
        of_member(fmt::format(R"({{"type":"string","format":"{}"}})", format));
    const std::string yes = fmt::format(R"({{"t":"{}"}})", good),
                      no = fmt::format(R"({{"t":"{}"}})", bad);
    check({{schema.c_str(), {yes.c_str()}, {no.c_str(), R"({"t":""})"}}});
  }
}

TEST(JsonSchema, Patterns) {
  const std::string word = of_member(R"({"type":"string","pattern":"^[a-z]{2,3}(-\\d+)?$"})"),
                    within = of_member(R"({"pattern":"b.d"})"),
                    either = of_member(R"({"type":"string","pattern":"^a|b$"})"),
                    length = of_member(
                        R"({"type":"string","pattern":"^a*[^b]*$","minLength":2,"maxLength":3})");
  check({
      {word.c_str(),
       {R"({"t":"ab"})", R"({"t":"abc-12"})"},
       {R"({"t":"a"})", R"({"t":"abcd"})", R"({"t":"ab-"})", R"({"t":"ab-1x"})",
        R"({"t":"\u0061b"})"}},
      {within.c_str(),
       {R"({"t":"bed"})", R"({"t":"a bed é"})"},
       {R"({"t":"be"})", R"({"t":"b\nd"})"}},
      {either.c_str(), {R"({"t":"ax"})", R"({"t":"xb"})", R"({"t":"a"})"}, {R"({"t":"xa"})"}},
      {length.c_str(),
       {R"({"t":"aa"})", R"({"t":"aé€"})"},
       {R"({"t":"a"})", R"({"t":"aaaa"})", R"({"t":"ab"})"}},
  });
}

TEST(JsonSchema, PatternsKnowUnicodeAndEscapes) {
  const std::string umlauts = of_member(R"({"type":"string","pattern":"^[äöü]{1,3}$"})"),
                    han = of_member(R"({"pattern":"^[\\u4e00-\\u9fa5]{2,4}$"})"),
                    city = of_member(R"({"type":"string","pattern":"^Z\\u00fcrich$"})"),
                    russian = of_member(R"({"pattern":"^[а-яё]{2,6}$","maxLength":3})"),
                    quoted = of_member(R"({"pattern":"^\"\\\\\\n$"})"),
                    spaced = of_member(R"({"pattern":"^\\s$"})");
  check({
      {umlauts.c_str(),
       {R"({"t":"ü"})", R"({"t":"äöü"})"},
       {R"({"t":"😀"})", R"({"t":"é"})", R"({"t":"u"})", R"({"t":"ääää"})", R"({"t":""})"}},
      {han.c_str(), {R"({"t":"漢字"})"}, {R"({"t":"漢"})", R"({"t":"かな"})", R"({"t":"漢é"})"}},
      {city.c_str(), {R"({"t":"Zürich"})"}, {R"({"t":"Zurich"})", R"({"t":"Zörich"})"}},
      {russian.c_str(),
       {R"({"t":"да"})", R"({"t":"ёлы"})"},
       {R"({"t":"Да"})", R"({"t":"д"})", R"({"t":"дада"})"}},
      {quoted.c_str(), {R"({"t":"\"\\\n"})"}, {R"({"t":"\"\\n"})", R"({"t":"x"})"}},
      {spaced.c_str(), {R"({"t":"\t"})", "{\"t\":\"\u00a0\"}"}, {R"({"t":"x"})", R"({"t":"\\"})"}},
  });
}

TEST(JsonSchema, FormatAndPatternBothHold) {
  const std::string both =
      of_member(R"({"type":"string","format":"date","pattern":"^2026","maxLength":10})");
  check({{both.c_str(), {R"({"t":"2026-02-28"})"}, {R"({"t":"2025-02-28"})", R"({"t":"2026"})"}}});
  // Of formats that the standard does not know nothing follows.
  for (const char* schema : {R"({"type":"integer","format":"int32"})",
                             R"({"type":"integer","format":"uint32","minimum":0})",
                             R"({"type":"number","format":"double"})"}) {
    const std::string number = of_member(schema);
    check({{number.c_str(), {R"({"t":12})"}, {R"({"t":"12"})", R"({"t":null})"}}});
  }
  const std::string path = of_member(R"({"type":"string","format":"path"})");
  check({{path.c_str(), {R"({"t":"a/b"})", R"({"t":""})"}, {R"({"t":1})"}}});
}

TEST(JsonSchema, KeywordsWithoutATypeHold) {
  const std::string low = of_member(R"({"minimum":3})"), list = of_member(R"({"minItems":1})"),
                    text = of_member(R"({"minLength":2})"),
                    either = of_member(R"({"minLength":2,"maximum":5})"),
                    none = of_member(R"({"additionalProperties":false})"),
                    maybe = of_member(R"({"type":"string","nullable":true,"maxLength":1})");
  check({
      {low.c_str(), {R"({"t":3})"}, {R"({"t":2})"}},
      {list.c_str(), {R"({"t":[null]})"}, {R"({"t":[]})"}},
      {text.c_str(), {R"({"t":"ab"})"}, {R"({"t":"a"})"}},
      {either.c_str(), {R"({"t":"ab"})", R"({"t":5})"}, {R"({"t":"a"})", R"({"t":6})"}},
      {none.c_str(), {R"({"t":{}})"}, {R"({"t":{"a":1}})"}},
      {maybe.c_str(), {R"({"t":"a"})", R"({"t":null})"}, {R"({"t":"ab"})", R"({"t":1})"}},
      {R"({"required":["a"]})", {R"({"a":1})", R"({"a":[],"b":2})"}, {R"({})", R"({"b":1})"}},
      {R"({"type":"object","properties":{"b":{"type":"null"}},"required":["b","a"]})",
       {R"({"b":null,"a":1})"},
       {R"({"b":null})"}},
      // Keywords beside anyOf hold for each of its schemas.
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},
           "additionalProperties":false,"anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"},
       {R"({})", R"({"c":null})"}},
  });
}

TEST(JsonSchema, KeywordsBesideAnEnumLeaveWhatTheyAllow) {
  const std::string low = of_member(R"({"type":"integer","enum":[1,3,5],"minimum":3})"),
                    open = of_member(R"({"enum":[1,2.5,4,"a"],"exclusiveMinimum":1,
                                         "exclusiveMaximum":4})"),
                    steps =
                        of_member(R"({"type":"number","enum":[0.1,0.25,0.3],"multipleOf":0.1})"),
                    text = of_member(R"({"type":"string","enum":["Ende","Anfang","Wende"],
                                         "pattern":"[ae]nde$","minLength":3,"maxLength":5})"),
                    short_one = of_member(R"({"enum":["äöü","abcd",12345],"maxLength":3})"),
                    list = of_member(R"({"enum":[[],[1],[1,2]],"minItems":1,"maxItems":1})"),
                    one = of_member(R"({"const":"b","pattern":"^[abc]$"})"),
                    date = of_member(R"({"type":"string","enum":["2024-01-31"],"format":"date"})"),
                    other = of_member(R"({"type":"string","enum":["a"],"minimum":3,"items":{}})");
  check({
      {low.c_str(), {R"({"t":3})", R"({"t":5})"}, {R"({"t":1})"}},
      {open.c_str(), {R"({"t":2.5})", R"({"t":"a"})"}, {R"({"t":1})", R"({"t":4})"}},
      {steps.c_str(), {R"({"t":0.1})", R"({"t":0.3})"}, {R"({"t":0.25})"}},
      {text.c_str(), {R"({"t":"Wende"})"}, {R"({"t":"Ende"})", R"({"t":"Anfang"})"}},
      {short_one.c_str(), {R"({"t":"äöü"})", R"({"t":12345})"}, {R"({"t":"abcd"})"}},
      {list.c_str(), {R"({"t":[1]})"}, {R"({"t":[]})", R"({"t":[1,2]})"}},
      {one.c_str(), {R"({"t":"b"})"}, {R"({"t":"a"})"}},
      {date.c_str(), {R"({"t":"2024-01-31"})"}, {R"({"t":"2024-01-30"})"}},
      {other.c_str(), {R"({"t":"a"})"}, {R"({"t":"b"})"}},
  });
}

TEST(JsonSchema, ReferencesAreFragmentsOfUris) {
  check({
      {R"({"type":"object","properties":{"v":{"$ref":"#/$defs/Box%3Cstring%3E"}},
           "required":["v"],"$defs":{"Box<string>":{"enum":["in","out"]}}})",
       {R"({"v":"in"})"},
       {R"({"v":"x"})"}},
      {R"({"type":"object","properties":{"v":{"$ref":"#/definitions/a%20b"}},
           "required":["v"],"definitions":{"a b":{"type":"boolean"}}})",
       {R"({"v":true})"},
       {R"({"v":1})"}},
      {R"({"type":"object","properties":{"v":{"$ref":"#/definitions/gr%C3%BCn"}},
           "required":["v"],"definitions":{"grün":{"type":"boolean"}}})",
       {R"({"v":true})"},
       {R"({"v":1})"}},
      {R"({"type":"object","properties":{"v":{"$ref":"#/$defs/50%"}},
           "required":["v"],"$defs":{"50%":{"type":"boolean"}}})",
       {R"({"v":true})"},
       {R"({"v":1})"}},
      {R"({"type":"object","properties":{"v":{"type":"array","items":{"$ref":"#/$defs/F",
           "$defs":{"F":{"type":"null"}},"description":"d"}}},"required":["v"],
           "$defs":{"F":{"type":"string"}}})",
       {R"({"v":["x"]})"},
       {R"({"v":[null]})"}},
      {R"({"type":"object","properties":{"v":{"$ref":"#/$defs/F","minLength":2}},"required":["v"],
           "$defs":{"F":{"type":"string"}}})",
       {R"({"v":"xy"})"},
       {R"({"v":"x"})", R"({"v":1})"}},
  });
}

TEST(JsonSchema, MultiplesOfANumber) {
  const std::string third =
                        of_member(R"({"type":"integer","multipleOf":3,"minimum":-7,"maximum":40})"),
                    cents = of_member(R"({"type":"number","multipleOf":0.25})"),
                    tens = of_member(R"({"type":"integer","multipleOf":10})"),
                    days = of_member(R"({"type":"integer","multipleOf":86400,"minimum":1})"),
                    large = of_member(R"({"type":"integer","multipleOf":4099,"maximum":9000})"),
                    million = of_member(R"({"type":"integer","multipleOf":1000000})");
  check({
      {days.c_str(),
       {R"({"t":86400})", R"({"t":8640000})", R"({"t":172800})"},
       {R"({"t":0})", R"({"t":86401})", R"({"t":86500})", R"({"t":-86400})"}},
      {large.c_str(),
       {R"({"t":4099})", R"({"t":8198})", R"({"t":0})", R"({"t":-4099})"},
       {R"({"t":12297})", R"({"t":4098})"}},
      {million.c_str(), {R"({"t":3000000})", R"({"t":0})"}, {R"({"t":300000})", R"({"t":1})"}},
      {third.c_str(),
       {R"({"t":-6})", R"({"t":0})", R"({"t":39})"},
       {R"({"t":-7})", R"({"t":1})", R"({"t":40})", R"({"t":42})", R"({"t":-9})"}},
      {cents.c_str(),
       {R"({"t":1.25})", R"({"t":-3})", R"({"t":0.5})"},
       {R"({"t":1.2})", R"({"t":1.125})"}},
      {tens.c_str(), {R"({"t":120})"}, {R"({"t":5})", R"({"t":12})"}},
  });
}

TEST(JsonSchema, Tuples) {
  const std::string pair = of_member(
                        R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"null"}],
                            "items":false,"minItems":2})"),
                    rest = of_member(
                        R"({"prefixItems":[{"type":"null"}],"items":{"type":"integer"}})"),
                    old = of_member(
                        R"({"type":"array","items":[{"type":"null"}],"additionalItems":false})");
  check({
      {pair.c_str(),
       {R"({"t":[1,null]})"},
       {R"({"t":[1]})", R"({"t":[null,1]})", R"({"t":[1,null,1]})"}},
      {rest.c_str(),
       {R"({"t":[]})", R"({"t":[null,1,2,3]})"},
       {R"({"t":[1]})", R"({"t":[null,null]})"}},
  });
  bool done = false;
  const auto grammar = compile_schema(Ordered::parse(old), "s");
  const std::string two = R"({"t":[null,null]})";
  EXPECT_LT(taken(grammar, two, done), two.size());
}

TEST(JsonSchema, AllOfSeveral) {
  check({
      {R"({"$defs":{"a":{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}},
           "allOf":[{"$ref":"#/$defs/a"},{"type":"object","properties":{"b":{"type":"null"},
           "a":{"minimum":3}},"required":["b"]}]})",
       {R"({"a":3,"b":null})"},
       {R"({"a":2,"b":null})", R"({"a":3})", R"({"b":null})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"allOf":[{"required":["a"]}]})",
       {R"({"a":null})"},
       {R"({})"}},
  });
  // References that double what they hold, and one that has no end.
  Ordered all = {{"$ref", "#/$defs/0"}};
  for (int i = 0; i < 40; ++i) {
    const Ordered next = {{"$ref", fmt::format("#/$defs/{}", i + 1)}};
    all["$defs"][std::to_string(i)] = {{"allOf", Ordered::array({next, next})}};
  }
  all["$defs"]["40"] = {{"type", "object"}};
  EXPECT_THROW(compile_schema(all, "s"), serve::ApiError);
  all = Ordered::parse(R"({"allOf":[{"$ref":"#"},{"type":"object"}]})");
  EXPECT_THROW(compile_schema(all, "s"), serve::ApiError);
}

TEST(JsonSchema, FurtherProperties) {
  check({
      {R"({"type":"object","properties":{"name":{"type":"null"}},"additionalProperties":true})",
       {R"({})", R"({"name":null})", R"({"name":null,"nam":[1],"b":{}})", R"({"names":1})",
        R"({"n":1})"},
       {R"({"name":1})", R"({"a":1,"name":null})", R"({"na\u006de":1})"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"}})",
       {R"({})", R"({"a":1,"b":2})"},
       {R"({"a":"1"})", R"({"a":1,})"}},
      {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},
           "required":["b"],"additionalProperties":{"type":"boolean"}})",
       {R"({"b":null})", R"({"a":null,"b":null,"c":true})"},
       {R"({"c":true,"b":null})", R"({"a":null,"c":true})"}},
  });
}

// Followed by recursion, a name of a megabyte would end the process.
TEST(JsonSchema, LongNamesAreNoFurtherOnes) {
  Ordered properties;
  for (const char* end : {"a", "b"}) properties[std::string(1 << 20, 'k') + end] = true;
  const auto grammar = compile_schema(
      {{"type", "object"}, {"properties", properties}, {"additionalProperties", true}}, "s");
  GrammarReader reader(grammar);
  EXPECT_TRUE(reader.push(R"({"kkkkx":1,"k":2})"));
  EXPECT_TRUE(reader.done());
  GrammarReader other(grammar);
  EXPECT_TRUE(other.push("{\""));
  for (int i = 0; i < 1 << 10; ++i) ASSERT_TRUE(other.push(std::string(1 << 10, 'k')));
  EXPECT_TRUE(other.push("a\":1}"));
  EXPECT_TRUE(other.done());
}

TEST(JsonSchema, Recursion) {
  check({
      {R"({"$defs":{"n":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/n"},
           {"type":"null"}]}},"required":["next"],"additionalProperties":false}},
           "$ref":"#/$defs/n"})",
       {R"({"next":null})", R"({"next":{"next":{"next":null}}})"},
       {R"({"next":1})", R"({"next":{}})", R"({})"}},
      {R"({"type":"object","properties":{"name":{"type":"null"},"children":{"type":"array",
           "items":{"$ref":"#"}}},"required":["name","children"]})",
       {R"({"name":null,"children":[]})",
        R"({"name":null,"children":[{"name":null,"children":[]},{"name":null,"children":[]}]})"},
       {R"({"name":null,"children":[{}]})"}},
      {R"({"type":"object","properties":{"a":{"type":"object","properties":{"x":{"type":"null"}},
           "required":["x"]},"b":{"$ref":"#/properties/a"}},"required":["b"]})",
       {R"({"b":{"x":null}})"},
       {R"({"b":{}})"}},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"object","properties":{"b":{"$ref":"#/$defs/b"}}},
           "b":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}]}}}})",
       {R"({})", R"({"b":[[],{},{"b":[[{}]]}]})"},
       {R"({"b":[1]})", R"({"b":{}})"}},
  });
}

TEST(JsonSchema, ARecursiveTextEndsAtTheDeepestLevel) {
  const auto grammar = compile_schema(
      Ordered::parse(R"({"$ref":"#/$defs/n","$defs":{"n":{"type":"object","properties":
          {"more":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"]},
           "last":{"type":"null"}}}}})"),
      "s");
  GrammarReader reader(grammar);
  std::string text;
  while (true) {
    const std::string deeper = R"({"more":{"n":)";
    GrammarReader next = reader;
    if (!std::ranges::all_of(deeper, [&](char c) { return next.push(c); })) break;
    reader = next;
    text += deeper;
  }
  EXPECT_EQ(std::ranges::count(text, '{'), 62);
  text += R"({"last":null})" + std::string(62, '}');
  bool done = false;
  EXPECT_EQ(taken(grammar, text, done), text.size());
  EXPECT_TRUE(done);
}

TEST(JsonSchema, OneOfWhatIsToldApart) {
  check({
      {R"({"type":"object","properties":{"v":{"oneOf":[{"type":"string"},{"type":"null"},
           {"type":"integer"}]}},"required":["v"]})",
       {R"({"v":"x"})", R"({"v":null})", R"({"v":1})"},
       {R"({"v":1.5})"}},
      {R"({"oneOf":[{"type":"object","properties":{"t":{"const":"a"},"x":{"type":"null"}},
           "required":["t"]},{"type":"object","properties":{"t":{"const":"b"}},"required":["t"]}],
           "discriminator":{"propertyName":"t"}})",
       {R"({"t":"a","x":null})", R"({"t":"b"})"},
       {R"({"t":"c"})", R"({"t":"b","x":null})"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"null"}}}]})",
       {R"({"a":null})"},
       {R"({"a":1})"}},
  });
}

TEST(JsonSchema, PropertiesStandInTheirOrder) {
  const Ordered schema = Ordered::parse(
      R"({"type":"object","properties":{"b":{"type":"null"},"a":{"type":"null"},
          "c":{"type":"null"}},"required":["a"]})");
  const auto grammar = compile_schema(schema, "s");
  auto takes = [&](const std::string& text) {
    bool done = false;
    return taken(grammar, text, done) == text.size() && done;
  };
  EXPECT_TRUE(takes(R"({"b":null,"a":null,"c":null})"));
  EXPECT_TRUE(takes(R"({ "a" : null })"));
  EXPECT_FALSE(takes(R"({"a":null,"b":null})"));
  EXPECT_FALSE(takes(R"({"b":null})"));
  EXPECT_FALSE(takes(R"({"b":null,"c":null})"));
  EXPECT_FALSE(takes(R"({})"));
  EXPECT_FALSE(takes(R"({"a":null,})"));
  EXPECT_FALSE(takes(R"({"a":null,"d":null})"));
}

TEST(JsonSchema, MasksAreThoseOfEachToken) {
  const TestServer server;
  const serve::TokenTexts texts(server.tokenizer());
  const auto grammar = compile_schema(
      Ordered::parse(R"({"type":"object","properties":{"name":{"enum":["The sky","The","sea"]},
                         "free":{}},"required":["name","free"]})"),
      "s");
  const std::string text = R"({"name":"The sky","free":[{"text é":"\u00e9 x", "n":-12.5e3},true]})";
  GrammarReader reader(grammar);
  for (char c : text) {
    std::vector<float> logits(server.tokenizer().size());
    const std::size_t left = texts.mask(reader, logits);
    std::size_t taken = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      GrammarReader next = reader;
      bool takes = !texts[i].empty();
      for (std::size_t j = 0; takes && j < texts[i].size(); ++j) takes = next.push(texts[i][j]);
      taken += takes ? 1 : 0;
      ASSERT_EQ(logits[i] == 0, takes) << text << " before " << c << ": " << texts[i];
    }
    ASSERT_EQ(left, taken);
    ASSERT_TRUE(reader.push(c));
  }
  EXPECT_TRUE(reader.done());
}

/// A model whose logits are random: what it writes is held together by the masks alone.
TEST(JsonSchema, RandomTokensMakeValidTexts) {
  const TestServer server;
  const serve::TokenTexts texts(server.tokenizer());
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  int ended = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    Draw draw(seed);
    const Ordered schema = draw.schema();
    const auto grammar = compile_schema(schema, "s");
    for (const float temperature : {0.0f, 1.0f}) {
      Sampler sampler({.temperature = temperature, .seed = seed});
      GrammarReader reader(grammar);
      std::string text;
      for (int made = 0; made < 200 && !reader.done(); ++made) {
        std::vector<float> logits(server.tokenizer().size());
        for (std::size_t i = 0; i < logits.size(); ++i) {
          logits[i] =
              normal(random) + (texts[i].find_first_of("\"]}") != std::string::npos ? 3 : 0);
        }
        ASSERT_GT(texts.mask(reader, logits), 0u) << schema << "\n" << text;
        const Token token = sampler.sample(logits, {}).token;
        for (char c : texts[static_cast<std::size_t>(token)]) {
          ASSERT_TRUE(reader.push(c)) << schema << "\n" << text;
          text += c;
        }
      }
      if (!reader.done()) continue;
      ++ended;
      const Ordered value = Ordered::parse(text, nullptr, false);
      ASSERT_TRUE(!value.is_discarded() && valid(schema, value, schema)) << schema << "\n" << text;
    }
  }
  EXPECT_GT(ended, 80);
}

TEST(JsonSchema, AnswersOfTheServerAreValid) {
  const TestServer server;
  int ended = 0;
  for (unsigned seed = 0; seed < 16; ++seed) {
    Draw draw(seed);
    const Ordered schema = draw.schema();
    Json body = {{"messages", {{{"role", "user"}, {"content", "Write JSON about the sky."}}}},
                 {"temperature", seed % 2 == 0 ? 0.0 : 1.5},
                 {"seed", seed},
                 {"max_tokens", 150}};
    // Ordered, as clients send it.
    std::string text = body.dump();
    text.pop_back();
    text += R"(,"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,)";
    text += "\"schema\":" + schema.dump() + "}}}";
    const Reply reply = send(server.port(), "POST", "/v1/chat/completions", text);
    ASSERT_EQ(reply.status, 200) << reply.body << schema;
    const Json choice = reply.json()["choices"][0];
    const std::string content = choice["message"]["content"];
    const Ordered value = Ordered::parse(content, nullptr, false);
    if (choice["finish_reason"] == "length") {
      EXPECT_TRUE(value.is_discarded()) << content;
      EXPECT_EQ(reply.json()["usage"]["completion_tokens"], 150);
      continue;
    }
    ++ended;
    EXPECT_EQ(choice["finish_reason"], "stop");
    EXPECT_TRUE(!value.is_discarded() && valid(schema, value, schema)) << schema << content;
  }
  EXPECT_GT(ended, 3);
}

TEST(JsonSchema, RefusesByName) {
  Ordered chain = {
      {"type", "object"}, {"required", {"a"}}, {"properties", {{"a", {{"$ref", "#/$defs/69"}}}}}};
  chain["$defs"]["0"] = {{"type", "object"}};
  for (int i = 1; i < 70; ++i) {
    chain["$defs"][std::to_string(i)] = {{"type", "array"},
                                         {"minItems", 1},
                                         {"items", {{"$ref", fmt::format("#/$defs/{}", i - 1)}}}};
  }
  Ordered wide = {{"type", "object"}};
  for (int i = 0; i < 129; ++i) wide["properties"][std::to_string(i)] = true;
  const std::vector<std::pair<std::string, std::string>> all = {
      {"3", "s"},
      {R"({"type":"array"})", "s"},
      {R"({})", "s"},
      {R"({"anyOf":[{"type":"object"},{"type":"null"}]})", "s"},
      {R"x({"type":"object","properties":{"a":{"type":"string","pattern":"(?=x)"}}})x",
       "s.properties.a.pattern"},
      {R"({"type":"object","properties":{"a":{"type":"string","format":"date","minLength":11}}})",
       "s.properties.a.format"},
      {R"({"type":"object","properties":{"a":{"type":"string","pattern":"(a{999}){999}",
           "maxLength":999}}})",
       "s.properties.a.pattern"},
      {R"({"type":"object","properties":{"a":{"type":"number","minimum":"1"}}})",
       "s.properties.a.minimum"},
      {R"({"type":"object","properties":{"a":{"type":"integer","minimum":2,"maximum":1}}})",
       "s.properties.a"},
      {R"({"type":"object","properties":{"a":{"type":"integer","multipleOf":0}}})",
       "s.properties.a.multipleOf"},
      {R"({"type":"object","properties":{"a":{"type":"string","minLength":2,"maxLength":1}}})",
       "s.properties.a.minLength"},
      {R"({"oneOf":[]})", "s.oneOf"},
      {R"({"oneOf":[{"type":"object"},{"type":"object","properties":{"a":{"const":1}}}]})",
       "s.oneOf"},
      {R"({"allOf":[{"type":"object"},{"type":"array"}]})", "s.allOf[1].type"},
      {R"({"type":"object","additionalProperties":3})", "s.additionalProperties"},
      {R"({"type":"object","additionalProperties":{"type":"x"}})", "s.additionalProperties.type"},
      {R"({"type":"object","properties":3})", "s.properties"},
      {R"({"type":"object","required":["a"],"additionalProperties":false})", "s.required"},
      {R"({"type":"object","required":[3]})", "s.required"},
      {R"({"type":"object","properties":{"a":false}})", "s.properties.a"},
      {R"({"type":"object","properties":{"a":{"type":"date"}}})", "s.properties.a.type"},
      {R"({"type":"object","properties":{"a":{"enum":[]}}})", "s.properties.a.enum"},
      {R"({"type":"object","properties":{"a":{"type":"string","enum":[1]}}})",
       "s.properties.a.enum"},
      {R"({"type":"object","properties":{"a":{"enum":[1,2],"minimum":3}}})", "s.properties.a.enum"},
      {R"({"type":"object","properties":{"a":{"const":1,"minimum":"3"}}})",
       "s.properties.a.minimum"},
      {R"x({"type":"object","properties":{"a":{"enum":["a"],"pattern":"(?=a)"}}})x",
       "s.properties.a.pattern"},
      {R"({"type":"object","properties":{"a":{"enum":[[1]],"items":{"type":"null"}}}})",
       "s.properties.a.enum"},
      {R"({"type":"object","properties":{"a":{"anyOf":[]}}})", "s.properties.a.anyOf"},
      {R"({"type":"object","properties":{"a":{"type":"array","minItems":2,"maxItems":1}}})",
       "s.properties.a.minItems"},
      {R"({"type":"object","properties":{"a":{"type":"array","uniqueItems":true}}})",
       "s.properties.a.uniqueItems"},
      {R"({"type":"object","properties":{"a":{"$ref":"#/properties/b"}}})", "s.properties.a.$ref"},
      {R"({"type":"object","properties":{"a":{"$ref":"other.json"}}})", "s.properties.a.$ref"},
      {R"({"$ref":"#"})", "s"},
      {R"({"type":"object","properties":{"a":{"$ref":"#/$defs/b"}}})", "s.properties.a.$ref"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"$ref":"#/$defs/a"},{"type":"object"}]}}})",
       "s"},
      {R"({"$ref":"#/$defs/a","$defs":{"a":{"type":"object","properties":
           {"b":{"$ref":"#/$defs/a"}},"required":["b"]}}})",
       "s"},
      {chain.dump(), "s"},
      {wide.dump(), "s.properties"},
  };
  for (const auto& [text, place] : all) {
    try {
      compile_schema(Ordered::parse(text), "s");
      ADD_FAILURE() << text;
    } catch (const serve::ApiError& error) {
      EXPECT_EQ(error.status(), 400);
      EXPECT_EQ(error.to_json()["error"]["param"], place) << text;
      EXPECT_THAT(error.what(), testing::StartsWith(place)) << text;
    }
  }
}

TEST(JsonSchema, ARefusalShowsThePatternAsItStands) {
  const std::string schema =
      R"({"type":"object","properties":{"a":{"type":"string","pattern":"^[ß]?ende\\b"}}})";
  try {
    compile_schema(Ordered::parse(schema), "s");
    ADD_FAILURE();
  } catch (const serve::ApiError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("^[ß]?ende\\b is not supported at \\b"));
  }
}

TEST(JsonSchema, LongSchemasOfOneOfAreRefusedSoon) {
  Ordered all = Ordered::array();
  for (int i = 0; i < 100; ++i) {
    Ordered properties, required;
    for (int k = 0; k < 1000; ++k) {
      properties[fmt::format("{}", i * 1000 + k)] = true;
      required.push_back(fmt::format("{}", i * 1000 + k));
    }
    properties["type"] = {{"const", i}};
    required.push_back("type");
    all.push_back({{"type", "object"}, {"properties", properties}, {"required", required}});
  }
  try {
    compile_schema({{"oneOf", all}}, "s");
    ADD_FAILURE();
  } catch (const serve::ApiError& error) {
    EXPECT_STREQ(error.what(), "s: too much to compare for oneOf; use anyOf");
  }
}

// Compared each with each, the values would take minutes; a place that grew with each of the names
// would take hundreds of megabytes.
TEST(JsonSchema, LongListsAndNamesCostWhatTheyHold) {
  Ordered values = Ordered::array();
  for (int i = 0; i < 400'000; ++i) values.push_back(i);
  const Ordered many = {{"type", "object"}, {"properties", {{"a", {{"enum", values}}}}}};
  EXPECT_NE(compile_schema(many, "s"), nullptr);
  Ordered deep = {{"type", "date"}};
  for (int i = 0; i < 40; ++i) {
    deep = {{"type", "object"}, {"properties", {{std::string(100'000, 'k'), deep}}}};
  }
  try {
    compile_schema(deep, "s");
    ADD_FAILURE();
  } catch (const serve::ApiError& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"date\""));
    EXPECT_LT(std::string(error.what()).size(), 1000u);
  }
}

// Each of 256 ways has 128 choices for the next byte. Copied before the byte is looked at, they
// would take 39 MB at a byte that fits, and this test 12 s.
TEST(JsonSchema, AByteCostsWhatTheWaysHoldThatItLeaves) {
  constexpr int kLevels = 60;
  Ordered defs;
  for (int k = 0; k < kLevels; ++k) {
    const Ordered items = k + 1 < kLevels ? Ordered{{"$ref", fmt::format("#/$defs/L{}", k + 1)}}
                                          : Ordered{{"type", "integer"}};
    Ordered all = Ordered::array();
    for (unsigned i = 0; i < 128; ++i) {
      all.push_back(
          {{"type", "array"}, {"minItems", 1000u}, {"maxItems", 1000u + i}, {"items", items}});
    }
    defs[fmt::format("L{}", k)] = {{"anyOf", all}};
  }
  const Ordered schema = {{"type", "object"},
                          {"properties", {{"a", {{"$ref", "#/$defs/L0"}}}}},
                          {"required", {"a"}},
                          {"$defs", defs}};
  GrammarReader reader(compile_schema(schema, "s"));
  reset_peak_memory();
  const std::size_t before = peak_memory();
  for (const char c : "{\"a\":" + std::string(kLevels - 2, '[')) ASSERT_TRUE(reader.push(c));
  std::size_t left = 0;
  for (int round = 0; round < 40; ++round) {
    for (int byte = 0; byte < 256; ++byte) {
      GrammarReader next = reader;
      left += next.push(static_cast<char>(byte)) ? 1 : 0;
    }
  }
  EXPECT_EQ(left, 40 * 5u);  // '[' and whitespace
  // A sanitizer keeps what was freed.
  if (!kSanitized) {
    EXPECT_LT(peak_memory() - before, std::size_t{16} << 20);
  }
}

}  // namespace
}  // namespace ballast::test
