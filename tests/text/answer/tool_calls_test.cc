// Calls of functions in answers: which text is one.
#include "text/answer/tool_calls.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <random>

#include "formats/json.h"

namespace ballast::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Ordered = Json;

const std::string kOslo = R"({"name": "weather", "arguments": {"city": "Oslo"}})";
const std::string kRome = R"({"name": "weather", "parameters": {"city": "Rome"}})";
std::string tagged(const std::string& json) { return "<tool_call>\n" + json + "\n</tool_call>"; }

std::vector<Function> functions() {
  return {{"time"}, {"weather", Ordered::parse(R"({"properties":{"city":{"type":"string"},
              "days":{"type":"integer"},"now":{"type":["boolean","null"]}}})")}};
}

struct Said {
  std::string text;
  std::vector<std::string> calls;
};
/// What comes of a text in pieces of so many characters.
Said read(const std::string& all, std::size_t size) {
  ToolCallReader reader(functions());
  std::vector<ToolCall> calls;
  Said out;
  for (std::size_t at = 0; at < all.size(); at += size) {
    out.text += reader.push(all.substr(at, size), calls);
  }
  out.text += reader.finish(calls);
  for (const ToolCall& call : calls) out.calls.push_back(call.name + call.arguments);
  return out;
}

TEST(ToolCalls, HaveTwoForms) {
  const std::string oslo = R"(weather{"city": "Oslo"})", rome = R"(weather{"city": "Rome"})";
  for (std::size_t size : {1, 2, 7, 1000}) {
    for (const std::string& json : {kOslo, "\n " + kOslo + "\n"}) {
      EXPECT_THAT(read(json, size).calls, ElementsAre(oslo)) << size;
      EXPECT_EQ(read(json, size).text, "") << size;
    }
    EXPECT_THAT(read(kRome, size).calls, ElementsAre(rome));
    EXPECT_THAT(read(tagged(kOslo), size).calls, ElementsAre(oslo)) << size;
    EXPECT_EQ(read(tagged(kOslo) + "\n", size).text, "") << size;
    const Said both = read("I look.\n" + tagged(kOslo) + "\n" + tagged(kRome), size);
    EXPECT_EQ(both.text, "I look.") << size;
    EXPECT_THAT(both.calls, ElementsAre(oslo, rome)) << size;
    EXPECT_THAT(read("<tool_call>" + kOslo, size).calls, ElementsAre(oslo));  // not closed
  }
  EXPECT_THAT(read(R"({"name": "time"})", 1).calls, ElementsAre("time{}"));
  for (const char* none : {"\"{}\"", "\"\"", "\" \"", "null", "{}"}) {
    const std::string call = fmt::format(R"({{"name": "time", "arguments": {}}})", none);
    EXPECT_THAT(read(call, 1).calls, ElementsAre("time{}")) << none;
    EXPECT_THAT(read(tagged(call), 1).calls, ElementsAre("time{}")) << none;
  }
}

TEST(ToolCalls, ArgumentsAreThoseThatTheModelWrote) {
  for (const std::string arguments :
       {R"({"a":12345678901234567890123})", R"({ "b" : [1.50, 1E5, "\u00e9", "x\"}"] , "c":{}})"}) {
    const std::string call =
        R"({"arguments": {"no": 1}, "name": "time", "x": ["arguments", 1], "arguments": )" +
        arguments + " , \"y\": 1}";
    EXPECT_THAT(read(tagged(call), 3).calls, ElementsAre("time" + arguments));
  }
}

TEST(ToolCalls, AClosingTagInAStringClosesNothing) {
  const std::string arguments = R"({"city": "the </tool_call> tag, \"</tool_call>"})";
  const std::string call = R"({"name": "weather", "arguments": )" + arguments + "}";
  for (std::size_t size : {1, 2, 7, 1000}) {
    const Said said = read("a " + tagged(call) + tagged(kOslo) + " b", size);
    EXPECT_THAT(said.calls, ElementsAre("weather" + arguments, R"(weather{"city": "Oslo"})"));
    EXPECT_EQ(said.text, "a b") << size;
  }
  // A string that has no end hides none of the calls after it.
  const std::string broken = "<tool_call>{\"x</tool_call>";
  for (std::size_t size : {1, 1000}) {
    EXPECT_EQ(read(broken, size).text, broken);
    const Said said = read(broken + tagged(kOslo), size);
    EXPECT_EQ(said.text, broken);
    EXPECT_EQ(said.calls.size(), 1u);
  }
}

