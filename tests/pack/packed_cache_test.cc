#include <zlib.h>

#include <cstring>
#include <set>

#include "attention/rotary.h"
#include "ballast/pack.h"
#include "ballast/scoring.h"
#include "ballast/testing/support.h"
#include "pack/toy_basis.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using test::toy_basis;
using test::toy_rows;

CacheShape toy_shape() {
  CacheShape shape;
  shape.layers = 3;
  shape.kv_heads = 2;
  shape.queries_per_kv_head = 2;
  shape.key_dim = 16;
  shape.value_dim = 12;
  shape.logits.scale = 0.25f;
  shape.rotary = {{1.0f, 0.3f, 0.1f, 0.03f, 0.01f}, 1.25f, false};  // 6 elements do not turn
  return shape;
}

/// A cache whose keys before rotary positions, and values, are the rows.
Cache cache_of(const PackBasis& basis, const std::vector<Matrix>& rows, const CacheShape& shape,
               const CacheOptions& options) {
  Cache cache(shape, options);
  const std::size_t tokens = rows[0].rows(), kd = shape.kv_heads * shape.key_dim,
                    vd = shape.kv_heads * shape.value_dim;
  for (std::size_t layer = 0; layer < shape.layers; ++layer) {
    std::size_t g = 0;
    while (std::ranges::find(basis.groups[g].layers, layer) == basis.groups[g].layers.end()) ++g;
    const auto& layers = basis.groups[g].layers;
    const auto i = static_cast<std::size_t>(std::ranges::find(layers, layer) - layers.begin());
    const Rotary& rotary = shape.rotary_of(layer);
    Matrix keys(tokens, kd), values(tokens, vd);
    std::vector<float> table(2 * rotary.frequencies.size());
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto row = rows[g][t].subspan(i * basis.layer_width());
      std::ranges::copy(row.first(kd), keys[t].begin());
      std::ranges::copy(row.subspan(kd, vd), values[t].begin());
      rotation_at(rotary, static_cast<double>(t), table);
      if (options.positions == Positions::absolute) rotate(rotary, table, shape.key_dim, keys[t]);
    }
    cache.forward(layer, HeadsView::of(keys.view(), shape.kv_heads),
                  HeadsView::of(values.view(), shape.kv_heads), HeadsView{}, MutableHeadsView{});
  }
  return cache;
}

CacheOptions options_of(std::string_view policy, StorageType type = StorageType::f32) {
  CacheOptions out;
  out.policy = Policy::parse(policy);
  out.key_type = out.value_type = type;
  return out;
}

/// The keys and values of a head, token by token.
std::vector<float> elements(const Cache& cache, std::size_t layer, std::size_t head) {
  std::vector<float> out;
  for (const Segment& segment : cache.segments(layer, head)) {
    for (std::size_t i = 0; i < segment.keys.rows; ++i) {
      for (const RowsView* rows : {&segment.keys, &segment.values}) {
        out.resize(out.size() + rows->dim);
        rows->decode(i, std::span(out).last(rows->dim));
      }
    }
  }
  return out;
}

/// The largest difference of an element, over keys and values.
double difference(const Cache& a, const Cache& b) {
  double most = 0;
  for (std::size_t l = 0; l < a.shape().layers; ++l) {
    for (std::size_t h = 0; h < a.shape().kv_heads; ++h) {
      const auto x = elements(a, l, h), y = elements(b, l, h);
      EXPECT_EQ(x.size(), y.size());
      for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
        most = std::max(most, std::fabs(double{x[i]} - y[i]));
      }
    }
  }
  return most;
}

/// The answer of the last layer to a token that comes next.
Matrix answer(const Cache& cache) {
  Cache copy = cache.clone();
  const CacheShape& s = cache.shape();
  Matrix out(1, s.kv_heads * s.queries_per_kv_head * s.value_dim);
  for (std::size_t l = 0; l < s.layers; ++l) {
    const Matrix keys = test::random_matrix(1, s.kv_heads * s.key_dim, 50 + l);
    const Matrix values = test::random_matrix(1, s.kv_heads * s.value_dim, 60 + l);
    const Matrix queries =
        test::random_matrix(1, s.kv_heads * s.queries_per_kv_head * s.key_dim, 70 + l, 0.3f);
    copy.forward(l, keys.view(), values.view(), queries.view(), out.view());
  }
  return out;
}

struct Packed {
  PackBasis basis;
  PackCodec codec;
  explicit Packed(const test::ToySize& size = {})
      : basis(toy_basis(size)), codec(std::make_shared<const PackBasis>(basis)) {}
};

constexpr PackPreset kFine = {8, 0.02f, 0.001f};

