// Chunks through the C ABI, against the same calls of the library.
#include "ballast.h"
#include "ballast/codec.h"
#include "support.h"

namespace ballast {
namespace {

constexpr std::size_t kLayers = 2, kHeads = 2, kDim = 64, kTokens = 30;

struct Handle {
  ballast_codec* codec = nullptr;
  ~Handle() { ballast_codec_free(codec); }
};

TEST(CCodec, GivesTheChunksOfTheLibraryAndDecodesThem) {
  std::vector<float> frequencies(kDim / 2);
  for (std::size_t f = 0; f < frequencies.size(); ++f) frequencies[f] = 1.0f / (1.0f + 7.0f * f);
  ballast_cache_shape shape = ballast_cache_default_shape();
  shape.layers = kLayers;
  shape.kv_heads = kHeads;
  shape.key_dim = kDim;
  shape.rotary_frequencies = frequencies.data();
  shape.rotary_count = frequencies.size();
  Handle c;
  ASSERT_EQ(ballast_codec_new(&shape, "fast-2", "m", nullptr, &c.codec), BALLAST_OK);

  CacheShape cpp_shape;
  cpp_shape.layers = kLayers;
  cpp_shape.kv_heads = kHeads;
  cpp_shape.key_dim = cpp_shape.value_dim = kDim;
  cpp_shape.rotary.frequencies = frequencies;
  const Codec cpp(cpp_shape, "fast-2", "m");

  std::vector<std::vector<float>> rows(2 * kLayers), back(2 * kLayers);
  std::vector<ballast_heads> views, back_views;
  std::vector<HeadsView> cpp_views;
  std::mt19937 random(1);
  std::normal_distribution<float> draw;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i].resize(kTokens * kHeads * kDim);
    back[i].resize(rows[i].size());
    for (float& x : rows[i]) x = draw(random);
    views.push_back(ballast_heads_token_major(rows[i].data(), BALLAST_F32, kTokens, kHeads, kDim));
    back_views.push_back(
        ballast_heads_token_major(back[i].data(), BALLAST_F32, kTokens, kHeads, kDim));
    cpp_views.push_back(
        HeadsView::token_major(rows[i].data(), ElementType::f32, kTokens, kHeads, kDim));
  }
  std::size_t bound = 0, bytes = 0;
  ASSERT_EQ(ballast_codec_bound(c.codec, kTokens, &bound), BALLAST_OK);
  EXPECT_EQ(bound, cpp.bound(kTokens));
  std::vector<std::byte> chunk(bound), expected(bound);
  ASSERT_EQ(ballast_codec_encode(c.codec, views.data(), views.data() + kLayers, 7, chunk.data(),
                                 chunk.size(), &bytes),
            BALLAST_OK);
  const std::span<const HeadsView> all(cpp_views);
  EXPECT_EQ(bytes, cpp.encode(all.first(kLayers), all.subspan(kLayers), expected, 7));
  EXPECT_EQ(chunk, expected);
  ASSERT_EQ(ballast_codec_decode(c.codec, chunk.data(), bytes, back_views.data(),
                                 back_views.data() + kLayers),
            BALLAST_OK);
  EXPECT_NEAR(back[0][5], rows[0][5], 0.5);

  chunk[100] ^= std::byte{1};
  EXPECT_EQ(ballast_codec_decode(c.codec, chunk.data(), bytes, back_views.data(),
                                 back_views.data() + kLayers),
            BALLAST_BAD_FILE);
  EXPECT_THAT(ballast_last_error(), testing::HasSubstr("damaged"));
  EXPECT_EQ(ballast_codec_encode(c.codec, views.data(), views.data() + kLayers, -1, chunk.data(),
                                 100, &bytes),
            BALLAST_INVALID_ARGUMENT);
  EXPECT_EQ(ballast_codec_encode(nullptr, nullptr, nullptr, -1, nullptr, 0, nullptr),
            BALLAST_INVALID_ARGUMENT);
  EXPECT_EQ(ballast_codec_new(&shape, "none", nullptr, nullptr, &c.codec),
            BALLAST_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace ballast
