#include <cstring>
#include <map>

#include "ballast/pack.h"
#include "ballast/threads.h"
#include "base/thread_pool.h"
#include "pack/toy_basis.h"
#include "simd/forced_target.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using test::rows_of;
using test::toy_basis;
using test::toy_rows;

std::shared_ptr<const PackBasis> shared(PackBasis basis) {
  return std::make_shared<const PackBasis>(std::move(basis));
}

std::vector<std::byte> bytes_of(const PackedRows& packed) {
  MemoryWriter out;
  packed.save(out);
  return std::move(out.bytes);
}

Matrix decoded(const PackCodec& codec, const PackedRows& packed, std::size_t group = 0) {
  Matrix out(packed.tokens, codec.basis().groups[group].width());
  codec.decode(packed, group, 0, out.view());
  return out;
}

/// The scheme as pack.h and docs/packed.md say it, token by token in float64.
struct Reference {
  const PackBasis& basis;
  const PackedRows& packed;
  std::size_t g;

  const PackGroup& group() const { return basis.groups[g]; }
  std::size_t n() const { return group().width(); }

  std::vector<double> metric(const std::vector<double>& v, bool inverse) const {
    return test::times_metric(basis, group(), v, inverse);
  }

  std::vector<double> coefficients(std::span<const float> x) const {
    std::vector<double> v(n()), out(group().directions());
    for (std::size_t i = 0; i < n(); ++i) v[i] = double{x[i]} - group().mean[i];
    v = metric(v, false);
    for (std::size_t i = 0; i < out.size(); ++i) {
      for (std::size_t c = 0; c < n(); ++c) out[i] += v[c] * test::direction(group(), i, c);
    }
    return out;
  }

  /// The table of a spread: 17 frequencies, then what is taken from magnitudes 1, 2 and more.
  std::span<const std::byte> table(std::size_t spread) const {
    std::size_t before = 0;
    for (std::size_t s = 1; s < spread; ++s) {
      const auto& all = packed.groups[g].code.spread;
      before += std::count(all.begin(), all.end(), s) > 0 ? 1 : 0;
    }
    return std::span(packed.groups[g].code.tables).subspan(before * 37, 37);
  }

  /// The integer of a coefficient; `near`: how near it is to another one, in steps.
  int integer(std::size_t i, double y, double* near = nullptr) const {
    const int spread = packed.groups[g].code.spread[i];
    if (spread == 0) return 0;
    const double z = std::fabs(y) / packed.step, steps = std::pow(2, (spread - 9) / 3.0);
    const double dead = .5 + .0578 * (1.5 + std::min(6.0, 1.2 / steps));
    const double edge = .5 + .0578 * std::min(2.0, 1 / steps);
    const int q = z < dead ? 0 : std::max(1, static_cast<int>(std::floor(z - edge + 1)));
    if (near != nullptr) {
      const double place = z - edge;
      *near = std::min({*near, std::fabs(z - dead), std::fabs(place - std::round(place))});
    }
    return y < 0 ? -q : q;
  }

  /// How far a decoded row is from x in the metric, an element, in 16ths of the step.
  double exact_error(std::span<const float> x, std::span<const float> out) const {
    std::vector<double> v(n());
    for (std::size_t i = 0; i < n(); ++i) v[i] = double{out[i]} - x[i];
    double sum = 0;
    for (double y : metric(v, false)) sum += y * y;
    return std::sqrt(sum / static_cast<double>(n())) * 16 / packed.step;
  }

  std::vector<double> decode(std::span<const float> x, double* near) const {
    const auto y = coefficients(x);
    std::vector<double> v(n());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const int q = integer(i, y[i], near);
      if (q == 0) continue;
      const auto less = static_cast<std::int8_t>(
          table(packed.groups[g].code.spread[i])[34 + std::min(std::abs(q), 3) - 1]);
      const double at = (std::abs(q) - less / 256.0) * packed.step * (q < 0 ? -1 : 1);
      for (std::size_t c = 0; c < n(); ++c) {
        v[c] += at * test::direction(group(), i, c);
      }
    }
    v = metric(v, true);
    for (std::size_t i = 0; i < n(); ++i) v[i] += group().mean[i];
    return v;
  }
};

