// Every architecture, from a Hugging Face folder and from a GGUF file, against the float64
// reference.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/reference_case.h"

namespace ballast {
namespace {

using test::all_logits;
using test::largest_difference;
using test::ReferenceCase;

class Architectures : public testing::TestWithParam<const char*> {};
class Families : public testing::TestWithParam<const char*> {};

void expect_reference_logits(const std::filesystem::path& path, const ReferenceCase& reference,
                             double most = 1e-3) {
  const Model model(path);
  Engine engine(model);
  ASSERT_EQ(engine.vocabulary(), reference.vocabulary);
  CacheOptions options;
  options.expected_tokens = reference.tokens.size();
  Sequence sequence(model, options);
  const std::vector<float> logits = all_logits(engine, sequence, reference.tokens);
  EXPECT_LT(largest_difference(logits, reference.logits), most) << path;
}

TEST_P(Architectures, GivesTheReferenceLogits) {
  const ReferenceCase reference(GetParam());
  BALLAST_NEED_REFERENCE(reference);
  expect_reference_logits(reference.hf(), reference);
  // GGUF files of the llama architecture cannot say that only some layers slide.
  if (!reference.has_gguf() || GetParam() == std::string("ministral")) return;
  expect_reference_logits(reference.gguf(), reference);
}

TEST_P(Families, GiveTheLogitsOfTransformers) {
  const ReferenceCase reference(GetParam());
  BALLAST_NEED_REFERENCE(reference);
  expect_reference_logits(reference.hf(), reference, 1e-4);
  if (reference.has_gguf()) expect_reference_logits(reference.gguf(), reference, 1e-4);
}

/// Experts in MXFP4 are multiplied as integers, activations too.
TEST(FamiliesMxfp4, AreReadFromAFolder) {
  const ReferenceCase reference("gpt-oss-mxfp4");
  BALLAST_NEED_REFERENCE(reference);
  expect_reference_logits(reference.gguf(), reference, 1e-4);
  expect_reference_logits(reference.hf(), reference, 0.05);
  const ModelFile folder(reference.hf()), numbers(reference.gguf());
  for (Weight weight : {Weight::expert_gate, Weight::expert_up, Weight::expert_down}) {
    EXPECT_EQ(folder.find(weight, 1, Part::weight, 2)->type, TensorType::fp4);
    EXPECT_EQ(to_float(*folder.find(weight, 1, Part::weight, 2)),
              to_float(*numbers.find(weight, 1, Part::weight, 2)));
  }
}

std::string test_name(const testing::TestParamInfo<const char*>& info) {
  std::string name = info.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, Architectures,
                         testing::Values("llama", "llama-tied-wide", "llama-linear", "llama31",
                                         "llama-wide", "mistral", "mistral-sliding", "ministral",
                                         "qwen2", "qwen2-yarn", "qwen3", "gemma2", "phi3",
                                         "phi3-short", "phi3-long", "opt", "neox",
                                         "neox-sequential", "mpt", "mpt-clip"),
                         test_name);

INSTANTIATE_TEST_SUITE_P(, Families,
                         testing::Values("gemma3", "gemma3-linear", "gemma3-pictures", "smollm3",
                                         "granite", "granite4", "olmo2", "olmo3", "cohere2", "glm4",
                                         "internlm2", "internlm3", "starcoder2", "exaone4",
                                         "exaone4-plain", "seed-oss", "hunyuan", "ernie45",
                                         "mistral3", "phi4-mini", "gpt2", "mixtral", "qwen3-moe",
                                         "olmoe", "gpt-oss", "lfm2", "lfm2-bias", "lfm2-moe",
                                         "qwen35", "qwen2-moe", "qwen35-moe", "qwen3-next", "glm45",
                                         "granite-moe", "granite4-moe"),
                         test_name);

}  // namespace
}  // namespace ballast
