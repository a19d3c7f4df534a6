// Any bytes either load as a GGUF file, and perhaps a model, or give an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ballast/engine/gguf.h"
#include "ballast/engine/model_file.h"
#include "ballast/error.h"
#include "memory_file.h"

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ballast::MemoryFile file({reinterpret_cast<const char*>(data), size});
  try {
    use_everything(ballast::Gguf(file.path()));
    ballast::ModelFile model(file.path());
  } catch (const ballast::Error&) {
  }
  return 0;
}
