// A Hugging Face config.json.
#include "ballast/engine/model_config.h"
#include "ballast/error.h"
#include "memory_file.h"
#include "target.h"

namespace {

void read(std::string_view input) {
  ballast::MemoryFile file(input);
  try {
    (void)ballast::read_config(file.path());
  } catch (const ballast::Error&) {
  }
}

}  // namespace

BALLAST_FUZZ_TARGET(config_json, read)
