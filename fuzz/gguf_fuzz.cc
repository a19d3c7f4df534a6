// Any bytes either load as a GGUF file, and perhaps a model and a vocabulary, or give an Error.
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "ballast/engine/gguf.h"
#include "ballast/engine/tokenizer.h"
#include "ballast/error.h"
#include "memory_file.h"
#include "target.h"
#include "use_model.h"
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

/// Writes the file's content again, in its types, and reads it.
void write_again(const ballast::Gguf& file) {
  const ballast::TempFile place("again.gguf", "");
  ballast::GgufWriter writer(place.path());
  for (const ballast::GgufEntry& entry : file.metadata()) {
    if (entry.key == "general.alignment") continue;
    if (entry.is_array && entry.type == ballast::GgufType::string) {
      const auto texts = file.get<std::vector<std::string_view>>(entry.key);
      writer.add_array(entry.key, std::vector<std::string>(texts.begin(), texts.end()));
    } else if (entry.type == ballast::GgufType::string) {
      writer.add(entry.key, file.get<std::string_view>(entry.key));
    } else if (entry.type == ballast::GgufType::boolean) {
      if (!entry.is_array) writer.add(entry.key, file.get<bool>(entry.key));
    } else if (entry.is_array) {
      const auto numbers = file.get<std::vector<float>>(entry.key);
      writer.add_array(entry.key, std::span<const float>(numbers));
    } else {
      writer.add(entry.key, file.get<double>(entry.key));
    }
  }
  for (const ballast::TensorView& tensor : file.tensors())
    writer.declare(tensor.name, tensor.type, tensor.shape);
  std::size_t number = 0;
  for (const ballast::TensorView& tensor : file.tensors()) {
    if (++number % 2 != 0) {
      writer.write(tensor.data);
    } else {
      writer.write(ballast::to_float(tensor));  // encoded anew
    }
  }
  writer.commit();
  const ballast::Gguf again(place.path());
  BALLAST_FUZZ_CHECK(again.tensors().size() == file.tensors().size());
  for (std::size_t i = 0; i < file.tensors().size(); i += 2) {
    const auto &one = file.tensors()[i], &other = again.tensor(one.name);
    BALLAST_FUZZ_CHECK(one.shape == other.shape && std::ranges::equal(one.data, other.data));
  }
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
    if (input.size() % 8 == 0) {
      try {
        write_again(gguf);
      } catch (const ballast::Error&) {
      }
    }
    ballast::fuzz::use_model(file.path());
  } catch (const ballast::Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(gguf, read_gguf)
