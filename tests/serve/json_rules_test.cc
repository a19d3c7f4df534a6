#include "serve/grammar/json_rules.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "serve/grammar/json_schema.h"

namespace ballast::serve {
namespace {

/// Whether every byte was taken; `done`: whether the object has ended then.
bool takes(std::string_view text, bool& done) {
  GrammarReader reader(any_json_object());
  for (char c : text) {
    if (!reader.push(c)) return false;
  }
  done = reader.done();
  return true;
}

TEST(JsonRules, TakesObjects) {
  for (const char* text :
       {"{}", "{ }", R"({"a":1})", R"({"a":-0.5e+3,"b":[],"c":[1, 2,{}],"d":null})",
        R"({"a\n\u00e9":"\"é€😀\uD7ff","b":true,"c":false})",
        R"({"a":0,"b":10,"c":1E5,"d":[[[]]]})"}) {
    bool done = false;
    EXPECT_TRUE(takes(text, done) && done) << text;
  }
}

TEST(JsonRules, TakesNothingElse) {
  for (const char* text : {"[",
                           "1",
                           "\"",
                           "{,",
                           "{a",
                           R"({"a"})",
                           R"({"a":})",
                           R"({"a":1,})",
                           R"({"a":01)",
                           R"({"a":1.})",
                           R"({"a":-})",
                           R"({"a":.5)",
                           R"({"a":1e})",
                           R"({"a":tru})",
                           R"({"a":[1,])",
                           R"({"a":[)"
                           "}",
                           R"({"a":"\x)",
                           R"({"a":"\u12g)",
                           "{\"a\":\"\n",
                           R"({"a":"\ud800)",
                           R"({"a":"\uDf)",
                           "{\"a\":\"\x80",
                           "{\"a\":\"\xc3\"",
                           "{\"a\":\"\xc0\x80",
                           "{\"a\":\"\xed\xa0\x80",
                           "{\"a\":\"\xf4\x90",
                           "{}x",
                           "{}{",
                           " {}",
                           "\n{",
                           R"({1)"}) {
    bool done = false;
    EXPECT_FALSE(takes(text, done)) << text;
  }
  bool done = false;
  EXPECT_TRUE(takes("{" + std::string(8, ' '), done));
  EXPECT_FALSE(takes("{" + std::string(9, ' '), done));
}

/// What is drawn byte by byte from what the reader takes is JSON.
TEST(JsonRules, WhatItTakesParses) {
  const std::string bytes = "{}[]\",:0123-+.eEtruefalsndD\\u \nx\xc3\xa9\xed\xf0\x90";
  std::mt19937 random(3);
  int ended = 0;
  for (int i = 0; i < 3000; ++i) {
    GrammarReader reader(any_json_object());
    std::string text;
    while (!reader.done() && text.size() < 200) {
      const char c = bytes[random() % bytes.size()];
      GrammarReader next = reader;
      if (!next.push(c)) continue;
      reader = next;
      text += c;
    }
    if (!reader.done()) continue;
    ++ended;
    EXPECT_TRUE(nlohmann::json::parse(text, nullptr, false).is_object()) << text;
  }
  EXPECT_GT(ended, 1000);
}

/// Every number around the bounds, against arithmetic.
TEST(JsonRules, NumbersAreThoseOfTheirBounds) {
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    JsonRules::Numbers n;
    n.decimals = static_cast<std::uint8_t>(random() % 3);
    n.low = static_cast<std::int64_t>(random() % 1500) - 700;
    n.high = n.low + static_cast<std::int64_t>(random() % 1200);
    const std::uint64_t steps[] = {1, 1, 2, 3, 7, 10, 25, 100, 1009};
    n.step = steps[random() % 9];
    GrammarBuilder builder(JsonRules::kDeepest, 0);
    JsonRules rules(builder);
    const auto grammar = builder.finish(rules.array({}, rules.numbers(n), 0, 1));
    for (std::int64_t x = -900; x <= 2200; ++x) {
      const std::int64_t unit = n.decimals == 0 ? 1 : n.decimals == 1 ? 10 : 100;
      std::string text = fmt::format("{}{}", x < 0 ? "-" : "", std::abs(x) / unit);
      if (n.decimals > 0) text += fmt::format(".{:0{}}", std::abs(x) % unit, n.decimals);
      const bool is = x >= n.low && x <= n.high && x % static_cast<std::int64_t>(n.step) == 0;
      const auto takes = [&](const std::string& number) {
        GrammarReader reader(grammar);
        return reader.push("[" + number + "]") && reader.done();
      };
      if (n.step < 1009 || n.decimals == 0) {
        ASSERT_EQ(takes(text), is)
            << text << " in " << n.low << ".." << n.high << " / " << unit << " step " << n.step;
      }
      if (n.decimals > 0 && n.step < 1009 && x % 10 == 0) {
        text.pop_back();
        if (text.ends_with('.')) text.pop_back();
        ASSERT_EQ(takes(text), is) << text;
      }
      ASSERT_FALSE(takes("0" + text));
    }
  }
}

}  // namespace
}  // namespace ballast::serve
