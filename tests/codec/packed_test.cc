// Chunks that are packed with a model's basis.
#include <gmock/gmock.h>
#include <zlib.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ballast/codec.h"
#include "ballast/pack.h"
#include "pack/toy_basis.h"
#include "storage/round.h"
#include "support.h"

namespace ballast {
namespace {

using test::code_of, test::error_of;

constexpr std::size_t kLayers = 3, kHeads = 2, kKey = 16, kValue = 12;
constexpr std::size_t kLayerWidth = kHeads * (kKey + kValue);

CacheShape toy_shape() {
  CacheShape shape;
  shape.layers = kLayers;
  shape.kv_heads = kHeads;
  shape.key_dim = kKey;
  shape.value_dim = kValue;
  shape.rotary.frequencies = {1.0f, 0.31f, 0.097f, 0.0293f, 0.0083f, 0.00071f};
  return shape;
}

std::shared_ptr<const PackBasis> basis() {
  static const auto made = std::make_shared<const PackBasis>(test::toy_basis());
  return made;
}

/// Keys and values of float32, a matrix of tokens for each layer.
struct Tensors {
  std::vector<Matrix> keys, values;

  explicit Tensors(std::size_t tokens) {
    for (std::size_t l = 0; l < kLayers; ++l) {
      keys.emplace_back(tokens, kHeads * kKey);
      values.emplace_back(tokens, kHeads * kValue);
    }
  }
  std::size_t tokens() const { return keys[0].rows(); }
  static std::vector<MutableHeadsView> views(std::vector<Matrix>& of) {
    std::vector<MutableHeadsView> out;
    for (Matrix& m : of) out.push_back(MutableHeadsView::of(m.view(), kHeads));
    return out;
  }
};

/// Rows of the basis, keys turned in float64 as those of tokens from `position` on.
Tensors tensors_of(const Matrix& rows, double position) {
  Tensors out(rows.rows());
  const std::vector<float> frequencies = toy_shape().rotary.frequencies;
  for (std::size_t t = 0; t < rows.rows(); ++t) {
    for (std::size_t l = 0; l < kLayers; ++l) {
      const std::span<const float> x = rows[t].subspan(l * kLayerWidth, kLayerWidth);
      for (std::size_t h = 0; h < kHeads; ++h) {
        const std::span<const float> from = x.subspan(h * kKey, kKey);
        const std::span<float> to = out.keys[l][t].subspan(h * kKey, kKey);
        std::ranges::copy(from, to.begin());
        for (std::size_t f = 0; f < frequencies.size(); ++f) {
          const double angle = (position + double(t)) * double{frequencies[f]};
          const double a = from[f], b = from[f + frequencies.size()];
          to[f] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
          to[f + frequencies.size()] =
              static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
        }
      }
      std::ranges::copy(x.subspan(kHeads * kKey), out.values[l][t].begin());
    }
  }
  return out;
}

std::vector<std::byte> encoded(const Codec& codec, Tensors& from, std::int64_t position = -1) {
  const auto keys = Tensors::views(from.keys), values = Tensors::views(from.values);
  const std::vector<HeadsView> k(keys.begin(), keys.end()), v(values.begin(), values.end());
  std::vector<std::byte> out(codec.bound(from.tokens()));
  out.resize(codec.encode(k, v, out, position));
  return out;
}

Tensors decoded(const Codec& codec, std::span<const std::byte> chunk, std::size_t tokens) {
  Tensors out(tokens);
  codec.decode(chunk, Tensors::views(out.keys), Tensors::views(out.values));
  return out;
}

double most_difference(const Tensors& a, const Tensors& b) {
  double most = 0;
  for (std::size_t l = 0; l < kLayers; ++l) {
    for (const auto& [x, y] : {std::pair(&a.keys[l], &b.keys[l]), {&a.values[l], &b.values[l]}}) {
      for (std::size_t i = 0; i < x->rows() * x->cols(); ++i) {
        most = std::max(most, std::fabs(double{x->data()[i]} - double{y->data()[i]}));
      }
    }
  }
  return most;
}

TEST(PackedChunks, DecodeToTheRowsOfPackingTurnedToTheirPlace) {
  constexpr std::size_t kTokens = 500, kPosition = 12'345;
  for (const auto& [preset, step] : {std::pair("pack-16", 0.25f), std::pair("pack-32", 0.5f)}) {
    const std::vector<Matrix> rows = test::toy_rows(*basis(), kTokens);
    Tensors from = tensors_of(rows[0], kPosition);
    const Codec codec(toy_shape(), preset, "toy", basis());
    const auto chunk = encoded(codec, from, kPosition);
    EXPECT_EQ(Codec::inspect(chunk).position, kPosition);
    EXPECT_LT(chunk.size(), codec.bound(kTokens) / 2);

    const PackCodec packing(basis());
    const PackedRows packed = packing.encode(kTokens, test::rows_of(rows), step);
    Matrix back(kTokens, rows[0].cols());
    packing.decode(packed, 0, 0, back.view());
    // A number on the edge of a step may be rounded otherwise behind keys that were turned twice.
    Tensors expected = tensors_of(back, kPosition);
    const Tensors found = decoded(codec, chunk, kTokens);
    std::size_t same = 0, all = 0;
    for (std::size_t l = 0; l < kLayers; ++l) {
      for (std::size_t t = 0; t < kTokens; ++t, ++all) {
        double most = 0;
        for (std::size_t i = 0; i < kHeads * kKey; ++i) {
          most = std::max(most, std::fabs(double{found.keys[l][t][i] - expected.keys[l][t][i]}));
        }
        same += most < 1e-2 ? 1 : 0;
      }
    }
    EXPECT_GT(same, all * 95 / 100) << preset;
  }
}

TEST(PackedChunks, APlaceThatIsNotKnownIsFound) {
  const Codec codec(toy_shape(), "pack-16", "toy", basis());
  for (std::int64_t position : {0, 256, 256 * 29, 256 * 311}) {
    Tensors from = tensors_of(test::toy_rows(*basis(), 256)[0], double(position));
    const auto chunk = encoded(codec, from);
    EXPECT_EQ(Codec::inspect(chunk).position, position);
    EXPECT_EQ(most_difference(decoded(codec, chunk, 256),
                              decoded(codec, encoded(codec, from, position), 256)),
              0);
  }
}

TEST(PackedChunks, NoneIsLargerThanItsRows) {
  const Codec codec(toy_shape(), "pack-16", "toy", basis());
  for (std::size_t tokens : {0, 1, 5, 13}) {
    Tensors from = tensors_of(test::toy_rows(*basis(), tokens)[0], 0);
    const auto chunk = encoded(codec, from, 0);
    EXPECT_LE(chunk.size(), codec.bound(tokens));
    EXPECT_LT(most_difference(decoded(codec, chunk, tokens), from), 0.2) << tokens;
  }
  // Nothing that the basis knows: larger if it was packed.
  Tensors noise(20);
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal;
  for (std::size_t l = 0; l < kLayers; ++l) {
    for (Matrix* m : {&noise.keys[l], &noise.values[l]}) {
      for (std::size_t i = 0; i < m->rows() * m->cols(); ++i) {
        m->data()[i] = kernels::bf16_decode(kernels::bf16_encode(1e6f * normal(random)));
      }
    }
  }
  const auto chunk = encoded(codec, noise, 0);
  EXPECT_EQ(chunk.size(), codec.bound(20));
  EXPECT_EQ(most_difference(decoded(codec, chunk, 20), noise), 0);
}

TEST(PackedChunks, ForeignAndDamagedOnesAreRefused) {
  const Codec codec(toy_shape(), "pack-16", "toy", basis());
  Tensors from = tensors_of(test::toy_rows(*basis(), 300)[0], 0);
  const auto good = encoded(codec, from, 0);
  PackBasis changed = *basis();
  changed.groups[0].mean[0] += 1;
  const Codec other(toy_shape(), "pack-16", "toy", std::make_shared<const PackBasis>(changed));
  EXPECT_THAT(error_of([&] { decoded(other, good, 300); }), testing::HasSubstr("another model"));
  const Codec smaller(toy_shape(), "pack-32", "toy", basis());
  EXPECT_THAT(error_of([&] { decoded(smaller, good, 300); }), testing::HasSubstr("preset"));

  std::mt19937_64 random(4);
  int refused = 0;
  for (int i = 0; i < 1000; ++i) {
    auto bad = good;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      bad[72 + random() % (bad.size() - 72)] = static_cast<std::byte>(random());
    }
    const auto crc = static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(bad.data()) + 16, bad.size() - 16));
    std::memcpy(bad.data() + 12, &crc, 4);
    try {
      decoded(codec, bad, 300);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_file) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 20);
}

TEST(PackedChunks, NeedABasisOfAllLayersAndHeads) {
  EXPECT_THAT(error_of([&] { Codec(toy_shape(), "pack-16", "toy"); }),
              testing::HasSubstr("ballast calibrate"));
  CacheShape rank = toy_shape();
  rank.kv_heads = 1;
  EXPECT_THAT(error_of([&] { Codec(rank, "pack-16", "toy", basis()); }),
              testing::HasSubstr("packed together"));
  PackBasis bare = *basis();
  bare.presets.clear();
  EXPECT_THAT(error_of([&] {
                Codec(toy_shape(), "pack-16", "toy", std::make_shared<const PackBasis>(bare));
              }),
              testing::HasSubstr("no preset of 1/16"));
}

}  // namespace
}  // namespace ballast
