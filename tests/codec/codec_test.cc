#include "ballast/codec.h"

#include <gmock/gmock.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "ballast/threads.h"
#include "storage/rotated_reference.h"
#include "support.h"

namespace ballast {
namespace {

using test::code_of, test::error_of;

struct Size {
  std::size_t layers = 2, kv_heads = 2, key_dim = 64, value_dim = 64;
};

CacheShape shape_of(const Size& size, bool turns = true, bool pairs = false) {
  CacheShape shape;
  shape.layers = size.layers;
  shape.kv_heads = size.kv_heads;
  shape.key_dim = size.key_dim;
  shape.value_dim = size.value_dim;
  if (turns) {
    shape.rotary.pairs = pairs;
    for (std::size_t f = 0; f < size.key_dim / 2; f += 1 + f / 8) {  // some elements do not turn
      shape.rotary.frequencies.push_back(
          std::pow(1e-4f, static_cast<float>(2 * f) / static_cast<float>(size.key_dim)));
    }
  }
  return shape;
}

/// Keys and values [layer][token][head][dim] of one element type.
struct Tensors {
  CacheShape shape;
  ElementType type;
  std::size_t tokens;
  std::vector<std::vector<std::byte>> keys, values;

  Tensors(const CacheShape& s, ElementType t, std::size_t n) : shape(s), type(t), tokens(n) {
    for (std::size_t l = 0; l < s.layers; ++l) {
      keys.emplace_back(n * s.kv_heads * s.key_dim * element_bytes(t));
      values.emplace_back(n * s.kv_heads * s.value_dim * element_bytes(t));
    }
  }
  std::vector<MutableHeadsView> views(std::vector<std::vector<std::byte>>& of, std::size_t dim) {
    std::vector<MutableHeadsView> out;
    for (auto& layer : of) {
      out.push_back(MutableHeadsView::token_major(layer.data(), type, tokens, shape.kv_heads, dim));
    }
    return out;
  }
  std::vector<MutableHeadsView> key_views() { return views(keys, shape.key_dim); }
  std::vector<MutableHeadsView> value_views() { return views(values, shape.value_dim); }
};

std::vector<HeadsView> read_only(const std::vector<MutableHeadsView>& views) {
  return {views.begin(), views.end()};
}

float bf16(std::uint16_t word) { return std::bit_cast<float>(std::uint32_t{word} << 16); }

double element(const MutableHeadsView& view, std::size_t t, std::size_t h, std::size_t i) {
  const void* row = view.at(t, h);
  if (view.type == ElementType::f32) return static_cast<const float*>(row)[i];
  const auto word = static_cast<const std::uint16_t*>(row)[i];
  if (view.type == ElementType::bf16) return bf16(word);
  const double fraction = word & 0x3ff, exponent = word >> 10 & 31;
  const double size = exponent == 0 ? std::ldexp(fraction, -24)
                                    : std::ldexp(1024 + fraction, static_cast<int>(exponent) - 25);
  return (word & 0x8000) != 0 ? -size : size;
}

void set_element(const MutableHeadsView& view, std::size_t t, std::size_t h, std::size_t i,
                 float x) {
  void* row = view.at(t, h);
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if (view.type == ElementType::f32) {
    static_cast<float*>(row)[i] = x;
  } else if (view.type == ElementType::bf16) {
    static_cast<std::uint16_t*>(row)[i] = static_cast<std::uint16_t>(bits >> 16);
  } else {  // normal numbers only, truncated
    const std::uint32_t word =
        (bits >> 16 & 0x8000) | (((bits >> 23 & 255) - 112) << 10) | (bits >> 13 & 0x3ff);
    static_cast<std::uint16_t*>(row)[i] =
        std::fabs(x) < 1e-4f ? 0 : static_cast<std::uint16_t>(word);
  }
}

struct Turn {
  std::size_t partner;
  double cosine, sine;
};
/// (R_n x)[i] = x[i] cosine + x[partner] sine.
Turn turn_of(const Rotary& rotary, std::size_t i, double n) {
  const std::size_t pairs = rotary.frequencies.size();
  const std::size_t f = rotary.pairs ? i / 2 : i % std::max<std::size_t>(pairs, 1);
  if (i >= 2 * pairs) return {i, 1, 0};
  const bool first = rotary.pairs ? i % 2 == 0 : i < pairs;
  const std::size_t partner = rotary.pairs ? (first ? i + 1 : i - 1)
                              : first      ? i + pairs
                                           : i - pairs;
  const double angle = n * double{rotary.frequencies[f]};
  return {partner, std::cos(angle), first ? -std::sin(angle) : std::sin(angle)};
}

/// Keys about R_n times one large vector, as those of Qwen are, values about another; token 3 is
/// far from all others.
Tensors random_tensors(const CacheShape& shape, ElementType type, std::size_t tokens,
                       std::uint64_t seed = 1, double begin = 0) {
  Tensors out(shape, type, tokens);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (int side : {0, 1}) {
    const auto views = side == 0 ? out.key_views() : out.value_views();
    for (std::size_t l = 0; l < shape.layers; ++l) {
      for (std::size_t h = 0; h < shape.kv_heads; ++h) {
        std::vector<double> mean(views[l].dim);
        for (double& x : mean) x = 10 * normal(random);
        for (std::size_t t = 0; t < tokens; ++t) {
          for (std::size_t i = 0; i < mean.size(); ++i) {
            const Turn turn = side == 0
                                  ? turn_of(shape.rotary_of(l), i, begin + static_cast<double>(t))
                                  : Turn{i, 1, 0};
            const double about = mean[i] * turn.cosine + mean[turn.partner] * turn.sine;
            const double x = about + (t == 3 ? 40 : 1) * normal(random);
            set_element(views[l], t, h, i, static_cast<float>(x));
          }
        }
      }
    }
  }
  return out;
}

std::vector<std::byte> encoded(const Codec& codec, Tensors& from, std::int64_t position = -1) {
  std::vector<std::byte> out(codec.bound(from.tokens));
  out.resize(
      codec.encode(read_only(from.key_views()), read_only(from.value_views()), out, position));
  return out;
}

Tensors decoded(const Codec& codec, std::span<const std::byte> chunk, std::size_t tokens,
                ElementType type = ElementType::f32) {
  Tensors out(codec.shape(), type, tokens);
  codec.decode(chunk, out.key_views(), out.value_views());
  return out;
}

/// The relative squared error about the turned mean of what differs.
double loss(const Tensors& a, const Tensors& b, int side) {
  Tensors x = a, y = b;
  const auto from = side == 0 ? x.key_views() : x.value_views();
  const auto to = side == 0 ? y.key_views() : y.value_views();
  double lost = 0;
  std::size_t count = 0;
  for (std::size_t l = 0; l < from.size(); ++l) {
    for (std::size_t t = 0; t < a.tokens; ++t) {
      for (std::size_t h = 0; h < from[l].heads; ++h) {
        for (std::size_t i = 0; i < from[l].dim; ++i, ++count) {
          const double d = element(from[l], t, h, i) - element(to[l], t, h, i);
          lost += d * d;
        }
      }
    }
  }
  return lost / static_cast<double>(count);
}

/// Reads a chunk as the comments of chunk_head.h, fast.h and storage/rotated.h say, in float64.
class Reference {
 public:
  Reference(const CacheShape& shape, StorageType value_type, std::span<const std::byte> chunk,
            std::size_t tokens)
      : shape_(shape), types_{StorageType::q4, value_type}, chunk_(chunk), tokens_(tokens) {
    keys.resize(shape.layers);
    values.resize(shape.layers);
    for (std::size_t l = 0; l < shape.layers; ++l) {
      keys[l].resize(tokens * shape.kv_heads * shape.key_dim);
      values[l].resize(tokens * shape.kv_heads * shape.value_dim);
      for (std::size_t first = 0; first < tokens; first += 256) {
        for (int side : {0, 1})
          read_section(l, first, std::min<std::size_t>(256, tokens - first), side);
      }
    }
    read_far();
    end = at_;
  }
  std::vector<std::vector<double>> keys, values;
  std::size_t end = 0, far = 0;

