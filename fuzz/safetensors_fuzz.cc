// Any bytes either load as a safetensors file or give an Error.
#include "ballast/engine/safetensors.h"

#include <algorithm>
#include <vector>

#include "ballast/error.h"
#include "memory_file.h"
#include "target.h"

namespace {

void write_again(const ballast::Safetensors& file) {
  const ballast::TempFile place("again.safetensors", "");
  std::vector<ballast::SafetensorsWriter::Declaration> all;
  for (const ballast::TensorView& tensor : file.tensors())
    all.push_back({tensor.name, tensor.type, tensor.shape});
  ballast::SafetensorsWriter writer(place.path(), all, file.metadata());
  std::size_t number = 0;
  for (const ballast::TensorView& tensor : file.tensors()) {
    if (++number % 2 != 0) {
      writer.write(tensor.data);
    } else {
      writer.write(ballast::to_float(tensor));
    }
  }
  writer.commit();
  const ballast::Safetensors again(place.path());
  BALLAST_FUZZ_CHECK(again.metadata() == file.metadata() && again.files().size() == 1);
  for (std::size_t i = 0; i < all.size(); i += 2) {
    const auto &one = file.tensors()[i], &other = again.at(all[i].name);
    BALLAST_FUZZ_CHECK(one.shape == other.shape && std::ranges::equal(one.data, other.data));
  }
}

void read_tensors(std::string_view input) {
  ballast::MemoryFile file(input);
  try {
    ballast::Safetensors tensors(file.path());
    for (const ballast::TensorView& tensor : tensors.tensors()) (void)ballast::to_float(tensor);
    if (input.size() % 4 == 0) write_again(tensors);
  } catch (const ballast::Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(safetensors, read_tensors)
