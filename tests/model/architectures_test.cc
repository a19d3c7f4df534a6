// Every architecture, from a Hugging Face folder and from a GGUF file, against the float64
// reference.
#include <cmath>
#include <cstring>

#include "model/reference_case.h"

namespace ballast {
namespace {

using test::all_logits;
using test::largest_difference;
using test::ReferenceCase;

class Architectures : public testing::TestWithParam<const char*> {};

void expect_reference_logits(const std::filesystem::path& path, const ReferenceCase& reference) {
  const Model model(path);
  Engine engine(model);
  ASSERT_EQ(engine.vocabulary(), reference.vocabulary);
  CacheOptions options;
  options.expected_tokens = reference.tokens.size();
  Sequence sequence(model, options);
  const std::vector<float> logits = all_logits(engine, sequence, reference.tokens);
  EXPECT_LT(largest_difference(logits, reference.logits), 1e-3) << path;
}

TEST_P(Architectures, GivesTheReferenceLogits) {
  const ReferenceCase reference(GetParam());
  BALLAST_NEED_REFERENCE(reference);
  expect_reference_logits(reference.hf(), reference);
  // GGUF files of the llama architecture cannot say that only some layers slide.
  if (!reference.has_gguf() || GetParam() == std::string("ministral")) return;
  expect_reference_logits(reference.gguf(), reference);
}

INSTANTIATE_TEST_SUITE_P(, Architectures,
                         testing::Values("llama", "llama-tied-wide", "llama-linear", "llama31",
                                         "llama-wide", "mistral", "mistral-sliding", "ministral",
                                         "qwen2", "qwen2-yarn", "qwen3", "gemma2", "phi3",
                                         "phi3-short", "phi3-long", "opt", "neox",
                                         "neox-sequential", "mpt", "mpt-clip"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

}  // namespace
}  // namespace ballast