TEST(PackedCache, GoesOnLikeTheCacheThatWasPacked) {
  for (bool pairs : {false, true}) {
    for (StorageType type : {StorageType::f32, StorageType::bf16, StorageType::q4}) {
      for (Positions positions : {Positions::absolute, Positions::rolling}) {
        test::ToySize size;
        size.directions = 168;  // all there are, so that nothing but rounding is lost
        const Packed toy(size);
        CacheShape shape = toy_shape();
        shape.rotary.pairs = pairs;
        if (positions == Positions::absolute) {
          shape.rotations = {shape.rotary, {{0.7f, 0.2f}, 1.0f, pairs}, {}};
        }
        CacheOptions options = options_of("exact", type);
        options.positions = positions;
        Cache cache = cache_of(toy.basis, toy_rows(toy.basis, 400), shape, options);
        cache.finish_prompt();
        const auto file = pack(cache, toy.codec, kFine, "a note");
        const Cache back = unpack(file, "file", toy.codec);
        EXPECT_EQ(back.tokens(), 400u);
        EXPECT_EQ(back.options().key_type, type);
        EXPECT_EQ(back.options().positions, positions);
        const double allowed = type == StorageType::f32 ? 0.3 : type == StorageType::bf16 ? 0.6 : 6;
        EXPECT_LT(difference(cache, back), allowed) << to_string(type) << ' ' << pairs;
        if (type == StorageType::q4) continue;
        const Matrix a = answer(cache), b = answer(back);
        for (std::size_t i = 0; i < a.cols(); ++i) EXPECT_NEAR(a[0][i], b[0][i], 0.1);
      }
    }
  }
}

TEST(PackedCache, LaterTokensComeBehindTheirBeginning) {
  test::ToySize size;
  size.directions = 168;
  const Packed toy(size);
  for (Positions positions : {Positions::absolute, Positions::rolling}) {
    CacheOptions options = options_of("exact");
    options.positions = positions;
    Cache cache = cache_of(toy.basis, toy_rows(toy.basis, 400), toy_shape(), options);
    cache.finish_prompt();
    const auto whole = pack(cache, toy.codec, kFine),
               later = pack(cache, toy.codec, kFine, {}, 256);
    EXPECT_LT(later.size(), whole.size());
    EXPECT_EQ(PackedFile::parse(later, "file").first, 256u);
    EXPECT_THAT(error_of([&] { unpack(later, "file", toy.codec); }),
                testing::HasSubstr("from token 256 on"));
    Cache back = cache.clone();
    EXPECT_THAT(error_of([&] { unpack_behind(back, later, "file", toy.codec); }),
                testing::HasSubstr("from token 256, not from 400"));
    back.truncate(256);
    unpack_behind(back, later, "file", toy.codec);
    EXPECT_EQ(back.tokens(), 400u);
    EXPECT_LT(difference(cache, back), 0.3);
  }
}

TEST(PackedCache, IsSmallAndSaysWhatItIs) {
  const Packed toy;
  Cache cache = cache_of(toy.basis, toy_rows(toy.basis, 2000), toy_shape(), options_of("exact"));
  cache.finish_prompt();
  const PackPreset preset = toy.basis.presets[0];
  const auto file = pack(cache, toy.codec, preset, "a note");
  EXPECT_LT(file.size() * 6, cache.to_bytes().size());
  EXPECT_TRUE(is_packed(file));
  EXPECT_FALSE(is_packed(cache.to_bytes()));
  const PackedFile said = PackedFile::parse(file, "file");
  EXPECT_EQ(said.preset, preset);
  EXPECT_EQ(said.tokens, 2000u);
  EXPECT_EQ(said.note, "a note");
  EXPECT_EQ(said.basis, toy.basis.hash());
  EXPECT_EQ(said.shape.rotary, toy_shape().rotary);
}

TEST(PackedCache, IsUnpackedIntoWhateverCacheIsAskedFor) {
  const Packed toy;
  Cache cache = cache_of(toy.basis, toy_rows(toy.basis, 600), toy_shape(), options_of("exact"));
  cache.finish_prompt();
  const auto file = pack(cache, toy.codec, kFine);
  const CacheOptions q4 = options_of("exact", StorageType::q4);
  const Cache small = unpack(file, "file", toy.codec, &q4);
  EXPECT_EQ(small.options().key_type, StorageType::q4);
  EXPECT_LT(small.bytes().total() * 4, cache.bytes().total());
  const CacheOptions keydiff = options_of("keydiff:budget=100");
  EXPECT_EQ(unpack(file, "file", toy.codec, &keydiff).entries(), 100u);
  for (const char* method : {"snapkv:budget=100", "replay:bytes=1/8"}) {
    const CacheOptions other = options_of(method);
    EXPECT_THAT(error_of([&] { unpack(file, "file", toy.codec, &other); }),
                testing::HasSubstr("which a packed cache does not have"))
        << method;
  }
}

