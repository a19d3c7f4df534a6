// A chat template: hostile text, run on a short conversation.
#include "ballast/engine/chat.h"
#include "ballast/error.h"
#include "target.h"

namespace {

constexpr const char* kTools =
    R"([{"type": "function", "function": {"name": "f", "description": "d",
 "parameters": {"type": "object", "properties": {"x": {"type": "number"}}}}}])";
constexpr const char* kCalls =
    R"({"content": null, "tool_calls": [{"id": "1", "type": "function",
 "function": {"name": "f", "arguments": {"x": [1.5, -2, true, null, "é"]}}}]})";

void render(std::string_view text) {
  try {
    const std::vector<ballast::ChatMessage> messages = {
        {"system", "Be brief."}, {"user", "Hi"}, {"assistant", " Hé \n"}, {"user", ""}};
    const ballast::ChatTemplate made(text);
    (void)made.format(messages, {true, "<s>", "</s>"});
    ballast::ChatOptions options{false, "<s>", "</s>"};
    options.tools = kTools;
    const std::vector<ballast::ChatMessage> calls = {
        {"user", "Hi"}, {"assistant", "", kCalls}, {"tool", "5"}};
    (void)made.format(calls, options);
  } catch (const ballast::Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(chat_template, render)
