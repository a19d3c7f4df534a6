// A tokenizer.json, and a tokenizer made from it if it is one.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ballast/engine/tokenizer.h"
#include "ballast/error.h"
#include "text/tokenizer/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const ballast::Tokenizer tokenizer(ballast::parse_tokenizer_json(text, "fuzz"));
    const std::vector<ballast::Token> ids =
        tokenizer.encode(" ab\n\xff\xc3\xa9 <s>12", {.parse_special = true});
    tokenizer.decode(ids, {.special = true});
  } catch (const ballast::Error&) {
  }
  return 0;
}