TEST(ToolCalls, WrittenLikeCode) {
  for (std::size_t size : {1, 5, 1000}) {
    // Llama 3.2 and LFM2, with and without their tokens.
    const std::string list =
        R"([weather(city="the \"x\" city", days=-12345678901234567890, now=None), time()])";
    for (const std::string& all : {list, "<|tool_call_start|>" + list + "<|tool_call_end|>"}) {
      const Said said = read(all + " I look.", size);
      EXPECT_THAT(
          said.calls,
          ElementsAre(R"(weather{"city":"the \"x\" city","days":-12345678901234567890,"now":null})",
                      "time{}"));
      EXPECT_EQ(said.text, "I look.") << size;
    }
    EXPECT_THAT(
        read(R"([weather(city='a\'b', x=[1, (2.5, True)], y={'k': "v", 'l': {}},)])", size).calls,
        ElementsAre(R"(weather{"city":"a'b","x":[1,[2.5,true]],"y":{"k":"v","l":{}}})"));
    // Mistral, two calls.
    EXPECT_THAT(read(R"(weather{"city": "Oslo"}[TOOL_CALLS]time[ARGS]{})", size).calls,
                ElementsAre(R"(weather{"city":"Oslo"})", "time{}"));
    // Gemma.
    EXPECT_THAT(read("<start_function_call>call:weather{city:<escape>a, b<escape>,days:3}"
                     "<end_function_call>",
                     size)
                    .calls,
                ElementsAre(R"(weather{"city":"a, b","days":3})"));
    EXPECT_THAT(read("call:weather{city:<|\"|>a}<|\"|>,now:true}", size).calls,
                ElementsAre(R"(weather{"city":"a}","now":true})"));
    for (const std::string text :
         {"[weather(city=", "[weather(city=1)", "[none(a=1)]", "weather is fine", "weather{",
          "[1, 2]", "call:none{}", "[weather(1)]", "So [time()]", "time",
          "<start_function_call>x"}) {
      EXPECT_THAT(read(text, size).calls, IsEmpty()) << text;
      EXPECT_EQ(read(text, size).text, text) << text;
    }
  }
  const std::string deep = "[time(a=" + std::string(100'000, '[');
  EXPECT_EQ(read(deep, 1000).text, deep);
}

TEST(ToolCalls, OfQwen3Coder) {
  const std::string call =
      "<tool_call>\n<function=weather>\n<parameter=city>\nthe </tool_call> \"tag\"\n</parameter>\n"
      "<parameter=days>\n12345678901234567890\n</parameter>\n<parameter=now>True</parameter>\n"
      "<parameter=else>\n3\n</parameter>\n</function>\n</tool_call>";
  for (std::size_t size : {1, 5, 1000}) {
    const Said said = read("I look.\n" + call + call, size);
    EXPECT_EQ(said.text, "I look.");
    ASSERT_EQ(said.calls.size(), 2u);
    EXPECT_EQ(said.calls[0], R"(weather{"city":"the </tool_call> \"tag\"",)"
                             R"("days":12345678901234567890,"now":true,"else":"3"})");
  }
  for (const std::string text :
       {"<tool_call><function=none></function></tool_call>",
        "<tool_call><function=time>x</function></tool_call>",
        "<tool_call><function=time><parameter=a>x</function></tool_call>",
        "<tool_call><function=time></tool_call>", "<tool_call><function=time"}) {
    EXPECT_EQ(read(text, 3).text, text);
    EXPECT_THAT(read(text, 3).calls, IsEmpty());
  }
  EXPECT_THAT(read("<tool_call><function=time></function></tool_call>", 1).calls,
              ElementsAre("time{}"));
}