 private:
  struct Section {
    std::size_t layer, first;
    int side;
  };
  std::uint16_t word() {
    std::uint16_t out = 0;
    std::memcpy(&out, chunk_.data() + at_, 2);
    at_ += 2;
    return out;
  }
  double& element(const Section& s, std::size_t t, std::size_t h, std::size_t i) {
    const std::size_t dim = s.side == 0 ? shape_.key_dim : shape_.value_dim;
    return (s.side == 0 ? keys : values)[s.layer][((s.first + t) * shape_.kv_heads + h) * dim + i];
  }
  void read_section(std::size_t layer, std::size_t first, std::size_t count, int side) {
    const Section s{layer, first, side};
    sections_.push_back(s);
    const std::size_t dim = side == 0 ? shape_.key_dim : shape_.value_dim;
    const StorageType type = types_[side];
    const test::Code* code = std::ranges::find(test::kCodes, type, &test::Code::type);
    auto words = test::integer_words(*code);
    std::ranges::sort(words);
    const auto r = test::rotation(dim);
    for (std::size_t h = 0; h < shape_.kv_heads; ++h) {
      std::vector<double> mean(dim), scales(count), c(dim);
      for (double& x : mean) x = bf16(word());
      for (double& x : scales) x = bf16(word());
      for (std::size_t t = 0; t < count; ++t) {
        const auto codes = chunk_.subspan(at_, row_bytes(type, dim));
        at_ += codes.size();
        for (std::size_t i = 0; i < dim; ++i) c[i] = words[test::code_at(type, codes, dim, i)];
        for (std::size_t j = 0; j < dim; ++j) {
          const Turn turn = side == 0 ? turn_of(shape_.rotary_of(layer), j, static_cast<double>(t))
                                      : Turn{j, 1, 0};
          double x = mean[j] * turn.cosine + mean[turn.partner] * turn.sine;
          for (std::size_t i = 0; i < dim; ++i) x += r[i][j] * scales[t] * c[i];
          element(s, t, h, j) = x;
        }
      }
    }
  }
  void read_far() {
    std::vector<std::size_t> counts;
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      counts.push_back(std::to_integer<std::size_t>(chunk_[at_++]));
    }
    std::vector<std::pair<std::size_t, std::size_t>> rows;
    for (std::size_t i = 0; i < sections_.size(); ++i) {
      for (std::size_t n = 0; n < counts[i]; ++n) {
        rows.emplace_back(i, std::to_integer<std::size_t>(chunk_[at_++]));
      }
    }
    far = rows.size();
    for (const auto& [i, t] : rows) {
      const std::size_t dim = sections_[i].side == 0 ? shape_.key_dim : shape_.value_dim;
      for (std::size_t h = 0; h < shape_.kv_heads; ++h) {
        for (std::size_t j = 0; j < dim; ++j) element(sections_[i], t, h, j) = bf16(word());
      }
    }
  }

