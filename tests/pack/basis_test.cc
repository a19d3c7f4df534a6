#include <zlib.h>

#include <cstring>

#include "ballast/pack.h"
#include "pack/toy_basis.h"
#include "temp_dir.h"

namespace ballast {
namespace {

TEST(PackBasis, IsSavedAndLoaded) {
  test::ToySize size;
  size.groups = {{0, 2}, {1}};
  const PackBasis basis = test::toy_basis(size);
  const TempDir folder;
  basis.save(folder / "a.pack");
  const PackBasis read = PackBasis::load(folder / "a.pack");
  EXPECT_EQ(read.hash(), basis.hash());  // the metric of the toy is of few bits
  EXPECT_EQ(read.presets, basis.presets);
  EXPECT_EQ(read.model, "toy");
  for (std::size_t g : {0, 1}) {
    EXPECT_EQ(read.groups[g].fine, basis.groups[g].fine);
    EXPECT_EQ(read.groups[g].score_offsets, basis.groups[g].score_offsets);
    EXPECT_EQ(read.groups[g].score_weights, basis.groups[g].score_weights);
  }
  EXPECT_TRUE(read.has_scores());
}

TEST(PackBasis, HashesWhatDecodedRowsDependOn) {
  const PackBasis basis = test::toy_basis();
  PackBasis other = basis;
  other.groups[0].score_offsets.clear();
  other.groups[0].score_weights.clear();
  EXPECT_EQ(other.hash(), basis.hash());
  EXPECT_FALSE(other.has_scores());
  other.groups[0].fine[3] ^= 1;
  EXPECT_NE(other.hash(), basis.hash());
}

TEST(PackBasis, MetricsAreRoundedOnce) {
  PackBasis basis = test::toy_basis();
  for (float& x : basis.groups[0].metric) x *= 1.0003f * 300;
  const TempDir folder;
  basis.save(folder / "a.pack");
  const PackBasis once = PackBasis::load(folder / "a.pack");
  EXPECT_NE(once.hash(), basis.hash());
  for (std::size_t i = 0; i < once.groups[0].metric.size(); ++i) {
    ASSERT_NEAR(once.groups[0].metric[i], basis.groups[0].metric[i], 0.6);
  }
  once.save(folder / "b.pack");
  EXPECT_EQ(PackBasis::load(folder / "b.pack").hash(), once.hash());
}

TEST(PackBasis, ForeignAndDamagedFilesAreRefused) {
  const TempDir folder;
  test::toy_basis().save(folder / "a.pack");
  const std::string good = read_text(folder / "a.pack");
  const auto error = [&](const std::string& text) {
    return error_of([&] { PackBasis::parse(std::as_bytes(std::span(text)), "f"); });
  };
  EXPECT_EQ(error(good), "");
  EXPECT_THAT(error("hello"), testing::StartsWith("f: not a basis for packing"));
  std::string other = good;
  other[8] = 9;
  EXPECT_THAT(error(other), testing::HasSubstr("version 9"));
  other = good;
  other[good.size() / 2] ^= 1;
  EXPECT_THAT(error(other), testing::HasSubstr("damaged"));
  // With the right checksum, each must be an Error or a basis that check() accepts.
  std::mt19937_64 random(1);
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    other = good;
    for (std::uint64_t n = 1 + random() % 3; n > 0; --n) {
      const std::size_t at = 12 + random() % (random() % 2 == 0 ? 100 : other.size() - 16);
      other[at] = random() % 3 == 0 ? '\xff' : static_cast<char>(random());
    }
    if (random() % 8 == 0) other.resize(16 + random() % (other.size() - 16));
    const auto crc = static_cast<std::uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(other.data()), other.size() - 4));
    std::memcpy(other.data() + other.size() - 4, &crc, 4);
    refused += error(other).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 200);
}

TEST(PackBasis, SizesThatDoNotFitAreRefused) {
  const auto refuses = [](auto change) {
    PackBasis basis = test::toy_basis();
    change(basis);
    return !error_of([&] { basis.check("b"); }).empty();
  };
  EXPECT_FALSE(refuses([](PackBasis&) {}));
  EXPECT_TRUE(refuses([](PackBasis& b) { b.groups[0].mean.pop_back(); }));
  EXPECT_TRUE(refuses([](PackBasis& b) { b.groups[0].layers[1] = 0; }));
  EXPECT_TRUE(refuses([](PackBasis& b) { b.layers = 4; }));
  EXPECT_TRUE(refuses([](PackBasis& b) { b.groups[0].basis_scale[3] = 0; }));
  EXPECT_TRUE(refuses([](PackBasis& b) { b.groups[0].variance[3] = NAN; }));
  EXPECT_TRUE(refuses([](PackBasis& b) { b.groups[0].metric[3] = INFINITY; }));
  EXPECT_TRUE(refuses([](PackBasis& b) { b.presets[0].step = -1; }));
  EXPECT_TRUE(refuses([](PackBasis& b) { b.groups[0].fine.pop_back(); }));
  EXPECT_TRUE(refuses([](PackBasis& b) { b.groups[0].score_weights.pop_back(); }));
  EXPECT_TRUE(refuses([](PackBasis& b) { b.groups[0].score_offsets[1] = NAN; }));
  PackBasis basis = test::toy_basis();
  for (std::size_t i = 0; i < 16 * 16; ++i) basis.groups[0].metric[i] = 1;
  EXPECT_THAT(error_of([&] { PackCodec(std::make_shared<const PackBasis>(basis)); }),
              testing::HasSubstr("positive definite"));
}

}  // namespace
}  // namespace ballast