TEST(PackCodec, DecodesWhatAFloat64ReferenceDoes) {
  const PackBasis basis = toy_basis();
  const PackCodec codec(shared(basis));
  const std::size_t tokens = 300;
  const auto rows = toy_rows(basis, tokens);
  for (float step : {0.5f, 1.0f, 4.0f}) {
    const PackedRows packed = codec.encode(tokens, rows_of(rows), step);
    const Matrix out = decoded(codec, packed);
    const Reference reference{basis, packed, 0};
    std::size_t compared = 0;
    for (std::size_t t = 0; t < tokens; ++t) {
      const bool exact = t < 4 || t >= tokens - 8;
      double near = 1;
      const auto expected = reference.decode(rows[0][t], &near);
      if (!exact && near < 3e-3) continue;  // either integer would do
      compared += exact ? 0 : 1;
      if (exact) {
        EXPECT_LT(reference.exact_error(rows[0][t], out[t]), 0.35) << t;
      }
      for (std::size_t c = 0; !exact && c < out.cols(); ++c) {
        ASSERT_NEAR(out[t][c], expected[c], 4e-3) << "token " << t << ", step " << step;
      }
    }
    EXPECT_GT(compared, 80u);
  }
}

TEST(PackCodec, ErrorFallsWithTheStepAndBytesRise) {
  const PackBasis basis = toy_basis();
  const PackCodec codec(shared(basis));
  const auto rows = toy_rows(basis, 400);
  double last_error = 1e9;
  std::size_t last_bytes = 0;
  for (float step : {4.0f, 1.0f, 0.25f}) {
    const PackedRows packed = codec.encode(400, rows_of(rows), step);
    const Matrix out = decoded(codec, packed);
    const Reference reference{basis, packed, 0};
    double error = 0;  // in the metric, a coefficient
    for (std::size_t t = 4; t < 392; ++t) {
      std::vector<double> difference(out.cols());
      for (std::size_t c = 0; c < out.cols(); ++c) difference[c] = out[t][c] - rows[0][t][c];
      for (double x : reference.metric(difference, false)) error += x * x;
    }
    error /= 388.0 * static_cast<double>(basis.groups[0].directions());
    EXPECT_LT(error, 1.2 * step * step / 12);  // what rounding all coefficients gives
    EXPECT_LT(error, last_error);
    EXPECT_GT(packed.bytes(), last_bytes);
    last_error = error;
    last_bytes = packed.bytes();
  }
}

TEST(PackCodec, TakesLittleMoreThanTheEntropyOfTheIntegers) {
  const PackBasis basis = toy_basis();
  const PackCodec codec(shared(basis));
  const std::size_t tokens = 3000;
  const auto rows = toy_rows(basis, tokens);
  const PackedRows packed = codec.encode(tokens, rows_of(rows), 1.0f);
  const Reference reference{basis, packed, 0};
  std::map<int, std::map<int, double>> seen;  // of each spread, how often each integer
  for (std::size_t t = 4; t < tokens - 8; ++t) {
    const auto y = reference.coefficients(rows[0][t]);
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (packed.groups[0].code.spread[i] == 0) continue;
      ++seen[packed.groups[0].code.spread[i]][reference.integer(i, y[i])];
    }
  }
  double bits = 0;
  for (const auto& [spread, integers] : seen) {
    double all = 0;
    for (const auto& [q, count] : integers) all += count;
    for (const auto& [q, count] : integers) bits -= count * std::log2(count / all);
  }
  double taken = 0;
  for (const auto& block : packed.groups[0].blocks) taken += 8 * static_cast<double>(block.size());
  EXPECT_LT(taken, 1.015 * bits);
}

TEST(PackCodec, FindsTheStepOfASize) {
  const PackBasis basis = toy_basis();
  const PackCodec codec(shared(basis));
  const auto rows = toy_rows(basis, 2000);
  for (double divisor : {8.0, 16.0}) {
    const float step = codec.step_for(2000, rows_of(rows), divisor);
    const double bytes = static_cast<double>(codec.encode(2000, rows_of(rows), step).bytes());
    EXPECT_NEAR(2000 * 168 * 2 / bytes, divisor, 0.03 * divisor);
  }
}

TEST(PackCodec, ThreadsAndProcessorsGiveTheSameBytesAndRows) {
  const PackBasis basis = toy_basis();
  const PackCodec codec(shared(basis));
  const auto rows = toy_rows(basis, 700);
  std::vector<std::byte> bytes;
  Matrix first;
  for (std::int64_t target : test::kernel_targets()) {
    for (int threads : {1, 3}) {
      const test::ForcedTarget forced(target);
      ThreadPool pool(threads);
      const PoolScope scope(&pool);
      const PackedRows packed = codec.encode(700, rows_of(rows), 0.7f);
      Matrix out = decoded(codec, packed);
      if (bytes.empty()) {
        bytes = bytes_of(packed);
        first = std::move(out);
        continue;
      }
      EXPECT_EQ(bytes_of(packed), bytes);
      EXPECT_EQ(std::memcmp(out.data(), first.data(), 700 * 168 * sizeof(float)), 0);
    }
  }
}

