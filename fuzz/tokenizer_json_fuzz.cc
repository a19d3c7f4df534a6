// A tokenizer.json, and a tokenizer made from it if it is one: it encodes the file itself.
#include "text/tokenizer/tokenizer_json.h"

#include "ballast/error.h"
#include "target.h"
#include "use_tokenizer.h"

namespace {

void read_json(std::string_view text) {
  try {
    ballast::fuzz::use(ballast::Tokenizer(ballast::parse_tokenizer_json(text, "fuzz")), text);
  } catch (const ballast::Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(tokenizer_json, read_json)
