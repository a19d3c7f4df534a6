#include "experiments/data/random_model.h"

#include <gmock/gmock.h>

#include "ballast/engine/model.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using testing::HasSubstr;

const std::string kTiny =
    "layers=2,width=64,heads=4,kv=2,head=32,hidden=96,vocabulary=300,positions=400,type=q8_0";

std::string complaint(const std::string& text) {
  return error_of([&] { parse_random_model(text); });
}

TEST(RandomModel, SaysWhatItWasToldAndKeepsTheRest) {
  EXPECT_EQ(to_string(parse_random_model(kTiny)), kTiny);
  EXPECT_EQ(to_string(parse_random_model("")), to_string(RandomModel()));
  RandomModel other;
  other.layers = 3;
  other.type = TensorType::q4_k;
  EXPECT_EQ(to_string(parse_random_model("type=Q4_K,layers=3")), to_string(other));
}

TEST(RandomModel, SaysWhatIsWrong) {
  EXPECT_THAT(complaint("depth=3"), HasSubstr("'depth'; known: layers"));
  EXPECT_THAT(complaint("layers=0"), HasSubstr("layers=0: expected a number from 1"));
  EXPECT_THAT(complaint("layers=2x"), HasSubstr("layers=2x"));
  EXPECT_THAT(complaint("layers"), HasSubstr("layers="));
  EXPECT_THAT(complaint("type=q9"), HasSubstr("'q9'; known: f32"));
  EXPECT_THAT(complaint("heads=6,kv=4"), HasSubstr("6 heads and kv=4"));
  EXPECT_THAT(complaint("head=33"), HasSubstr("head=33"));
  EXPECT_THAT(complaint("width=96,type=q4_k"), HasSubstr("rows of 96"));
}

TEST(RandomModel, IsAModelOfItsSizesInEveryType) {
  const TempDir dir;
  for (const char* type : {"f32", "f16", "bf16", "q8_0", "q4_0", "q5_1", "q4_k", "q6_k"}) {
    RandomModel sizes = parse_random_model(kTiny + ",width=256,head=64,hidden=512");
    sizes = parse_random_model(to_string(sizes) + ",type=" + type);
    write_random_model(sizes, dir / "model.gguf");
    const Model model(dir / "model.gguf");
    const ModelConfig& c = model.config();
    EXPECT_EQ(c.layers, 2u);
    EXPECT_EQ(c.width, 256u);
    EXPECT_EQ(c.heads, 4u);
    EXPECT_EQ(c.kv_heads, 2u);
    EXPECT_EQ(c.key_dim, 64u);
    EXPECT_EQ(c.ffn_width, 512u);
    EXPECT_EQ(c.vocabulary, 300u);
    EXPECT_EQ(c.max_positions, 400u);
    EXPECT_EQ(model.file().at(Weight::query, 1).type, sizes.type);
    Engine engine(model);
    Sequence sequence(model, {});
    const std::vector<Token> tokens = {1, 40, 299};
    double squares = 0;
    for (float logit : engine.prefill(sequence, tokens)) {
      ASSERT_TRUE(std::isfinite(logit));
      squares += logit * logit;
    }
    // Of normed activations by rows of length 1, so that numbers neither vanish nor grow.
    EXPECT_GT(squares / 300, 0.2) << type;
    EXPECT_LT(squares / 300, 5.0) << type;
  }
}

TEST(RandomModel, HasAVocabularyThatReadsAnyText) {
  const TempDir dir;
  write_random_model(parse_random_model(kTiny), dir / "model.gguf");
  const Tokenizer tokenizer(read_vocabulary(Gguf(dir / "model.gguf")));
  EXPECT_EQ(tokenizer.size(), 300u);
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("A box.")), "A box.");
}

TEST(RandomModel, IsTheSameEveryTime) {
  const TempDir dir;
  write_random_model(parse_random_model(kTiny), dir / "a");
  write_random_model(parse_random_model(kTiny), dir / "b");
  EXPECT_EQ(read_text(dir / "a"), read_text(dir / "b"));
}

}  // namespace
}  // namespace ballast