  const CacheShape& shape_;
  StorageType types_[2];
  std::span<const std::byte> chunk_;
  std::size_t tokens_, at_ = 72;
  std::vector<Section> sections_;
};

struct Preset {
  const char* name;
  StorageType values;
  double error;  ///< of values, relative and squared
};
constexpr Preset kPresets[] = {{"fast-4", StorageType::q4, 0.0095},
                               {"fast-3", StorageType::q3, 0.0345},
                               {"fast-2", StorageType::q2, 0.1175}};

TEST(Codec, DecodesWhatTheFormulasSay) {
  for (const Preset& preset : kPresets) {
    for (const Size& size : {Size{2, 2, 64, 64}, Size{1, 1, 128, 96}, Size{1, 2, 80, 36},
                             Size{1, 1, 256, 128}, Size{1, 1, 32, 6}}) {
      for (bool pairs : {false, true}) {
        const CacheShape shape = shape_of(size, true, pairs);
        const Codec codec(shape, preset.name, "m");
        const std::size_t tokens = size.key_dim == 64 ? 300 : 40;
        Tensors from = random_tensors(shape, ElementType::f32, tokens);
        const auto chunk = encoded(codec, from);
        const Reference reference(shape, preset.values, chunk, tokens);
        EXPECT_EQ(reference.end, chunk.size());
        EXPECT_GE(reference.far, 2 * shape.layers);  // token 3
        Tensors back = decoded(codec, chunk, tokens);
        for (int side : {0, 1}) {
          const auto views = side == 0 ? back.key_views() : back.value_views();
          const auto& expected = side == 0 ? reference.keys : reference.values;
          for (std::size_t l = 0; l < shape.layers; ++l) {
            const std::size_t n = tokens * views[l].heads * views[l].dim;
            for (std::size_t i = 0; i < n; ++i) {
              ASSERT_NEAR(static_cast<const float*>(views[l].data)[i], expected[l][i], 2e-4)
                  << preset.name << ' ' << size.key_dim << ' ' << side << ' ' << i;
            }
          }
        }
      }
    }
  }
}

TEST(Codec, ErrorsAreThoseOfTheTypes) {
  const CacheShape shape = shape_of({2, 2, 128, 64});
  for (const Preset& preset : kPresets) {
    const Codec codec(shape, preset.name);
    Tensors from = random_tensors(shape, ElementType::f32, 256);
    const Tensors back = decoded(codec, encoded(codec, from), 256);
    EXPECT_LT(loss(from, back, 0), 0.0095 * 1.05);  // rows are of variance 1 about their mean
    EXPECT_LT(loss(from, back, 1),
              preset.error * 1.15);  // and a little more, by the scale of values
    EXPECT_GT(loss(from, back, 1), preset.error * 0.8);
  }
}

TEST(Codec, PositionsNeedNotBeKnown) {
  const CacheShape shape = shape_of({1, 2, 64, 64});
  const Codec codec(shape, "fast-4");
  Tensors from = random_tensors(shape, ElementType::f32, 256, 1, 5000);
  EXPECT_LT(loss(from, decoded(codec, encoded(codec, from), 256), 0), 0.0095 * 1.05);
  const Codec plain(shape_of({1, 2, 64, 64}, false), "fast-4");  // a mean that does not turn
  EXPECT_GT(loss(from, decoded(plain, encoded(plain, from), 256), 0), 0.1);
}

TEST(Codec, TokensFarFromTheMeanAreExact) {
  const CacheShape shape = shape_of({1, 1, 64, 64});
  const Codec codec(shape, "fast-2");
  Tensors from = random_tensors(shape, ElementType::bf16, 256);
  Tensors back = decoded(codec, encoded(codec, from), 256, ElementType::bf16);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(element(back.key_views()[0], 3, 0, i), element(from.key_views()[0], 3, 0, i));
    EXPECT_EQ(element(back.value_views()[0], 3, 0, i), element(from.value_views()[0], 3, 0, i));
  }
}

