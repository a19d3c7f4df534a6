// Harmony's messages as other models write theirs.
#include "text/answer/channels.h"

#include <gtest/gtest.h>

namespace ballast {
namespace {

/// However the text is cut.
std::string translated(std::string_view text) {
  ChannelText whole;
  std::string out = whole.push(text);
  out += whole.finish();
  for (std::size_t piece : {1, 2, 5, 9}) {
    ChannelText cut;
    std::string same;
    for (std::size_t at = 0; at < text.size(); at += piece)
      same += cut.push(text.substr(at, piece));
    EXPECT_EQ(same + cut.finish(), out) << piece;
  }
  return out;
}

TEST(Channels, AnalysisIsThoughtAndFinalTheAnswer) {
  EXPECT_EQ(translated("<|channel|>analysis<|message|>Two and two.<|end|>"
                       "<|start|>assistant<|channel|>final<|message|>It is **4**, a < b."),
            "<think>\nTwo and two.\n</think>\n\nIt is **4**, a < b.");
  EXPECT_EQ(translated("<|channel|>final<|message|>4<|return|>"), "4");
  EXPECT_EQ(translated("<|channel|>analysis<|message|>A<|end|><|start|>assistant"
                       "<|channel|>analysis<|message|>B<|end|><|start|>assistant<|channel|>final"
                       "<|message|>C"),
            "<think>\nA\n\nB\n</think>\n\nC");
}

TEST(Channels, MessagesToFunctionsAreCalls) {
  constexpr std::string_view kCall =
      "<think>\nCall it.\n</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n"
      "</tool_call>";
  EXPECT_EQ(translated("<|channel|>analysis<|message|>Call it.<|end|><|start|>assistant<|channel|>"
                       "commentary to=functions.f <|constrain|>json<|message|>{\"x\": 1}<|call|>"),
            kCall);
  EXPECT_EQ(translated("<|channel|>analysis<|message|>Call it.<|end|><|start|>assistant "
                       "to=functions.f<|channel|>commentary json<|message|>{\"x\": 1}"),
            kCall);
  EXPECT_EQ(translated(" to=functions.g<|channel|>commentary<|message|><|call|>"),
            "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>");
  // What the user reads before a call; what goes to other tools.
  EXPECT_EQ(translated("<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>"
                       "analysis to=python<|message|>1+1<|call|>"),
            "I look.");
}

TEST(Channels, TextWithoutThemStaysAsItIs) {
  for (const char* text : {"", "Hi", "{\"a\": 1}", " to the north", "<b>", " t", "<|"}) {
    EXPECT_EQ(translated(text), text);
  }
  EXPECT_EQ(translated("<|channel|>analysis<|message|>cut of"), "<think>\ncut of");
  EXPECT_EQ(translated("<|channel|>fin"), "");
}

}  // namespace
}  // namespace ballast
