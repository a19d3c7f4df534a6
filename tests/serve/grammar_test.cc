// GBNF and regular expressions: which texts they take, what is refused, and answers held to them.
#include "serve/grammar/grammar.h"

#include <gmock/gmock.h>

#include "ballast/error.h"
#include "ballast/random.h"
#include "serve/asking.h"
#include "serve/grammar/expression_rules.h"
#include "serve/grammar/gbnf.h"

namespace ballast::test {
namespace {

using serve::GrammarReader;
using testing::HasSubstr;

enum class Is { dead, beginning, text, end };
Is state(const std::string& grammar, const std::string& text) {
  GrammarReader reader(serve::parse_gbnf(grammar));
  for (char c : text) {
    if (!reader.push(c)) return Is::dead;
  }
  return reader.done() ? Is::end : reader.may_end() ? Is::text : Is::beginning;
}
std::string refusal(const std::string& grammar) {
  try {
    serve::parse_gbnf(grammar);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Grammar, TakesItsTextsAlone) {
  const std::string list = "root ::= \"[\" (item (\",\" item)*)? \"]\"\nitem ::= [0-9]+ | root";
  EXPECT_EQ(state(list, "[]"), Is::end);
  EXPECT_EQ(state(list, "[1,[22,[]],3]"), Is::end);
  EXPECT_EQ(state(list, "[1,"), Is::beginning);
  EXPECT_EQ(state(list, "[1,]"), Is::dead);
  EXPECT_EQ(state(list, "[]]"), Is::dead);
  EXPECT_EQ(state("root ::= \"a\"*", ""), Is::text);
  EXPECT_EQ(state("root ::= \"a\"*", "aaa"), Is::text);
  EXPECT_EQ(state("root ::= \"\"", ""), Is::end);
  EXPECT_EQ(
      state("root ::= yes | no # a comment\nyes ::=\n  \"yes\"\nno ::= \"no\" |\n \"never\"", "ne"),
      Is::beginning);
}

TEST(Grammar, CountsRepetitions) {
  for (const auto& [count, least, most] :
       {std::tuple{"{3}", 3, 3}, {"{2,}", 2, 9}, {"{1,4}", 1, 4}, {"{0,2}", 0, 2}, {"?", 0, 1}}) {
    for (int n = 0; n < 9; ++n) {
      const Is is = state(std::string("root ::= \"<\" (\"a\" | \"b\")") + count + " \">\"",
                          "<" + std::string(static_cast<std::size_t>(n), 'b') + ">");
      EXPECT_EQ(is == Is::end, n >= least && n <= most) << count << n;
    }
  }
}

TEST(Grammar, CharactersAreThoseOfUtf8) {
  // Against the code points themselves, at the borders of lengths and of the range.
  for (const auto& [low, high] : {std::pair{0x41u, 0x5Au},
                                  {0x70u, 0x90u},
                                  {0x7FEu, 0x803u},
                                  {0xFFF0u, 0x10010u},
                                  {0xE9u, 0x20ACu},
                                  {0x1F600u, 0x1F64Fu},
                                  {0x3FFFu, 0x10FFFFu}}) {
    const GrammarReader begin(
        serve::parse_gbnf(fmt::format("root ::= [\\U{:08x}-\\U{:08x}]", low, high)));
    const auto takes = [&](std::uint32_t c) {
      std::string text;
      const auto add = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
      if (c < 0x80) {
        add(c);
      } else if (c < 0x800) {
        add(0xC0 + c / 64);
        add(0x80 + c % 64);
      } else if (c < 0x10000) {
        add(0xE0 + c / 4096);
        add(0x80 + c / 64 % 64);
        add(0x80 + c % 64);
      } else {
        add(0xF0 + c / 262144);
        add(0x80 + c / 4096 % 64);
        add(0x80 + c / 64 % 64);
        add(0x80 + c % 64);
      }
      GrammarReader reader = begin;
      return reader.push(text) && reader.done();
    };
    for (int i = 0; i < 3000; ++i) {
      const std::uint32_t around = i % 3 == 0 ? low : i % 3 == 1 ? high : 0x10FFFF / 2;
      const std::uint32_t spread = i % 3 == 2 ? 0x10FFFF : 128;
      const std::uint32_t drawn = random_bits({low}, static_cast<std::uint64_t>(i))[0] % spread;
      const std::uint32_t c = std::min<std::uint32_t>(
          0x10FFFF, around > spread / 2 ? around - spread / 2 + static_cast<std::uint32_t>(drawn)
                                        : static_cast<std::uint32_t>(drawn));
      if (c >= 0xD800 && c <= 0xDFFF) continue;
      EXPECT_EQ(takes(c), c >= low && c <= high) << std::hex << c;
    }
  }
  EXPECT_EQ(state("root ::= [^\"\\n]", "é"), Is::end);
  EXPECT_EQ(state("root ::= [^\"\\n]", "\""), Is::dead);
  EXPECT_EQ(state("root ::= .", "\xF0\x9F\x98\x80"), Is::end);
  EXPECT_EQ(state("root ::= .", "\xED\xA0"), Is::dead);  // half of a pair
  EXPECT_EQ(state("root ::= \"h\\u00e9\\x21\"", "hé!"), Is::end);
  EXPECT_EQ(state("root ::= [a\\]\\-]", "-"), Is::end);
}

TEST(Grammar, AmbiguousTextsAreTextsOnce) {
  const std::string grammar = "root ::= (\"a\" | \"aa\" | \"aaa\"){40}";
  EXPECT_EQ(state(grammar, std::string(39, 'a')), Is::beginning);
  EXPECT_EQ(state(grammar, std::string(40, 'a')), Is::text);
  EXPECT_EQ(state(grammar, std::string(120, 'a')), Is::end);
}

TEST(Grammar, RefusesInALine) {
  EXPECT_THAT(refusal("a ::= \"x\""), HasSubstr("root has no rule"));
  EXPECT_THAT(refusal("root ::= other"), HasSubstr("other has no rule"));
  EXPECT_THAT(refusal("root ::= \"x\"\nroot ::= \"y\""), HasSubstr("line 2: root has a rule"));
  EXPECT_THAT(refusal("root ::= \"x"), HasSubstr("has no end"));
  EXPECT_THAT(refusal("root ::= (\"x\""), HasSubstr("expected )"));
  EXPECT_THAT(refusal("root ::= \"x\"{3,2}"), HasSubstr("{m,n}"));
  EXPECT_THAT(refusal("root ::= [b-a]"), HasSubstr("ends before it begins"));
  EXPECT_THAT(refusal("root ::= \"\\q\""), HasSubstr("unknown escape"));
  EXPECT_THAT(refusal("root ::= root \"x\" | \"y\""), HasSubstr("root begins with itself"));
  EXPECT_THAT(refusal("root ::= a\na ::= \"b\"? a"), HasSubstr("a begins with itself"));
  EXPECT_THAT(refusal("root ::= " + std::string(100, '(')), HasSubstr("nest deeper"));
  EXPECT_THAT(refusal("root ::= " + std::string(70'000, ' ')), HasSubstr("at most 65536"));
  EXPECT_THAT(refusal("root ::= \"x\" root"), HasSubstr("no text ends"));
}

/// Bytes that are taken before the grammar says that they can be understood in too many ways.
std::size_t taken_before_refusal(const std::string& grammar, const std::string& text) {
  GrammarReader reader(serve::parse_gbnf(grammar));
  std::size_t out = 0;
  for (const char c : text) {
    reader.states().allow_work();
    if (!reader.push(std::string_view(&c, 1))) break;
    ++out;
  }
  return out;
}

TEST(Grammar, WaysThatMultiplyStayFew) {
  std::string text;
  for (int i = 0; i < 900; ++i) text += i % 2 == 0 ? 'x' : 'y';
  EXPECT_EQ(taken_before_refusal("root ::= a a a a a a a a\n"
                                 "a ::= (\"x\"? \"y\"? \"x\"? \"y\"?){900}",
                                 text),
            text.size());
  // As many states as characters: they are made anew on the way, and the count is kept.
  const std::string counted = "root ::= \"a\"{90} (\"b\"{1000}){1000} \"c\"";
  GrammarReader reader(serve::parse_gbnf(counted));
  ASSERT_TRUE(reader.push(std::string(90, 'a')));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(reader.push(std::string(1000, 'b'))) << i;
  GrammarReader other = reader;
  EXPECT_FALSE(other.push('b'));
  EXPECT_TRUE(reader.push('c'));
  EXPECT_TRUE(reader.done());
  EXPECT_FALSE(reader.states().is_large());
}

TEST(Grammar, RepetitionsOfWhatMayBeEmptyEnd) {
  EXPECT_EQ(state("root ::= (\"x\"?)*", "xx"), Is::text);
  EXPECT_EQ(state("root ::= (\"x\"? \"y\"*){3} \"z\"", "xyyxz"), Is::end);
  EXPECT_EQ(state("root ::= (\"x\"?){2} \"z\"", "xxxz"), Is::dead);
}

TEST(Grammar, DeepTextsCanAlwaysEnd) {
  GrammarReader reader(serve::parse_gbnf("root ::= \"[\" root \"]\" | \"x\""));
  std::size_t depth = 0;
  while (reader.push('[')) ++depth;
  EXPECT_GT(depth, 100u);
  GrammarReader end(serve::parse_gbnf("root ::= \"[\" root \"]\" | \"x\""));
  EXPECT_TRUE(end.push(std::string(depth, '[') + "x" + std::string(depth, ']')));
  EXPECT_TRUE(end.done());
}

TEST(Grammar, ExpressionsKnowUnicode) {
  const auto is = [](const char* expression, const std::string& text) {
    GrammarReader reader(serve::parse_expression(expression));
    return reader.push(text) && reader.may_end();
  };
  for (const char* expression : {"^[äöü]{1,3}$", R"(^[\u00e4\u00f6\u00fc]{1,3}$)", "(ä|ö|ü)+"}) {
    EXPECT_TRUE(is(expression, "ü"));
    EXPECT_TRUE(is(expression, "öä"));
    EXPECT_FALSE(is(expression, "😀"));
    EXPECT_FALSE(is(expression, "é"));
    EXPECT_FALSE(is(expression, "a"));
  }
  EXPECT_TRUE(is("Z\\u00fcrich", "Zürich"));
  EXPECT_FALSE(is("Z\\u00fcrich", "Zurich"));
  EXPECT_TRUE(is("[а-яё]{2,6}", "привет"));
  EXPECT_FALSE(is("[а-яё]{2,6}", "Привет"));
  EXPECT_TRUE(is("[\\u4e00-\\u9fa5]{2,4}", "漢字"));
  EXPECT_FALSE(is("[\\u4e00-\\u9fa5]{2,4}", "かな"));
  EXPECT_TRUE(is("[\\u{1F600}-\\u{1F64F}]", "😀"));
  EXPECT_TRUE(is("\\ud83d\\ude00", "😀"));
  EXPECT_FALSE(is("[\\u{1F600}-\\u{1F64F}]", "🚀"));
  EXPECT_TRUE(is("\\p{Lu}\\p{L}*", "Ärger"));
  EXPECT_FALSE(is("\\p{Lu}\\p{L}*", "ärger"));
  EXPECT_TRUE(is("\\p{Script=Greek}+", "λόγος"));
  EXPECT_FALSE(is("\\p{Script=Greek}+", "logos"));
  EXPECT_TRUE(is("\\P{L}", "7"));
  EXPECT_TRUE(is("[^ä]", "ö"));
  EXPECT_FALSE(is("[^ä]", "ä"));
  EXPECT_TRUE(is("[^\\p{L}]", "€"));
  EXPECT_FALSE(is("\\w", "é"));  // ASCII, by the standard
  EXPECT_TRUE(is("\\s", "\u00a0"));
  EXPECT_FALSE(is("\\S", "\u2003"));
  EXPECT_FALSE(is(".", "\u2028"));
  EXPECT_FALSE(is(".", "\n"));
  EXPECT_TRUE(is("[\\w-.]+", "a-b.c"));
  EXPECT_THROW(is("\\ud83d", ""), Error);  // half of a pair
  EXPECT_THROW(is("\\p{Nothing}", ""), Error);
  EXPECT_THROW(is("[ö-ä]", ""), Error);
}

TEST(Grammar, ExpressionsMatchWholeTexts) {
  const auto is = [](const char* expression, const std::string& text) {
    GrammarReader reader(serve::parse_expression(expression));
    for (char c : text) {
      if (!reader.push(c)) return Is::dead;
    }
    return reader.done() ? Is::end : reader.may_end() ? Is::text : Is::beginning;
  };
  EXPECT_EQ(is("[a-c]+\\d{2,3}", "abc12"), Is::text);
  EXPECT_EQ(is("[a-c]+\\d{2,3}", "abc123"), Is::end);
  EXPECT_EQ(is("[a-c]+\\d{2,3}", "xabc12"), Is::dead);
  EXPECT_EQ(is("^(yes|no)$", "no"), Is::end);
  EXPECT_EQ(is("\"[^\"]*\"", "\"é\n"), Is::beginning);
  EXPECT_EQ(is(".", "\xF0\x9F\x98\x80"), Is::end);
  EXPECT_THROW(is("(a", ""), Error);
  EXPECT_THROW(is("(?=a)", ""), Error);
  EXPECT_EQ(is("(a*)*", "aa"), Is::text);
}

TEST(Grammar, HoldsAnswers) {
  const TestServer server;
  Json body = completion();
  body["max_tokens"] = 60;
  body["temperature"] = 1;
  body["grammar"] = "root ::= (\"red\" | \"green\" | \"deep blue\") \", \" [0-9]{3} \".\"?";
  for (int seed = 0; seed < 5; ++seed) {
    body["seed"] = seed;
    const Json choice = server.post("/v1/completions", body).json()["choices"][0];
    EXPECT_THAT(choice["text"].get<std::string>(),
                testing::MatchesRegex("(red|green|deep blue), [0-9]{3}[.]?"));
    EXPECT_EQ(choice["finish_reason"], "stop");
  }
  Json talk = chat("Which colour?");
  talk["grammar"] = body["grammar"];
  EXPECT_THAT(text_of(server.post("/v1/chat/completions", talk)),
              testing::MatchesRegex("(red|green|deep blue), [0-9]{3}[.]?"));
  talk["response_format"] = {{"type", "json_object"}};
  EXPECT_EQ(server.post("/v1/chat/completions", talk).status, 400);
  talk.erase("response_format");
  talk.erase("grammar");
  talk["regex"] = "(red|blue): \\d+\\.\\d{2}";
  EXPECT_THAT(text_of(server.post("/v1/chat/completions", talk)),
              testing::MatchesRegex("(red|blue): [0-9]+[.]?[0-9]*"));
  body["grammar"] = "root ::= \"x";
  const Reply reply = server.post("/v1/completions", body);
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.json()["error"]["param"], "grammar");
  EXPECT_THAT(reply.body, HasSubstr("line 1"));
}

}  // namespace
}  // namespace ballast::test