TEST(Codec, TakesAndGivesEveryElementType) {
  const CacheShape shape = shape_of({1, 2, 64, 64});
  const Codec codec(shape, "fast-4");
  for (ElementType type : {ElementType::f32, ElementType::f16, ElementType::bf16}) {
    Tensors from = random_tensors(shape, type, 100);
    const auto chunk = encoded(codec, from);
    for (ElementType to : {ElementType::f32, ElementType::f16, ElementType::bf16}) {
      const double rounding = to == ElementType::bf16 ? 4e-3 : 0;  // of elements up to 30
      EXPECT_LT(loss(from, decoded(codec, chunk, 100, to), 0), 0.0115 + rounding);
    }
  }
}

TEST(Codec, ReadsAndWritesHeadsWhereverTheyLie) {
  const CacheShape shape = shape_of({1, 3, 64, 64});
  const Codec codec(shape, "fast-3");
  const std::size_t tokens = 50;
  Tensors from = random_tensors(shape, ElementType::bf16, tokens);
  const auto expected = encoded(codec, from);
  Tensors moved(shape, ElementType::bf16, tokens);  // [head][token][dim]
  auto major = [&](std::vector<std::vector<std::byte>>& of) {
    return std::vector{
        MutableHeadsView::head_major(of[0].data(), ElementType::bf16, tokens, 3, 64)};
  };
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t h = 0; h < 3; ++h) {
      std::memcpy(major(moved.keys)[0].at(t, h), from.key_views()[0].at(t, h), 128);
      std::memcpy(major(moved.values)[0].at(t, h), from.value_views()[0].at(t, h), 128);
    }
  }
  std::vector<std::byte> chunk(codec.bound(tokens));
  chunk.resize(codec.encode(read_only(major(moved.keys)), read_only(major(moved.values)), chunk));
  EXPECT_EQ(chunk, expected);
  Tensors back(shape, ElementType::bf16, tokens),
      plain = decoded(codec, chunk, tokens, ElementType::bf16);
  codec.decode(chunk, major(back.keys), major(back.values));
  for (std::size_t t = 0; t < tokens; ++t) {
    EXPECT_EQ(std::memcmp(major(back.keys)[0].at(t, 2), plain.key_views()[0].at(t, 2), 128), 0);
  }
}