TEST(ToolCalls, OfQwen3CoderWithoutATag) {
  const std::string call =
      "<function=weather>\n<parameter=city>\na </parameter> b </function> c\n</parameter>\n"
      "<parameter=days>\n3\n</parameter>\n</function>";
  const std::string read_as = R"(weather{"city":"a </parameter> b </function> c","days":3})";
  for (std::size_t size : {1, 5, 1000}) {
    Said said = read("I look.\n" + call + "\n</tool_call>\n" + call + " Done.", size);
    EXPECT_EQ(said.text, "I look. Done.") << size;
    EXPECT_THAT(said.calls, ElementsAre(read_as, read_as));
    said = read(call, size);
    EXPECT_EQ(said.text, "");
    EXPECT_THAT(said.calls, ElementsAre(read_as));
    EXPECT_THAT(read("<function=time></function>", size).calls, ElementsAre("time{}"));
    for (const std::string text : {"<function=none></function>", "<function=time>x</function>",
                                   "<function=time>", "<function=time><parameter=a>x",
                                   "a <function=x", "<function=\ntime>", "f </tool_call>"}) {
      EXPECT_EQ(read(text, size).text, text);
      EXPECT_THAT(read(text, size).calls, IsEmpty()) << text;
    }
  }
}

TEST(ToolCalls, BehindAMark) {
  for (std::size_t size : {1, 5, 1000}) {
    const std::string mistral = R"(weather[CALL_ID]abc123def[ARGS]{"city": "Oslo"})";
    EXPECT_THAT(read(mistral, size).calls, ElementsAre(R"(weather{"city":"Oslo"})"));
    Said said = read("I look. [TOOL_CALLS]" + mistral + "[TOOL_CALLS]time[ARGS]{} So.", size);
    EXPECT_EQ(said.text, "I look. So.");
    EXPECT_THAT(said.calls, ElementsAre(R"(weather{"city":"Oslo"})", "time{}"));
    said = read("A [TOOL_CALLS] [" + kOslo + ", " + kRome + "]", size);
    EXPECT_EQ(said.text, "A");
    EXPECT_EQ(said.calls.size(), 2u);
    said = read("A <|tool_call_start|>[time()]<|tool_call_end|> B", size);
    EXPECT_EQ(said.text, "A B");
    EXPECT_THAT(said.calls, ElementsAre("time{}"));
    for (const std::string text :
         {"The mark [TOOL_CALLS] is one.", "[TOOL_CALLS]", "[TOOL_CALLS]no",
          "[TOOL_CALLS]time[ARGS]{", "[TOOL_CALLS]{\"a\": 1}"}) {
      EXPECT_EQ(read(text, size).text, text) << size;
      EXPECT_THAT(read(text, size).calls, IsEmpty()) << text;
    }
  }
}

TEST(ToolCalls, OfGlmAndMistral) {
  const std::string glm =
      "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo \"x\"</arg_value>\n"
      "<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>";
  for (std::size_t size : {1, 5, 1000}) {
    EXPECT_THAT(read(glm + "<tool_call>time</tool_call>", size).calls,
                ElementsAre(R"(weather{"city":"Oslo \"x\"","days":3})", "time{}"));
    const Said said = read(" [" + kOslo + ",\n " + kRome + "]", size);
    EXPECT_THAT(said.calls,
                ElementsAre(R"(weather{"city": "Oslo"})", R"(weather{"city": "Rome"})"));
    EXPECT_EQ(said.text, "");
    for (const std::string text :
         {"[1] says so", "[", "[{}]", "[]", "[1]", "time", "<tool_call>none</tool_call>",
          "<tool_call>time<arg_key>a</arg_key></tool_call>", "[{\"name\": \"time\"}, 1]"}) {
      EXPECT_EQ(read(text, size).text, text);
      EXPECT_THAT(read(text, size).calls, IsEmpty()) << text;
    }
  }
  ToolCallReader reader(functions());
  std::vector<ToolCall> calls;
  EXPECT_EQ(reader.push("[1] says", calls), "[1] says");  // not held up
}

