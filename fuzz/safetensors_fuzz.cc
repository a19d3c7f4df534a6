// Any bytes either load as a safetensors file or give an Error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "ballast/engine/safetensors.h"
#include "ballast/error.h"
#include "memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ballast::MemoryFile file({reinterpret_cast<const char*>(data), size});
  try {
    ballast::Safetensors tensors(file.path());
    for (const ballast::TensorView& tensor : tensors.tensors()) (void)ballast::to_float(tensor);
  } catch (const ballast::Error&) {
  }
  return 0;
}
