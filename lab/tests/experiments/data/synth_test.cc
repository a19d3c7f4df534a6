#include "experiments/data/synth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "ballast/engine/safetensors.h"
#include "ballast/threads.h"
#include "experiments/attention/kv_stats.h"
#include "experiments/data/kv_file.h"
#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using Part = KvSource::Part;
using ::testing::HasSubstr;

double mean_norm(const Matrix& rows, const std::vector<double>& shift) {
  double sum = 0;
  for (std::size_t t = 0; t < rows.rows(); ++t) {
    double squares = 0;
    for (std::size_t c = 0; c < rows.cols(); ++c) {
      squares += (rows[t][c] - shift[c]) * (rows[t][c] - shift[c]);
    }
    sum += std::sqrt(squares);
  }
  return sum / static_cast<double>(rows.rows());
}

std::vector<double> mean_of(const Matrix& rows) {
  std::vector<double> mean(rows.cols(), 0.0);
  for (std::size_t t = 0; t < rows.rows(); ++t) {
    for (std::size_t c = 0; c < rows.cols(); ++c) {
      mean[c] += rows[t][c] / static_cast<double>(rows.rows());
    }
  }
  return mean;
}

std::vector<float> flat(const Matrix& m) { return {m.data(), m.data() + m.rows() * m.cols()}; }

SynthOptions small() {
  SynthOptions o;
  o.tokens = 4096;
  o.heads = 4;
  return o;
}

TEST(Synth, HasThePapersNorms) {
  const Synth synth(small());
  for (std::size_t h = 0; h < 2; ++h) {
    const Matrix keys = synth.read(Part::key, 0, h, 0, 4096);
    const std::vector<double> zero(128, 0.0);
    EXPECT_NEAR(mean_norm(keys, mean_of(keys)), 15.5, 0.3);
    EXPECT_GT(mean_norm(keys, zero), 17);  // the mean that is to be subtracted is there
    EXPECT_NEAR(mean_norm(synth.read(Part::value, 0, h, 0, 4096), zero), 3.3, 0.05);
    EXPECT_NEAR(mean_norm(synth.read(Part::query, 0, 2 * h, 0, 4096), zero), 15, 0.1);
  }
}

TEST(Synth, NormsAreWhatIsAskedForAtAnyDimension) {
  for (std::size_t dim : {32u, 64u, 256u}) {
    SynthOptions o = small();
    o.dim = dim;
    o.query_norm = 5;
    o.key_norm = 7;
    o.value_norm = 1;
    const Synth synth(o);
    const Matrix keys = synth.read(Part::key, 0, 0, 0, 4096);
    const std::vector<double> zero(dim, 0.0);
    EXPECT_NEAR(mean_norm(keys, mean_of(keys)), 7, 0.35) << dim;
    EXPECT_NEAR(mean_norm(synth.read(Part::value, 0, 0, 0, 4096), zero), 1, 0.03) << dim;
    EXPECT_NEAR(mean_norm(synth.read(Part::query, 0, 0, 0, 4096), zero), 5, 0.1) << dim;
  }
}

TEST(Synth, AttentionIsNeitherUniformNorOneHot) {
  const KvLayerStats stats = measure_layer(Synth(small()), 0);
  EXPECT_GT(stats.first4, 0.15);
  EXPECT_LT(stats.first4, 0.65);
  EXPECT_GT(stats.effective, 10);
  EXPECT_LT(stats.effective, 1000);
  EXPECT_GT(stats.last256, 2 * 256.0 / 3072);  // what is near gets more than its part
  EXPECT_LT(stats.largest, 0.4);
}

TEST(Synth, KeysOfAClusterAreNearAndClustersPersist) {
  const Synth synth(small());
  const Matrix keys = synth.read(Part::key, 0, 0, 0, 4096);
  const std::vector<double> mean = mean_of(keys);
  double same = 0, other = 0;
  std::size_t sames = 0, others = 0, repeats = 0;
  std::map<std::size_t, std::size_t> counts;
  for (std::size_t t = 4; t + 1 < 4096; ++t) {
    ++counts[synth.cluster(0, t)];
    repeats += synth.cluster(0, t) == synth.cluster(0, t + 1);
    const std::size_t u = 4 + (t * 997) % 4000;
    if (t == u || t == synth.needle() || u == synth.needle()) continue;
    double dot = 0;
    for (std::size_t c = 0; c < 128; ++c) dot += (keys[t][c] - mean[c]) * (keys[u][c] - mean[c]);
    const bool equal = synth.cluster(0, t) == synth.cluster(0, u);
    (equal ? same : other) += dot;
    ++(equal ? sames : others);
  }
  ASSERT_GT(sames, 20u);
  EXPECT_NEAR(same / static_cast<double>(sames), 0.6 * 15.5 * 15.5, 40);
  EXPECT_NEAR(other / static_cast<double>(others), 0, 12);
  // Drawn independently, 64 long-tailed clusters would repeat in about one of 25 places.
  EXPECT_GT(static_cast<double>(repeats), 0.2 * 4096);
  EXPECT_GT(counts.size(), 30u);
}

