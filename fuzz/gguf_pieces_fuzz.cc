// Two files that claim to be a model in two pieces load as one, or give an Error. Input: the size
// of the first as 32 bits, the first, the second.
#include <fstream>

#include "ballast/engine/gguf.h"
#include "ballast/error.h"
#include "memory_file.h"
#include "target.h"
#include "use_model.h"

namespace {

void read_pieces(std::string_view input) {
  std::uint32_t size = 0;
  if (input.size() < sizeof size) return;
  std::memcpy(&size, input.data(), sizeof size);
  input.remove_prefix(sizeof size);
  const std::string_view first = input.substr(0, size), second = input.substr(first.size());
  const ballast::TempFile file("m-00001-of-00002.gguf", first);
  std::ofstream(file.path().parent_path() / "m-00002-of-00002.gguf", std::ios::binary)
      .write(second.data(), static_cast<std::streamsize>(second.size()));
  try {
    ballast::Gguf whole(file.path());
    whole.join_pieces();
    for (const ballast::TensorView& tensor : whole.tensors()) (void)ballast::to_float(tensor);
  } catch (const ballast::Error&) {
  }
  ballast::fuzz::use_model(file.path());
}

}  // namespace

BALLAST_FUZZ_TARGET(gguf_pieces, read_pieces)
