// A folder in Hugging Face's layout: its model and its vocabulary load, or give an Error. Input:
// the files below one after another, an empty one for what is not there.
#include <filesystem>
#include <fstream>

#include "ballast/engine/model_file.h"
#include "ballast/engine/tokenizer.h"
#include "ballast/error.h"
#include "memory_file.h"
#include "parts.h"
#include "target.h"
#include "use_model.h"
#include "use_tokenizer.h"

namespace {

constexpr const char* kFiles[] = {"model.safetensors",   "model.safetensors.index.json",
                                  "tokenizer.json",      "tokenizer.model",
                                  "vocab.json",          "merges.txt",
                                  "chat_template.jinja", "tokenizer_config.json"};
constexpr std::size_t kParts = 1 + std::size(kFiles);

void read_folder(std::string_view input) {
  const auto parts = ballast::fuzz::parts_of(input, kParts);
  const ballast::TempFile config("config.json", parts[0]);
  const std::filesystem::path folder = config.path().parent_path();
  for (std::size_t i = 1; i < kParts; ++i) {
    if (parts[i].empty()) continue;
    std::ofstream(folder / kFiles[i - 1], std::ios::binary)
        .write(parts[i].data(), static_cast<std::streamsize>(parts[i].size()));
  }
  ballast::fuzz::use_model(folder);
  try {
    ballast::fuzz::use(ballast::Tokenizer(ballast::read_vocabulary(folder)), parts[7]);
  } catch (const ballast::Error&) {
  }
}

std::string mutate_file(const std::string& input, std::uint32_t seed) {
  return ballast::fuzz::mutate_part(input, seed, kParts);
}

}  // namespace

BALLAST_FUZZ_TARGET(folder, read_folder, mutate_file)