TEST(Synth, TheLastQueryOfTheLastHeadFindsTheNeedle) {
  SynthOptions o = small();
  o.needle = 0.25;
  const Synth synth(o);
  EXPECT_EQ(synth.needle(), 1023u);
  const Matrix keys = synth.read(Part::key, 0, 1, 0, 4096);
  const Matrix query = synth.read(Part::query, 0, 3, 4095, 1);
  std::vector<double> logits(4096);
  double sum = 0;
  for (std::size_t t = 0; t < 4096; ++t) {
    for (std::size_t c = 0; c < 128; ++c) logits[t] += double{keys[t][c]} * query[0][c];
    logits[t] /= std::sqrt(128.0);
  }
  for (double s : logits) sum += std::exp(s - logits[1023]);
  EXPECT_GT(1 / sum, 0.9);

  o.needle = -1;
  EXPECT_EQ(Synth(o).needle(), 4096u);
  EXPECT_NE(flat(Synth(o).read(Part::query, 0, 3, 4095, 1)), flat(query));
}

TEST(Synth, IsAFunctionOfSeedAndPlace) {
  const Synth synth(small());
  SynthOptions o = small();
  o.seed = 1;
  const Synth other(o);
  const int before = threads();
  for (Part part : {Part::query, Part::key, Part::value}) {
    const auto whole = flat(synth.read(part, 0, 1, 0, 600));
    set_threads(1);
    const auto piece = flat(synth.read(part, 0, 1, 300, 200));
    set_threads(before);
    EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + 300 * 128));
    EXPECT_NE(flat(other.read(part, 0, 1, 0, 600)), whole);
    EXPECT_NE(flat(synth.read(part, 0, 0, 0, 600)), whole);
  }
}

TEST(Synth, WritesWhatItReads) {
  SynthOptions o;
  o.tokens = 300;
  o.layers = 2;
  o.heads = 2;
  o.kv_heads = 1;
  o.dim = 6;
  o.clusters = 3;
  o.needle = 0.5;
  const Synth synth(o);
  TempDir dir;
  double last = 0;
  write_synth(synth, dir / "s", TensorType::f32, [&](double done) { last = done; });
  EXPECT_DOUBLE_EQ(last, 1);
  const KvFile file(dir / "s");
  for (std::size_t l = 0; l < 2; ++l) {
    EXPECT_EQ(flat(file.read(Part::query, l, 1, 0, 300)),
              flat(synth.read(Part::query, l, 1, 0, 300)));
    EXPECT_EQ(flat(file.read(Part::value, l, 0, 0, 300)),
              flat(synth.read(Part::value, l, 0, 0, 300)));
  }
  const Safetensors plain(dir / "s");
  EXPECT_EQ(plain.metadata().at("needle_position"), "149");

  write_synth(synth, dir / "half", TensorType::bf16);
  EXPECT_EQ(Safetensors(dir / "half").at("layer.1.k").type, TensorType::bf16);
}

TEST(Synth, SmallestSizes) {
  for (std::size_t tokens : {1u, 2u, 5u}) {
    SynthOptions o;
    o.tokens = tokens;
    o.heads = o.kv_heads = o.dim = o.clusters = 1;
    const Synth synth(o);
    for (Part part : {Part::query, Part::key, Part::value}) {
      for (float x : flat(synth.read(part, 0, 0, 0, tokens))) EXPECT_TRUE(std::isfinite(x));
    }
  }
}

TEST(Synth, RefusesImpossibleSizes) {
  auto error = [](auto change) {
    SynthOptions o;
    change(o);
    return test::error_of([&] { Synth synth(o); });
  };
  EXPECT_THAT(error([](auto& o) { o.tokens = 0; }), HasSubstr("synth: 0 tokens"));
  EXPECT_THAT(error([](auto& o) { o.dim = 257; }), HasSubstr("a head dimension of 257"));
  EXPECT_THAT(error([](auto& o) { o.heads = 3; }), HasSubstr("3 query heads for 2 KV heads"));
  EXPECT_THAT(error([](auto& o) { o.kv_heads = 0; }), HasSubstr("for 0 KV heads"));
  EXPECT_THAT(error([](auto& o) { o.layers = 0; }), HasSubstr("0 layers"));
  EXPECT_THAT(error([](auto& o) { o.clusters = 0; }), HasSubstr("0 clusters"));
  EXPECT_THAT(error([](auto& o) { o.needle = 1.5; }), HasSubstr("needle's place is 1.5"));
  EXPECT_THAT(error([](auto& o) { o.key_norm = NAN; }), HasSubstr("a norm of nan"));
}

}  // namespace
}  // namespace ballast
