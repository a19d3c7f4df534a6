#include "experiments/data/kv_capture.h"

#include <gtest/gtest.h>

#include "experiments/attention/head_attention.h"
#include "experiments/data/kv_file.h"
#include "model/reference_case.h"
#include "support.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

/// Reads all tokens, captures the layers, and returns each layer's outputs.
std::vector<Matrix> capture(const Model& model, std::span<const Token> tokens, std::size_t chunk,
                            const std::vector<std::size_t>& layers,
                            const std::filesystem::path& path) {
  const ModelConfig& c = model.config();
  std::vector<Matrix> outputs;
  for (std::size_t l = 0; l < c.layers; ++l) {
    outputs.emplace_back(tokens.size(), c.heads * c.value_dim);
  }
  KvCapture file(path, c, layers, TensorType::f32);
  Engine engine(model);
  Sequence sequence(model, {});
  PrefillOptions options;
  options.chunk = chunk;
  options.on_attention = [&](const AttentionStep& step) {
    file.add(step);
    for (std::size_t t = 0; t < step.outputs.rows; ++t) {
      std::ranges::copy(step.outputs[t], outputs[step.layer][step.first + t].begin());
    }
  };
  engine.prefill(sequence, tokens, options);
  file.write(attention_metadata(c));
  return outputs;
}

TEST(KvCapture, AttentionOfTheFileIsTheModels) {
  const test::ReferenceCase reference("llama");
  BALLAST_NEED_REFERENCE(reference);
  const Model model(reference.hf());
  const ModelConfig& c = model.config();
  const std::vector<std::size_t> all = {0, 1, 2};
  ASSERT_EQ(c.layers, all.size());
  TempDir dir;
  const std::vector<Matrix> outputs = capture(model, reference.tokens, 7, all, dir / "a");
  const KvFile file(dir / "a");
  const std::size_t tokens = reference.tokens.size();
  ASSERT_EQ(file.shape().tokens, tokens);
  ASSERT_EQ(file.shape().heads, c.heads);
  for (std::size_t l : all) {
    for (std::size_t h = 0; h < c.kv_heads; ++h) {
      const HeadAttention head(file, l, h, c.attention_scale);
      const std::size_t group = c.heads / c.kv_heads;
      const Matrix exact = head.exact(head.queries(0, tokens), tokens);
      for (std::size_t r = 0; r < exact.rows(); ++r) {
        const std::size_t query_head = h * group + r % group;
        for (std::size_t d = 0; d < c.value_dim; ++d) {
          ASSERT_NEAR(exact[r][d], outputs[l][r / group][query_head * c.value_dim + d], 1e-4)
              << "layer " << l << ", row " << r;
        }
      }
    }
  }
  // However the text is cut, the file is the same; a layer alone is the same layer.
  capture(model, reference.tokens, 100, all, dir / "b");
  EXPECT_EQ(read_text(dir / "a"), read_text(dir / "b"));
  capture(model, reference.tokens, 5, {1}, dir / "c");
  const KvFile one(dir / "c");
  EXPECT_EQ(one.layer_number(0), 1u);
  const Matrix a = one.read(KvSource::Part::key, 0, 0, 0, tokens);
  const Matrix b = file.read(KvSource::Part::key, 1, 0, 0, tokens);
  EXPECT_TRUE(std::equal(a.data(), a.data() + tokens * c.key_dim, b.data()));
  // Nothing is left beside the files.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 3);
}

TEST(KvCapture, ScaleAndSoftCapGoWithTheFile) {
  const test::ReferenceCase reference("gemma2");
  BALLAST_NEED_REFERENCE(reference);
  const Model model(reference.hf());
  const ModelConfig& c = model.config();
  ASSERT_GT(c.attention_softcap, 0);
  std::vector<std::size_t> layers;
  for (std::size_t l = 0; l < c.layers; ++l) {
    if (c.sliding_windows[l] == 0) layers.push_back(l);
  }
  ASSERT_FALSE(layers.empty());
  TempDir dir;
  const std::vector<Matrix> outputs = capture(model, reference.tokens, 9, layers, dir / "a");
  const KvFile file(dir / "a");
  EXPECT_FLOAT_EQ(file.logits().scale, c.attention_scale);
  EXPECT_FLOAT_EQ(file.logits().softcap, c.attention_softcap);
  const std::size_t tokens = reference.tokens.size(), group = c.heads / c.kv_heads;
  for (std::size_t h = 0; h < c.kv_heads; ++h) {
    const HeadAttention head(file, 0, h);
    const Matrix exact = head.exact(head.queries(0, tokens), tokens);
    for (std::size_t r = 0; r < exact.rows(); ++r) {
      for (std::size_t d = 0; d < c.value_dim; ++d) {
        ASSERT_NEAR(exact[r][d],
                    outputs[layers[0]][r / group][(h * group + r % group) * c.value_dim + d], 1e-4);
      }
    }
  }
}