TEST(ToolCalls, EverythingElseIsText) {
  const std::vector<std::string> all = {
      "",
      " ",
      "The sky is blue.\n\n",
      "1 < 2 and <tool> and <tool_call",
      kOslo.substr(0, kOslo.size() - 1),
      kOslo + " is a call.",
      "A call is " + kOslo,
      R"({"name": "none", "arguments": {}})",
      R"({"name": "time", "arguments": [1]})",
      R"({"name": 3})",
      R"({"city": "Oslo"})",
      "{" + std::string(100, '['),
      tagged("x"),
      "Text\n\n" + tagged(R"({"name": "none"})") + " and more\n",
      "Text <tool_call>" + kOslo.substr(1),
  };
  for (const std::string& text : all) {
    for (std::size_t size : {1, 3, 1000}) {
      const Said said = read(text, size);
      EXPECT_EQ(said.text, text) << size;
      EXPECT_THAT(said.calls, IsEmpty()) << text;
    }
  }
}

TEST(ToolCalls, TextIsNotHeldUp) {
  ToolCallReader reader(functions());
  std::vector<ToolCall> calls;
  EXPECT_EQ(reader.push("Hello,", calls), "Hello,");
  EXPECT_EQ(reader.push(" you <to", calls), " you");
  EXPECT_EQ(reader.push("p> of ", calls), " <top> of");
}

// Looking at all that is held again for each piece, or moving it for each call, would take minutes.
TEST(ToolCalls, LongAnswersTakeTimeInProportion) {
  const std::string empty = "<tool_call></tool_call>";
  std::string all;
  for (int i = 0; i < 150'000; ++i) all += empty;
  EXPECT_EQ(read(all, all.size()).text, all);
  for (const std::string part : {"<tool_call>{\"", "<tool_call>{\"</tool_call>", "<tool_call>",
                                 "<tool_call>{\"a\\\"</tool_call>", "<tool_call><function=",
                                 "<tool_call><function=</tool_call>", "<tool_call>{\"a\":\"\",\"",
                                 "<function=time>", "<function=time><parameter=a>", "[TOOL_CALLS]",
                                 "<function=time></parameter>", "[TOOL_CALLS]time{", "{\"a\":"}) {
    std::string many;
    for (int i = 0; i < 100'000; ++i) many += part;
    EXPECT_EQ(read(many, 1000).text, many) << part;
  }
  for (const std::string begin : {"Text", "", "{}", " <tool_call>", "<tool_call>{",
                                  "<function=", "<function=time>", "[TOOL_CALLS]", "{\"a"}) {
    for (const char c : {' ', '<', 'x'}) {
      const std::string text = begin + std::string(2'000'000, c);
      EXPECT_EQ(read(text, 2).text, text) << begin << c;
    }
  }
}

// Against a reading that looks at all that was written each time.
TEST(ToolCalls, PiecesOfAnySizeMakeTheSame) {
  const std::vector<std::string> parts = {" ",
                                          "\n",
                                          "a",
                                          "{",
                                          "<tool_call>",
                                          "</tool_call>",
                                          "<tool_",
                                          "<",
                                          kOslo,
                                          kRome,
                                          tagged(kOslo),
                                          tagged("x"),
                                          " \n " + tagged(kRome),
                                          "{\"",
                                          "\"",
                                          "<function=time>",
                                          "<parameter=a>",
                                          "</parameter>",
                                          "[TOOL_CALLS]",
                                          "time[ARGS]{}",
                                          "</function>"};
  std::mt19937 random(6);
  int with_calls = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (std::size_t i = random() % 9; i > 0; --i) text += parts[random() % parts.size()];
    const Said whole = read(text, text.size() + 1);
    with_calls += !whole.calls.empty();
    for (const std::size_t size : {1, 2, 3, 5, 11, 40}) {
      const Said said = read(text, size);
      ASSERT_EQ(said.text, whole.text) << text;
      ASSERT_EQ(said.calls, whole.calls) << text;
    }
  }
  EXPECT_GT(with_calls, 500);
}

}  // namespace
}  // namespace ballast::test
