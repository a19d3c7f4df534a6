#include "serve/json_grammar.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace ballast::serve {
namespace {

/// Whether every byte was taken; `done`: whether the object has ended then.
bool takes(std::string_view text, bool& done) {
  JsonReader reader(std::make_shared<JsonGrammar>());
  for (char c : text) {
    if (!reader.push(c)) return false;
  }
  done = reader.done();
  return true;
}

TEST(JsonReader, TakesObjects) {
  for (const char* text :
       {"{}", "{ } ", R"({"a":1})", R"({"a":-0.5e+3,"b":[],"c":[1, 2,{}],"d":null})",
        R"({"a\n\u00e9":"\"é€😀\uD7ff","b":true,"c":false})",
        R"({"a":0,"b":10,"c":1E5,"d":[[[]]]})"}) {
    bool done = false;
    EXPECT_TRUE(takes(text, done) && done) << text;
  }
}

TEST(JsonReader, TakesNothingElse) {
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
TEST(JsonReader, WhatItTakesParses) {
  const std::string bytes = "{}[]\",:0123-+.eEtruefalsndD\\u \nx\xc3\xa9\xed\xf0\x90";
  std::mt19937 random(3);
  int ended = 0;
  for (int i = 0; i < 3000; ++i) {
    JsonReader reader(std::make_shared<JsonGrammar>());
    std::string text;
    while (!reader.done() && text.size() < 200) {
      const char c = bytes[random() % bytes.size()];
      JsonReader next = reader;
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

}  // namespace
}  // namespace ballast::serve