TEST(KvCapture, ScoresGoWithTheFile) {
  const test::ReferenceCase reference("llama");
  BALLAST_NEED_REFERENCE(reference);
  const Model model(reference.hf());
  const ModelConfig& c = model.config();
  const std::size_t tokens = reference.tokens.size();
  TempDir dir;
  const auto write = [&](float last) {
    KvCapture capture(dir / "a", c, {0, 2}, TensorType::f32);
    Engine engine(model);
    Sequence sequence(model, {});
    PrefillOptions options;
    options.on_attention = [&](const AttentionStep& step) { capture.add(step); };
    engine.prefill(sequence, reference.tokens, options);
    for (std::size_t l : {0, 2}) {
      Matrix scores(c.kv_heads, tokens);
      for (std::size_t h = 0; h < c.kv_heads; ++h) {
        for (std::size_t t = 0; t < tokens; ++t) {
          scores[h][t] = static_cast<float>(1000 * l + 100 * h + t);
        }
      }
      scores[c.kv_heads - 1][tokens - 1] = last;
      capture.set_scores(l, std::move(scores));
    }
    EXPECT_THAT(test::error_of([&] { capture.set_scores(1, Matrix(1, 1)); }),
                HasSubstr("layer 1 is not captured"));
    auto metadata = attention_metadata(c);
    metadata["score"] = "plain";
    capture.write(metadata);
  };
  write(7);
  const KvFile file(dir / "a");
  EXPECT_EQ(file.score_name(), "plain");
  const std::vector<float> scores = file.scores(1, c.kv_heads - 1);
  ASSERT_EQ(scores.size(), tokens);
  EXPECT_EQ(scores[3], static_cast<float>(2000 + 100 * (c.kv_heads - 1) + 3));
  EXPECT_EQ(scores.back(), 7.0f);
  capture(model, reference.tokens, 9, {1}, dir / "b");
  EXPECT_TRUE(KvFile(dir / "b").scores(0, 0).empty());
  EXPECT_EQ(KvFile(dir / "b").score_name(), "");
  write(-1);
  EXPECT_THAT(test::error_of([&] { KvFile(dir / "a").scores(0, c.kv_heads - 1); }),
              HasSubstr("layer.0.scores"));
}

TEST(KvCapture, RefusesAttentionThatAFileCannotCarry) {
  ModelConfig c;
  c.layers = 2;
  c.sliding_windows = {16, 0};
  const std::vector<std::size_t> both = {0, 1}, second = {1};
  check_capturable(c, "m", both, 16);
  check_capturable(c, "m", second, 17);
  EXPECT_THAT(error_of([&] { check_capturable(c, "m", both, 17); }),
              HasSubstr("m: layer 0 attends to a sliding window of 16 tokens"));
  c.alibi_max_bias = 8;
  EXPECT_THAT(error_of([&] { check_capturable(c, "m", second, 1); }), HasSubstr("ALiBi"));
}

TEST(KvCapture, RefusesWhatCannotBe) {
  ModelConfig c;
  c.layers = 2;
  c.heads = c.kv_heads = 1;
  c.key_dim = c.value_dim = 4;
  TempDir dir;
  auto error = [&](const std::filesystem::path& path, std::vector<std::size_t> layers) {
    return error_of([&] { KvCapture(path, c, std::move(layers), TensorType::f16); });
  };
  EXPECT_EQ(error(dir / "x", {0, 2}),
            "there is no layer 2; the model has 2 that attend, counted from 0");
  EXPECT_THAT(error(dir / "x", {}), HasSubstr("no layer is to be captured"));
  EXPECT_THAT(error(dir / "no/x", {0}), HasSubstr("cannot create: No such file or directory"));
  KvCapture empty(dir / "x", c, {0}, TensorType::f16);
  EXPECT_THAT(error_of([&] { empty.write({}); }), HasSubstr("nothing was captured"));
  EXPECT_FALSE(std::filesystem::exists(dir / "x"));
}

}  // namespace
}  // namespace ballast
