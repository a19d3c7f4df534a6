// Any bytes either load as a safetensors file or give an Error.
#include "ballast/engine/safetensors.h"

#include "ballast/error.h"
#include "memory_file.h"
#include "target.h"

namespace {

void read_tensors(std::string_view input) {
  ballast::MemoryFile file(input);
  try {
    ballast::Safetensors tensors(file.path());
    for (const ballast::TensorView& tensor : tensors.tensors()) (void)ballast::to_float(tensor);
  } catch (const ballast::Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(safetensors, read_tensors)