// Scores come from rows: those that a cache would have been given, had it read the same rows.
TEST(PackedCache, AnEighthIsChosenByScoresOfTheRows) {
  test::ToySize size;
  size.groups = {{0, 2}, {1}};
  size.directions = 168;
  const Packed toy(size);
  const auto rows = toy_rows(toy.basis, 800);
  Cache cache = cache_of(toy.basis, rows, toy_shape(), options_of("exact"));
  cache.finish_prompt();
  const auto file = pack(cache, toy.codec, kFine);
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    CacheOptions options = options_of("calibrated:bytes=1/4", StorageType::bf16);
    options.protocol = protocol;
    const Cache small = unpack(file, "file", toy.codec, &options);
    EXPECT_EQ(small.tokens(), 800u);
    EXPECT_LT(small.entries(), 800u);
    if (protocol == Protocol::stream) continue;  // which has room for a chunk besides
    EXPECT_LE(small.bytes().used(), 800u * 3 * 2 * 28 * 2 / 4);
    // The same division from scores in float64.
    CacheOptions counted = options;
    Cache given = Cache(toy_shape(), counted);
    const Cache whole = unpack(file, "file", toy.codec);
    for (std::size_t l = 0; l < 3; ++l) {
      const std::size_t g = l == 1 ? 1 : 0, i = l == 2 ? 1 : 0;
      const PackGroup& group = toy.basis.groups[g];
      Matrix keys(800, 32), values(800, 24), scores(800, 2);
      for (std::size_t h = 0; h < 2; ++h) {
        std::size_t t = 0;
        for (const Segment& segment : whole.segments(l, h)) {
          for (std::size_t r = 0; r < segment.keys.rows; ++r, ++t) {
            segment.keys.decode(r, keys[t].subspan(h * 16, 16));
            segment.values.decode(r, values[t].subspan(h * 12, 12));
          }
        }
      }
      for (std::size_t t = 0; t < 800; ++t) {
        std::vector<double> v(group.width());
        for (std::size_t c = 0; c < v.size(); ++c) v[c] = double{rows[g][t][c]} - group.mean[c];
        v = test::times_metric(toy.basis, group, v, false);
        for (std::size_t h = 0; h < 2; ++h) {
          double sum = group.score_offsets[2 * i + h];
          for (std::size_t k = 0; k < group.directions(); ++k) {
            double y = 0;
            for (std::size_t c = 0; c < v.size(); ++c) y += v[c] * test::direction(group, k, c);
            sum += y * group.score_weights[(2 * i + h) * group.directions() + k];
          }
          scores[t][h] = static_cast<float>(std::exp(sum));
        }
      }
      given.forward(l, HeadsView::of(keys.view(), 2), HeadsView::of(values.view(), 2), HeadsView{},
                    MutableHeadsView{});
      scoring_of(given).note_scores(l, scores.view());
    }
    given.finish_prompt();
    std::size_t both = 0, kept = 0;
    for (std::size_t l = 0; l < 3; ++l) {
      for (std::size_t h = 0; h < 2; ++h) {
        std::set<Position> a, b;
        for (const KeptEntry& e : small.kept(l, h)) a.insert(e.position);
        for (const KeptEntry& e : given.kept(l, h)) b.insert(e.position);
        kept += b.size();
        for (Position p : a) both += b.count(p);
      }
    }
    EXPECT_GT(both * 100, kept * 97);
  }
}

TEST(PackedCache, WithoutScoresAnEighthIsRefusedWithTheRemedy) {
  test::ToySize size;
  size.scores = false;
  const Packed toy(size);
  Cache cache = cache_of(toy.basis, toy_rows(toy.basis, 300), toy_shape(), options_of("exact"));
  cache.finish_prompt();
  const auto file = pack(cache, toy.codec, kFine);
  const CacheOptions options = options_of("calibrated:bytes=1/8");
  EXPECT_THAT(error_of([&] { unpack(file, "file", toy.codec, &options); }),
              testing::HasSubstr("ballast calibrate"));
}

TEST(PackedCache, GroupsOfLayersMayLieApart) {
  test::ToySize size;
  size.groups = {{0, 2}, {1}};
  size.directions = 168;
  const Packed toy(size);
  Cache cache = cache_of(toy.basis, toy_rows(toy.basis, 200), toy_shape(), options_of("exact"));
  cache.finish_prompt();
  EXPECT_LT(difference(cache, unpack(pack(cache, toy.codec, kFine), "file", toy.codec)), 0.3);
}

