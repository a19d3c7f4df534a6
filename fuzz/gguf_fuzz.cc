// Any bytes either load as a GGUF file, and perhaps a model and a vocabulary, or give an Error.
#include "ballast/engine/gguf.h"
#include "ballast/engine/model_file.h"
#include "ballast/engine/tokenizer.h"
#include "ballast/error.h"
#include "memory_file.h"
#include "target.h"
#include "use_tokenizer.h"

namespace {

void use_everything(const ballast::Gguf& file) {
  for (const ballast::GgufEntry& entry : file.metadata()) {
    if (entry.is_array && entry.type == ballast::GgufType::string) {
      (void)file.get<std::vector<std::string_view>>(entry.key);
    } else if (entry.is_array && entry.type != ballast::GgufType::boolean) {
      (void)file.get<std::vector<float>>(entry.key);
    }
  }
  for (const ballast::TensorView& tensor : file.tensors()) (void)ballast::to_float(tensor);
}

void read_gguf(std::string_view input) {
  ballast::MemoryFile file(input);
  try {
    const ballast::Gguf gguf(file.path());
    try {
      use_everything(gguf);
    } catch (const ballast::Error&) {
    }
    try {
      ballast::fuzz::use(ballast::Tokenizer(ballast::read_vocabulary(gguf)), input);
    } catch (const ballast::Error&) {
    }
    ballast::ModelFile model(file.path());
  } catch (const ballast::Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(gguf, read_gguf)