TEST(PackCodec, AnyPartIsDecodedAlone) {
  test::ToySize size;
  size.groups = {{0, 2}, {1}};
  size.directions = 50;
  const PackBasis basis = toy_basis(size);
  const PackCodec codec(shared(basis));
  const auto rows = toy_rows(basis, 500);
  const PackedRows packed = codec.encode(500, rows_of(rows), 1.0f);
  for (std::size_t g : {0, 1}) {
    const Matrix all = decoded(codec, packed, g);
    for (const auto& [begin, count] :
         {std::pair{0, 1}, {2, 9}, {100, 300}, {490, 10}, {128, 128}}) {
      Matrix part(static_cast<std::size_t>(count), all.cols());
      codec.decode(packed, g, static_cast<std::size_t>(begin), part.view());
      for (std::size_t t = 0; t < part.rows(); ++t) {
        ASSERT_TRUE(std::ranges::equal(part[t], all[static_cast<std::size_t>(begin) + t]));
      }
    }
  }
}

TEST(PackCodec, ShortTextsAreNearlyExact) {
  const PackBasis basis = toy_basis();
  const PackCodec codec(shared(basis));
  for (std::size_t tokens = 0; tokens < 20; ++tokens) {
    const auto rows = toy_rows(basis, tokens);
    const PackedRows packed = codec.encode(tokens, rows_of(rows), 1.0f);
    EXPECT_LT(packed.groups[0].exact.size(), 40 + std::min<std::size_t>(tokens, 12) * 168);
    const Matrix out = decoded(codec, packed);
    const Reference reference{basis, packed, 0};
    for (std::size_t t = 0; tokens <= 12 && t < tokens; ++t) {
      EXPECT_LT(reference.exact_error(rows[0][t], out[t]), 0.35);
    }
  }
}

TEST(PackCodec, ATextUnlikeTheCalibrationTakesMoreBytesAndIsAsExact) {
  const PackBasis basis = toy_basis();
  const PackCodec codec(shared(basis));
  auto rows = toy_rows(basis, 600);
  const auto error = [&](const Matrix& out) {
    double sum = 0;
    for (std::size_t t = 4; t < 592; ++t) {
      for (std::size_t c = 0; c < 168; ++c) sum += std::pow(out[t][c] - rows[0][t][c], 2);
    }
    return sum;
  };
  const PackedRows usual = codec.encode(600, rows_of(rows), 1.0f);
  const double usual_error = error(decoded(codec, usual));
  for (std::size_t t = 0; t < 600; ++t) {
    for (std::size_t c = 0; c < 168; ++c) {
      const float mean = basis.groups[0].mean[c];
      rows[0][t][c] = mean + 5 * (rows[0][t][c] - mean);
    }
  }
  const PackedRows unlike = codec.encode(600, rows_of(rows), 1.0f);
  EXPECT_GT(unlike.bytes(), usual.bytes() * 5 / 4);
  EXPECT_LT(error(decoded(codec, unlike)), 2 * usual_error);
}

// As attention sinks are: the rounding of the basis would cost them most.
TEST(PackCodec, TokensFarFromAllOthersAreNearlyExact) {
  const PackBasis basis = toy_basis();
  const PackCodec codec(shared(basis));
  auto rows = toy_rows(basis, 600);
  for (std::size_t t : {5, 300, 591}) {
    for (std::size_t c = 0; c < 168; ++c) {
      const float mean = basis.groups[0].mean[c];
      rows[0][t][c] = mean + 30 * (rows[0][t][c] - mean);
    }
  }
  const PackedRows packed = codec.encode(600, rows_of(rows), 1.0f);
  const auto& far = packed.groups[0].far;
  EXPECT_LE(far.size(), 588u / 64);
  const auto bytes = bytes_of(packed);
  ByteReader in(bytes);
  const PackedRows read = PackedRows::load(in, basis);
  EXPECT_EQ(bytes_of(read), bytes);
  const Matrix out = decoded(codec, read);
  Matrix part(1, 168);
  for (std::uint32_t t : {5, 300, 591}) {
    EXPECT_EQ(std::ranges::count(far, t), 1) << t;
    codec.decode(read, 0, t, part.view());
    EXPECT_LT((Reference{basis, packed, 0}.exact_error(rows[0][t], out[t])), 0.4) << t;
    for (std::size_t c = 0; c < 168; ++c) EXPECT_EQ(part[0][c], out[t][c]);
  }
}