TEST(PackedCache, RecurrentStatesAreKeptAsTheyAre) {
  const Packed toy;
  CacheShape shape = toy_shape();
  shape.recurrent = {5, 7};
  Cache cache = cache_of(toy.basis, toy_rows(toy.basis, 100), shape, options_of("exact"));
  for (std::size_t l : {0, 1}) {
    for (std::size_t i = 0; i < shape.recurrent[l]; ++i) {
      cache.recurrent()->state(l)[i] = static_cast<float>(10 * l + i) + 0.1f;
    }
    cache.recurrent()->advance(l, 100);
  }
  cache.recurrent()->keep();
  cache.finish_prompt();
  Cache back = unpack(pack(cache, toy.codec, kFine), "file", toy.codec);
  ASSERT_NE(back.recurrent(), nullptr);
  for (std::size_t l : {0, 1}) {
    EXPECT_TRUE(std::ranges::equal(back.recurrent()->state(l), cache.recurrent()->state(l)));
  }
  EXPECT_EQ(back.recurrent()->reachable(100), 100u);
}

TEST(PackedCache, CachesWithoutAllTokensAreRefused) {
  const Packed toy;
  const auto rows = toy_rows(toy.basis, 300);
  Cache cache = cache_of(toy.basis, rows, toy_shape(), options_of("streaming-llm:budget=60"));
  cache.finish_prompt();
  EXPECT_THAT(error_of([&] { pack(cache, toy.codec, kFine); }),
              testing::HasSubstr("entries of 300 tokens"));
  CacheShape other = toy_shape();
  other.kv_heads = 1;
  EXPECT_THAT(error_of([&] { pack(Cache(other, options_of("exact")), toy.codec, kFine); }),
              testing::HasSubstr("cannot be packed with a basis of"));
}

TEST(PackedCache, DamagedAndForeignFilesAreRefused) {
  const Packed toy;
  Cache cache = cache_of(toy.basis, toy_rows(toy.basis, 60), toy_shape(), options_of("exact"));
  cache.finish_prompt();
  const auto good = pack(cache, toy.codec, kFine, "note");
  const auto error = [&](const std::vector<std::byte>& file) {
    return error_of([&] { unpack(file, "f", toy.codec); });
  };
  EXPECT_EQ(error(good), "");
  EXPECT_EQ(error(cache.to_bytes()), "f: not a packed cache");
  EXPECT_EQ(error({}), "f: not a packed cache");
  auto other = good;
  other[good.size() / 2] ^= std::byte{4};
  EXPECT_THAT(error(other), testing::HasSubstr("f: damaged"));
  other = good;
  other.resize(good.size() - 7);
  EXPECT_THAT(error(other), testing::HasSubstr("f: damaged"));
  other = good;
  other[8] = std::byte{7};
  EXPECT_THAT(error(other), testing::HasSubstr("version 7"));
  test::ToySize size;
  size.directions = 90;
  EXPECT_THAT(error_of([&] { unpack(good, "f", Packed(size).codec); }),
              testing::HasSubstr("packed with another basis"));
  EXPECT_THAT(error_of([&] { Cache::parse(good, "f"); }), testing::HasSubstr("not a saved"));
}

TEST(PackedCache, MutatedFilesWithARightChecksumDoNoHarm) {
  test::ToySize size;
  size.directions = 20;
  const Packed toy(size);
  CacheShape shape = toy_shape();
  shape.recurrent = {5};
  Cache cache = cache_of(toy.basis, toy_rows(toy.basis, 150), shape, options_of("exact"));
  cache.recurrent()->advance(0, 150);
  cache.finish_prompt();
  const auto good = pack(cache, toy.codec, kFine, "note");
  std::mt19937_64 random(2);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    auto other = good;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      // Settings and counts lie in front.
      const std::size_t at = 8 + random() % (random() % 3 == 0 ? other.size() - 12 : 900);
      other[at] = random() % 3 == 0 ? std::byte{0xff} : static_cast<std::byte>(random());
    }
    if (random() % 10 == 0) other.resize(12 + random() % (other.size() - 12));
    const auto crc = static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(other.data()), other.size() - 4));
    std::memcpy(other.data() + other.size() - 4, &crc, 4);
    const std::string said = error_of([&] {
      if (PackedFile::parse(other, "f").tokens > 10'000) return;
      Cache back = unpack(other, "f", toy.codec);
      back.clone();
    });
    refused += said.empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 300);
}

TEST(PackedCache, FilesAppearWhole) {
  const Packed toy;
  Cache cache = cache_of(toy.basis, toy_rows(toy.basis, 30), toy_shape(), options_of("exact"));
  const TempDir folder;
  save_packed(folder / "a", cache, toy.codec, kFine, "n");
  const std::string text = read_text(folder / "a");
  const auto file = pack(cache, toy.codec, kFine, "n");
  EXPECT_EQ(text, std::string(reinterpret_cast<const char*>(file.data()), file.size()));
  EXPECT_NE(error_of([&] { save_packed(folder / "none/a", cache, toy.codec, kFine); }), "");
}

}  // namespace
}  // namespace ballast
