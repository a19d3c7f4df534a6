// A chat template: hostile text, run on a short conversation.
#include "ballast/engine/chat.h"
#include "ballast/error.h"
#include "target.h"

namespace {

void render(std::string_view text) {
  try {
    const std::vector<ballast::ChatMessage> messages = {
        {"system", "Be brief."}, {"user", "Hi"}, {"assistant", " Hé \n"}, {"user", ""}};
    ballast::ChatTemplate(text).format(messages, {true, "<s>", "</s>"});
  } catch (const ballast::Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(chat_template, render)
