// A chat template: hostile text, run on a short conversation.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ballast/engine/chat.h"
#include "ballast/error.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const std::vector<ballast::ChatMessage> messages = {
        {"system", "Be brief."}, {"user", "Hi"}, {"assistant", " Hé \n"}, {"user", ""}};
    ballast::ChatTemplate(text).format(messages, {true, "<s>", "</s>"});
  } catch (const ballast::Error&) {
  }
  return 0;
}