TEST(Codec, BytesAreBoundedAndDoNotDependOnThreads) {
  const CacheShape shape = shape_of({3, 2, 64, 64});
  for (std::size_t tokens : {0, 1, 2, 16, 255, 256, 257, 700}) {
    const Codec codec(shape, "fast-2");
    Tensors from = random_tensors(shape, ElementType::bf16, tokens);
    set_threads(1);
    const auto one = encoded(codec, from);
    set_threads(4);
    EXPECT_EQ(encoded(codec, from), one);
    set_threads(0);
    EXPECT_LE(one.size(), codec.bound(tokens));
    const std::size_t plain = tokens * 3 * 2 * 64 * 2 * sizeof(std::uint16_t);
    EXPECT_TRUE(tokens < 255 || one.size() * 9 < plain * 2) << one.size();
    decoded(codec, one, tokens);
  }
}

TEST(Codec, ChunksSayWhatTheyAre) {
  const CacheShape shape = shape_of({2, 2, 64, 32});
  const Codec codec(shape, "fast", "a model");
  Tensors from = random_tensors(shape, ElementType::f32, 20);
  const ChunkInfo info = Codec::inspect(encoded(codec, from, 4096));
  EXPECT_EQ(info.model, codec.fingerprint());
  EXPECT_EQ(info.layers, 2u);
  EXPECT_EQ(info.kv_heads, 2u);
  EXPECT_EQ(info.key_dim, 64u);
  EXPECT_EQ(info.value_dim, 32u);
  EXPECT_EQ(info.tokens, 20u);
  EXPECT_EQ(info.position, 4096);
  EXPECT_EQ(info.preset, "fast-4");
}

TEST(Codec, ForeignCutAndDamagedChunksAreRefused) {
  const CacheShape shape = shape_of({2, 2, 64, 64});
  const Codec codec(shape, "fast-4", "a");
  Tensors from = random_tensors(shape, ElementType::f32, 20);
  const auto good = encoded(codec, from);
  const auto error = [&](const Codec& reader, std::span<const std::byte> chunk,
                         std::size_t tokens) {
    EXPECT_EQ(code_of([&] { decoded(reader, chunk, tokens); }), ErrorCode::bad_file);
    return error_of([&] { decoded(reader, chunk, tokens); });
  };
  EXPECT_EQ(error(codec, {}, 20), "not a chunk of Ballast");
  EXPECT_EQ(error(codec, std::vector(200, std::byte{7}), 20), "not a chunk of Ballast");
  for (std::size_t size : {9, 71, 72, 1000}) {
    EXPECT_THAT(error(codec, std::span(good).first(size), 20), testing::HasSubstr("cut"));
  }
  auto other = good;
  other[good.size() / 2] ^= std::byte{1};
  EXPECT_THAT(error(codec, other, 20), testing::HasSubstr("damaged"));
  other = good;
  other[8] = std::byte{9};
  EXPECT_THAT(error(codec, other, 20), testing::HasSubstr("version 9"));
  EXPECT_THAT(error(Codec(shape, "fast-4", "b"), good, 20), testing::HasSubstr("another model"));
  EXPECT_THAT(error(Codec(shape_of({2, 2, 64, 64}, false), "fast-4", "a"), good, 20),
              testing::HasSubstr("another model"));
  EXPECT_THAT(error(Codec(shape_of({2, 1, 64, 64}), "fast-4", "a"), good, 20),
              testing::HasSubstr("another shape"));
  EXPECT_THAT(error(Codec(shape, "fast-3", "a"), good, 20), testing::HasSubstr("another preset"));
  EXPECT_THAT(error(codec, good, 21), testing::HasSubstr("another length: 20, expected 21"));
  auto longer = good;
  longer.resize(good.size() + 100);  // of a buffer that was allocated by bound()
  decoded(codec, longer, 20);
}

