// Packed contexts among the methods that experiments compare.
#include "experiments/data/packed_variant.h"

#include <gmock/gmock.h>

#include "experiments/data/samples.h"
#include "model/identity_basis.h"
#include "paths.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using testing::HasSubstr;

TEST(PackedVariant, AnswersFromWhatComesBackOfTheFile) {
  const TempDir dir;
  const Model model(
      test::model_with_basis(BALLAST_SOURCE_DIR "/models/ballast-mini.gguf", dir.path()));
  const Tokenizer tokenizer(read_vocabulary(dir.path() / "model.gguf"));
  const auto methods = make_variants({"exact", "packed:1/4", "packed:1/16"}, {.caches = {"1/8"}}, 1,
                                     0, StorageType::bf16, StorageType::bf16);
  ASSERT_EQ(methods.size(), 3u);  // a packed context has its own size
  EXPECT_TRUE(methods[1].storage_only());
  EXPECT_FALSE(is_baseline(methods[1]));
  Sample sample;
  for (std::size_t i = 0; i < 40; ++i) sample.context += "line digital-crystal: 17 boxes. ";
  sample.question = " How many boxes?";
  Engine engine(model);
  PromptRunner runner(engine, tokenizer, {.question_later = true});
  const std::vector<Answered> answers = runner.ask(sample, methods);
  EXPECT_LT(answers[1].bytes, answers[0].bytes);
  EXPECT_LT(answers[2].bytes, answers[1].bytes);
  EXPECT_GT(answers[1].made, 0u);
  EXPECT_EQ(answers[1].entries, answers[0].entries);
  const auto fails = [&](const std::string& form, Protocol protocol) {
    PromptRunner other(engine, tokenizer, {.protocol = protocol});
    return error_of([&] {
      other.ask(sample,
                make_variants({"packed:" + form}, {}, 1, 0, StorageType::bf16, StorageType::bf16));
    });
  };
  EXPECT_THAT(fails("1/17", Protocol::prefill), HasSubstr("1/4, 1/16"));
  EXPECT_THAT(fails("1/16", Protocol::stream), HasSubstr("--protocol prefill"));
}

}  // namespace
}  // namespace ballast