TEST(PackCodec, SavedRowsAreReadBack) {
  test::ToySize size;
  size.groups = {{0}, {1, 2}};
  const PackBasis basis = toy_basis(size);
  const PackCodec codec(shared(basis));
  const auto rows = toy_rows(basis, 333);
  const PackedRows packed = codec.encode(333, rows_of(rows), 1.0f);
  const auto bytes = bytes_of(packed);
  EXPECT_EQ(packed.bytes(), bytes.size());
  ByteReader in(bytes);
  const PackedRows read = PackedRows::load(in, basis);
  EXPECT_EQ(in.left(), 0u);
  EXPECT_EQ(bytes_of(read), bytes);
  const Matrix a = decoded(codec, packed, 1), b = decoded(codec, read, 1);
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.rows() * a.cols() * sizeof(float)), 0);
}

TEST(PackCodec, AnotherBasisIsRefused) {
  PackBasis basis = toy_basis();
  const PackCodec codec(shared(basis));
  const auto bytes = bytes_of(codec.encode(50, rows_of(toy_rows(basis, 50)), 1.0f));
  basis.presets.clear();  // which changes no row
  ByteReader same(bytes);
  EXPECT_EQ(PackedRows::load(same, basis).tokens, 50u);
  basis.groups[0].mean[0] += 1;
  ByteReader in(bytes);
  EXPECT_THAT(error_of([&] { PackedRows::load(in, basis); }),
              testing::HasSubstr("packed with another basis"));
}

TEST(PackCodec, MutatedRowsAreRefusedOrDecodedToSomething) {
  test::ToySize size;
  size.groups = {{0}, {1, 2}};
  size.directions = 30;
  const PackBasis basis = toy_basis(size);
  const PackCodec codec(shared(basis));
  const auto bytes = bytes_of(codec.encode(150, rows_of(toy_rows(basis, 150)), 1.0f));
  std::mt19937_64 random(3);
  int refused = 0;
  constexpr int kTries = 3000;
  for (int i = 0; i < kTries; ++i) {
    auto other = bytes;
    for (std::uint64_t changes = 1 + random() % 3; changes > 0; --changes) {
      // Counts lie in front.
      const std::size_t at = random() % (random() % 2 == 0 ? 200 : other.size());
      other[at] = random() % 4 == 0 ? std::byte{0xff} : static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) other.resize(random() % other.size());
    const std::string error = error_of([&] {
      ByteReader in(other);
      const PackedRows packed = PackedRows::load(in, basis);
      if (packed.tokens > 10'000) return;
      for (std::size_t g : {0, 1}) decoded(codec, packed, g);
    });
    refused += error.empty() ? 0 : 1;
  }
  EXPECT_GT(refused, kTries / 2);
}

TEST(PackCodec, RowsThatAreNotFiniteAreRefused) {
  const PackBasis basis = toy_basis();
  const PackCodec codec(shared(basis));
  for (std::size_t token : {1, 20, 48}) {
    auto rows = toy_rows(basis, 50);
    rows[0][token][9] = INFINITY;
    EXPECT_THAT(error_of([&] { codec.encode(50, rows_of(rows), 1.0f); }),
                testing::HasSubstr("not finite"));
  }
  const auto rows = toy_rows(basis, 50);
  EXPECT_NE(error_of([&] { codec.encode(50, rows_of(rows), 0.0f); }), "");
  EXPECT_NE(error_of([&] { codec.encode(50, rows_of(rows), NAN); }), "");
}

TEST(PackCodec, HugeElementsStayFinite) {
  const PackBasis basis = toy_basis();
  const PackCodec codec(shared(basis));
  auto rows = toy_rows(basis, 100);
  for (std::size_t c = 0; c < 168; ++c) rows[0][50][c] *= 1e20f;
  const Matrix out = decoded(codec, codec.encode(100, rows_of(rows), 1.0f));
  for (std::size_t t = 0; t < 100; ++t) {
    for (float x : out[t]) ASSERT_TRUE(std::isfinite(x));
  }
}

}  // namespace
}  // namespace ballast