TEST(Codec, MutatedChunksWithARightChecksumDoNoHarm) {
  const CacheShape shape = shape_of({2, 2, 64, 32});
  const Codec codec(shape, "fast-3");
  Tensors from = random_tensors(shape, ElementType::f32, 40);
  const auto good = encoded(codec, from);
  std::mt19937_64 random(2);
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    auto other = good;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = random() % 3 == 0   ? 16 + random() % 56
                             : random() % 2 == 0 ? good.size() - 1 - random() % 3000
                                                 : 72 + random() % (good.size() - 72);
      other[at] = random() % 3 == 0 ? std::byte{0xff} : static_cast<std::byte>(random());
    }
    if (random() % 10 == 0) {
      other.resize(72 + random() % (other.size() - 72));
      const std::uint64_t size = other.size();
      std::memcpy(other.data() + 16, &size, 8);
    }
    const auto crc = static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(other.data()) + 16, other.size() - 16));
    std::memcpy(other.data() + 12, &crc, 4);
    try {
      Tensors back = decoded(codec, other, 40);
      for (const auto& layer : back.key_views()) {
        for (std::size_t n = 0; n < 40; ++n) ASSERT_TRUE(std::isfinite(element(layer, n, 1, 5)));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bad_file) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
}

TEST(Codec, RefusesWhatItCannotEncode) {
  const CacheShape shape = shape_of({1, 1, 64, 64});
  const Codec codec(shape, "fast-4");
  Tensors from = random_tensors(shape, ElementType::f32, 10);
  for (float bad : {NAN, INFINITY, 1e30f}) {
    for (int side : {0, 1}) {
      Tensors other = from;
      set_element((side == 0 ? other.key_views() : other.value_views())[0], 7, 0, 9, bad);
      EXPECT_EQ(code_of([&] { encoded(codec, other); }), ErrorCode::not_finite) << bad;
    }
  }
  Tensors half = random_tensors(shape, ElementType::f16, 10);
  static_cast<std::uint16_t*>(half.key_views()[0].data)[70] = 0x7C00;  // infinity
  EXPECT_EQ(code_of([&] { encoded(codec, half); }), ErrorCode::not_finite);
  Tensors zero(shape, ElementType::f32, 10);
  EXPECT_EQ(loss(zero, decoded(codec, encoded(codec, zero), 10), 0), 0);
  std::vector<std::byte> small(codec.bound(10) - 1);
  EXPECT_THAT(error_of([&] {
                codec.encode(read_only(from.key_views()), read_only(from.value_views()), small);
              }),
              testing::HasSubstr("room of"));
  EXPECT_THAT(error_of([&] { Codec(shape, "faster"); }), testing::HasSubstr("known: fast-4"));
  EXPECT_NE(error_of([&] { Codec(shape_of({1, 1, 300, 64}), "fast"); }), "");
  EXPECT_NE(error_of([&] { Codec(shape_of({0, 1, 64, 64}), "fast"); }), "");
}

}  // namespace
}  // namespace ballast
