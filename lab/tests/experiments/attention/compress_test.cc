#include "experiments/attention/compress.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ballast/engine/safetensors.h"
#include "experiments/data/synth.h"
#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using Part = KvSource::Part;

Synth source(std::size_t tokens = 700) {
  SynthOptions o;
  o.tokens = tokens;  // 700: more than one piece
  o.layers = 2;
  o.heads = 4;
  o.dim = 8;
  o.query_norm = o.key_norm = 4;
  return Synth(o);
}

CacheOptions options(const std::string& method, Protocol protocol = Protocol::prefill) {
  CacheOptions o;
  o.policy = Policy::parse(method);
  o.protocol = protocol;
  return o;
}

TEST(Compress, WritesTheRowsAndWeightsThatTheCacheKeeps) {
  const Synth kv = source();
  const Compressed result = compress(kv, options("balancekv:rate=0.25"), 32);
  ASSERT_EQ(result.layers.size(), 2u);
  EXPECT_GT(result.layers[0].error, 1e-3);
  EXPECT_LT(result.layers[0].error, 1);
  EXPECT_GE(result.layers[0].worst, result.layers[0].error);

  TempDir dir;
  write_kept(result.cache, kv, dir / "kept");
  const Safetensors file(dir / "kept");
  EXPECT_EQ(file.metadata().at("method"), "balancekv:rate=0.25");
  for (std::size_t l = 0; l < 2; ++l) {
    for (std::size_t h = 0; h < 2; ++h) {
      const std::string name = fmt::format("layer.{}.head.{}.", l, h);
      const TensorView& positions = file.at(name + "positions");
      EXPECT_EQ(positions.type, TensorType::i32);
      const auto at = to_float(positions), weights = to_float(file.at(name + "weights")),
                 keys = to_float(file.at(name + "k")), values = to_float(file.at(name + "v"));
      EXPECT_EQ(at.size(), result.layers[l].entries);
      EXPECT_TRUE(std::is_sorted(at.begin(), at.end()));
      EXPECT_EQ(to_float(file.at(name + "normaliser_weights")), weights);
      double sum = 0;
      for (float w : weights) sum += w;
      EXPECT_NEAR(sum, 700, 0.5);  // consistent weights stand for every token
      const Matrix all_keys = kv.read(Part::key, l, h, 0, 700);
      const Matrix all_values = kv.read(Part::value, l, h, 0, 700);
      for (std::size_t i = 0; i < at.size(); ++i) {
        const auto t = static_cast<std::size_t>(at[i]);
        for (std::size_t c = 0; c < 8; ++c) {
          ASSERT_EQ(keys[i * 8 + c], all_keys[t][c]);
          ASSERT_EQ(values[i * 8 + c], all_values[t][c]);
        }
      }
    }
  }
}

TEST(Compress, ExactHasNoError) {
  const Compressed result = compress(source(), options("exact"), 1000);
  EXPECT_EQ(result.queries, 700u);
  EXPECT_EQ(result.layers[1].entries, 700u);
  EXPECT_LT(result.layers[1].worst, 1e-5);
}

/// A source with scores of a replay pass: every seventh token is worth keeping.
class ScoredSource : public Synth {
 public:
  ScoredSource() : Synth(source(280)) {}
  std::string score_name() const override { return "max"; }
  std::vector<float> scores(std::size_t layer, std::size_t kv_head) const override {
    std::vector<float> out(280, 0.0f);
    for (std::size_t t = layer + 2 * kv_head; t < 280; t += 7) out[t] = 1.0f;
    return out;
  }
};

TEST(Compress, ReplayTakesTheScoresOfTheSource) {
  const ScoredSource kv;
  const Compressed result =
      compress(kv, options("replay:bytes=0.25,sink=0,window=0,tiers=f32"), 32);
  EXPECT_EQ(result.scores, "max");
  // f32 in a quarter of the bytes of bf16: less than every seventh token.
  for (std::size_t l = 0; l < 2; ++l) {
    for (std::size_t h = 0; h < 2; ++h) {
      EXPECT_GT(result.cache.kept(l, h).size(), 20u);
      for (const KeptEntry& e : result.cache.kept(l, h)) {
        EXPECT_EQ(static_cast<std::size_t>(e.position) % 7, l + 2 * h);
      }
    }
  }
  const Compressed other = compress(kv, options("replay:bytes=0.25,score=rms"), 32);
  EXPECT_EQ(other.scores, "self-attention");
  EXPECT_LT(other.layers[0].error, 1);
  EXPECT_THROW(compress(kv, options("replay:bytes=0.25", Protocol::stream), 32), Error);
}

TEST(Compress, EveryMethodInBothProtocols) {
  const Synth kv = source(260);
  for (const MethodInfo* info : methods()) {
    if (info->global_budget) continue;  // tests/cache/replay_test.cc
    if (info->window_policy == WindowPolicy::all) continue;
    for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      const auto method = std::string(info->name) + ":budget=160,sink=4";
      const Compressed result = compress(kv, options(method, protocol), 32);
      EXPECT_TRUE(std::isfinite(result.layers[1].error)) << method;
      EXPECT_GT(result.layers[1].error, 0) << method;
      EXPECT_LE(result.layers[0].entries + result.layers[1].entries, 2 * 160u) << method;
      TempDir dir;
      write_kept(result.cache, kv, dir / "kept");
      EXPECT_NO_THROW(Safetensors(dir / "kept")) << method;
    }
  }
}

}  // namespace
}  // namespace ballast
