// A tokenizer.model, which SentencePiece reads, and a tokenizer made from it.
#include "ballast/error.h"
#include "memory_file.h"
#include "target.h"
#include "use_tokenizer.h"

namespace {

void read_model(std::string_view input) {
  ballast::TempFile file("tokenizer.model", input);
  try {
    ballast::fuzz::use(ballast::Tokenizer(ballast::read_vocabulary(file.path())), input);
  } catch (const ballast::Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(sentencepiece, read_model)
