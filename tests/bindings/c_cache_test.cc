// Caches and attention through the C ABI, against the same calls of the library.
#include <cmath>
#include <cstring>
#include <string>
#include <thread>

#include "ballast.h"
#include "ballast/cache.h"
#include "ballast/scoring.h"
#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

constexpr std::size_t kLayers = 2, kKvHeads = 2, kGroup = 2, kDim = 32;

ballast_cache_shape c_shape() {
  ballast_cache_shape shape = ballast_cache_default_shape();
  shape.layers = kLayers;
  shape.kv_heads = kKvHeads;
  shape.queries_per_kv_head = kGroup;
  shape.key_dim = kDim;
  return shape;
}

CacheShape cpp_shape() {
  CacheShape shape;
  shape.layers = kLayers;
  shape.kv_heads = kKvHeads;
  shape.queries_per_kv_head = kGroup;
  shape.key_dim = shape.value_dim = kDim;
  shape.logits.scale = 1.0f / std::sqrt(static_cast<float>(kDim));
  return shape;
}

CacheOptions cpp_options(const char* method, StorageType keys, StorageType values) {
  CacheOptions options;
  options.policy = Policy::parse(method);
  options.key_type = keys;
  options.value_type = values;
  return options;
}

std::vector<float> normal(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> out(count);
  for (float& x : out) x = draw(random);
  return out;
}

struct Handle {
  ballast_cache* cache = nullptr;
  ~Handle() { ballast_cache_free(cache); }
};

/// What both caches answer to the same tokens, head-major for the C one.
void feed(ballast_cache* c, Cache& cpp, std::size_t tokens, unsigned seed) {
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    std::vector<float> k = normal(tokens * kKvHeads * kDim, seed + 10 * layer);
    std::vector<float> v = normal(tokens * kKvHeads * kDim, seed + 10 * layer + 1);
    std::vector<float> q = normal(tokens * kKvHeads * kGroup * kDim, seed + 10 * layer + 2);
    std::vector<float> out(q.size()), expected(q.size());
    cpp.forward(layer, HeadsView::head_major(k.data(), ElementType::f32, tokens, kKvHeads, kDim),
                HeadsView::head_major(v.data(), ElementType::f32, tokens, kKvHeads, kDim),
                HeadsView::head_major(q.data(), ElementType::f32, tokens, kKvHeads * kGroup, kDim),
                MutableHeadsView::head_major(expected.data(), ElementType::f32, tokens,
                                             kKvHeads * kGroup, kDim));
    const auto keys = ballast_heads_head_major(k.data(), BALLAST_F32, tokens, kKvHeads, kDim);
    const auto values = ballast_heads_head_major(v.data(), BALLAST_F32, tokens, kKvHeads, kDim);
    const auto queries =
        ballast_heads_head_major(q.data(), BALLAST_F32, tokens, kKvHeads * kGroup, kDim);
    const auto answers =
        ballast_heads_head_major(out.data(), BALLAST_F32, tokens, kKvHeads * kGroup, kDim);
    ASSERT_EQ(ballast_cache_forward(c, layer, &keys, &values, &queries, &answers), BALLAST_OK)
        << ballast_last_error();
    EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0);
  }
}

TEST(CCache, AnswersAsTheLibraryToTheBit) {
  for (const char* method : {"exact", "balancekv:rate=0.25", "h2o:rate=0.5", "snapkv:rate=0.5"}) {
    SCOPED_TRACE(method);
    const ballast_cache_shape shape = c_shape();
    ballast_cache_params params = ballast_cache_default_params();
    params.method = method;
    params.key_type = BALLAST_STORE_INT8;
    params.value_type = BALLAST_STORE_F16;
    params.seed = 7;
    params.threads = 2;
    Handle c;
    ASSERT_EQ(ballast_cache_new(&shape, &params, &c.cache), BALLAST_OK) << ballast_last_error();
    CacheOptions options = cpp_options(method, StorageType::int8, StorageType::f16);
    options.seed = 7;
    Cache cpp(cpp_shape(), options);
    feed(c.cache, cpp, 300, 1);
    ASSERT_EQ(ballast_cache_finish_prompt(c.cache), BALLAST_OK) << ballast_last_error();
    cpp.finish_prompt();
    feed(c.cache, cpp, 3, 100);
    Handle copy;
    ASSERT_EQ(ballast_cache_clone(c.cache, &copy.cache), BALLAST_OK);
    Cache cpp_copy = cpp.clone();
    feed(copy.cache, cpp_copy, 5, 200);
    feed(c.cache, cpp, 1, 300);

    EXPECT_EQ(ballast_cache_tokens(c.cache, 1), cpp.tokens(1));
    EXPECT_EQ(ballast_cache_entries(c.cache, 1), cpp.entries(1));
    EXPECT_EQ(ballast_cache_tokens(c.cache, 2), 0u);
    ballast_cache_bytes bytes = {sizeof(bytes), 0, 0, 0, 0, 0, 0, 0, 0};
    ASSERT_EQ(ballast_cache_get_bytes(c.cache, &bytes), BALLAST_OK);
    EXPECT_EQ(bytes.total, cpp.bytes().total());
    EXPECT_EQ(bytes.used, cpp.bytes().used());
    EXPECT_EQ(bytes.summary, cpp.bytes().summary);
    std::size_t count = 0;
    ASSERT_EQ(ballast_cache_kept(c.cache, 1, 1, nullptr, 0, &count), BALLAST_OK);
    std::vector<ballast_kept> kept(count);
    ASSERT_EQ(ballast_cache_kept(c.cache, 1, 1, kept.data(), count, &count), BALLAST_OK);
    const std::vector<KeptEntry> expected = cpp.kept(1, 1);
    ASSERT_EQ(kept.size(), expected.size());
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(kept[i].position, expected[i].position);
      EXPECT_EQ(kept[i].weight, expected[i].weight);
    }
  }
}

TEST(CCache, GoesOnFromAFile) {
  const TempDir dir;
  const std::string path = dir.path() / "c.cache";
  const ballast_cache_shape shape = c_shape();
  ballast_cache_params params = ballast_cache_default_params();
  params.method = "uniform:rate=0.25";
  Handle c, loaded;
  ASSERT_EQ(ballast_cache_new(&shape, &params, &c.cache), BALLAST_OK);
  Cache cpp(cpp_shape(), cpp_options("uniform:rate=0.25", StorageType::bf16, StorageType::bf16));
  feed(c.cache, cpp, 200, 1);
  ASSERT_EQ(ballast_cache_finish_prompt(c.cache), BALLAST_OK);
  cpp.finish_prompt();
  ASSERT_EQ(ballast_cache_save(c.cache, path.c_str()), BALLAST_OK) << ballast_last_error();
  ASSERT_EQ(ballast_cache_load(path.c_str(), &loaded.cache), BALLAST_OK) << ballast_last_error();
  feed(loaded.cache, cpp, 4, 50);
}

TEST(CCache, ReadsTwiceForReplay) {
  const ballast_cache_shape shape = c_shape();
  ballast_cache_params params = ballast_cache_default_params();
  params.bytes = "1/4";
  Handle c;
  ASSERT_EQ(ballast_cache_new(&shape, &params, &c.cache), BALLAST_OK) << ballast_last_error();
  Cache cpp(cpp_shape(), cpp_options("replay:bytes=1/4", StorageType::bf16, StorageType::bf16));
  feed(c.cache, cpp, 400, 1);
  ASSERT_TRUE(ballast_cache_needs_replay(c.cache));
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    ASSERT_EQ(ballast_cache_start_replay(c.cache, layer, nullptr), BALLAST_OK);
    scoring_of(cpp).start_replay(layer, {});
  }
  constexpr std::size_t kAgain = 20;
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    const std::vector<float> k = normal(kAgain * kKvHeads * kDim, 71);
    const std::vector<float> v = normal(kAgain * kKvHeads * kDim, 72);
    const std::vector<float> q = normal(kAgain * kKvHeads * kGroup * kDim, 73);
    std::vector<float> out(q.size()), expected(q.size());
    ASSERT_EQ(ballast_cache_replay(c.cache, layer, kAgain, k.data(), v.data(), q.data(), nullptr,
                                   out.data()),
              BALLAST_OK)
        << ballast_last_error();
    scoring_of(cpp).replay(layer, {k.data(), kAgain, kKvHeads * kDim},
                           {v.data(), kAgain, kKvHeads * kDim},
                           {q.data(), kAgain, kKvHeads * kGroup * kDim}, {},
                           {expected.data(), kAgain, kKvHeads * kGroup * kDim});
    EXPECT_EQ(out, expected);
  }
  ASSERT_EQ(ballast_cache_finish_prompt(c.cache), BALLAST_OK) << ballast_last_error();
  cpp.finish_prompt();
  feed(c.cache, cpp, 2, 500);
  EXPECT_EQ(ballast_cache_needs_replay(c.cache), scoring_of(cpp).needs_replay());
}

TEST(CAttention, IsThatOfTheLibrary) {
  constexpr std::size_t kEntries = 40, kQueries = 3;
  const std::vector<float> k = normal(kEntries * kDim, 1), v = normal(kEntries * kDim, 2);
  const std::vector<float> q = normal(kQueries * kDim, 3), weights = normal(kEntries, 4);
  ballast_segment segments[2] = {};
  segments[0] = {kEntries, k.data(), v.data(), weights.data(), nullptr, -1, BALLAST_NUMERATOR};
  segments[1] = {kEntries, k.data(), nullptr, nullptr, nullptr, -1, BALLAST_NORMALISER};
  std::vector<float> out(kQueries * kDim), expected(out.size());
  ASSERT_EQ(
      ballast_attention(nullptr, kQueries, kDim, kDim, q.data(), nullptr, segments, 2, out.data()),
      BALLAST_OK)
      << ballast_last_error();
  std::vector<Segment> runs(2);
  runs[0].keys = runs[1].keys = view_f32({k.data(), kEntries, kDim});
  runs[0].values = view_f32({v.data(), kEntries, kDim});
  runs[0].log_weights = weights.data();
  runs[0].role = Role::numerator;
  runs[1].role = Role::normaliser;
  attend({{q.data(), kQueries, kDim}, {}, {}}, runs,
         {.scale = 1.0f / std::sqrt(static_cast<float>(kDim))}, {expected.data(), kQueries, kDim});
  EXPECT_EQ(out, expected);

  // Positions hide later entries: query 0 sees none.
  const std::int32_t positions[kQueries] = {0, 5, 100};
  ballast_segment late = {kEntries, k.data(), v.data(), nullptr, nullptr, 1, BALLAST_BOTH};
  ASSERT_EQ(
      ballast_attention(nullptr, kQueries, kDim, kDim, q.data(), positions, &late, 1, out.data()),
      BALLAST_OK);
  EXPECT_EQ(std::vector<float>(out.begin(), out.begin() + kDim), std::vector<float>(kDim));
  EXPECT_NE(out[kDim], 0.0f);
}

TEST(CErrors, AreStatusAndLineOfTheThread) {
  const ballast_cache_shape shape = c_shape();
  ballast_cache_params params = ballast_cache_default_params();
  params.method = "nothing-like-it";
  Handle c;
  EXPECT_EQ(ballast_cache_new(&shape, &params, &c.cache), BALLAST_INVALID_ARGUMENT);
  EXPECT_EQ(c.cache, nullptr);
  EXPECT_THAT(ballast_last_error(), testing::HasSubstr("unknown method 'nothing-like-it'"));
  std::thread([] { EXPECT_STREQ(ballast_last_error(), ""); }).join();

  EXPECT_EQ(ballast_cache_load("/no/such/file", &c.cache), BALLAST_IO);
  EXPECT_STREQ(ballast_status_name(BALLAST_IO), "io");
  EXPECT_THAT(ballast_last_error(), testing::HasSubstr("/no/such/file"));
  EXPECT_EQ(ballast_cache_new(&shape, nullptr, nullptr), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), testing::HasSubstr("out is NULL"));
  EXPECT_EQ(ballast_cache_finish_prompt(nullptr), BALLAST_INVALID_ARGUMENT);

  params.method = nullptr;
  params.key_type = static_cast<ballast_storage>(8);
  EXPECT_EQ(ballast_cache_new(&shape, &params, &c.cache), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), testing::HasSubstr("key_type 8: expected 0 to 7"));

  ASSERT_EQ(ballast_cache_new(&shape, nullptr, &c.cache), BALLAST_OK);
  float nan[kKvHeads * kDim];
  for (float& x : nan) x = std::nanf("");
  const auto bad = ballast_heads_token_major(nan, BALLAST_F32, 1, kKvHeads, kDim);
  EXPECT_EQ(ballast_cache_forward(c.cache, 0, &bad, &bad, nullptr, nullptr), BALLAST_NOT_FINITE);
  EXPECT_EQ(ballast_cache_tokens(c.cache, 0), 0u);
  std::size_t count = 0;
  ballast_kept kept;
  const std::vector<float> ones(2 * kKvHeads * kDim, 1.0f);
  const auto two =
      ballast_heads_token_major(const_cast<float*>(ones.data()), BALLAST_F32, 2, kKvHeads, kDim);
  ASSERT_EQ(ballast_cache_forward(c.cache, 0, &two, &two, nullptr, nullptr), BALLAST_OK);
  EXPECT_EQ(ballast_cache_kept(c.cache, 0, 0, &kept, 1, &count), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), testing::HasSubstr("room for 1, 2 are needed"));
}

TEST(CStructs, OlderAndNewerHeadersAreTold) {
  ballast_cache_shape shape = c_shape();
  Handle c;
  shape.size = 0;
  EXPECT_EQ(ballast_cache_new(&shape, nullptr, &c.cache), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), testing::HasSubstr("shape: size is 0"));
  shape.size = sizeof(shape) + 8;
  EXPECT_EQ(ballast_cache_new(&shape, nullptr, &c.cache), BALLAST_INVALID_ARGUMENT);
  EXPECT_THAT(ballast_last_error(), testing::HasSubstr("older than the header"));
  // A header that ended before `scale`: what stands behind is not looked at.
  shape.size = offsetof(ballast_cache_shape, scale);
  shape.rotary_frequencies = reinterpret_cast<const float*>(8);
  EXPECT_EQ(ballast_cache_new(&shape, nullptr, &c.cache), BALLAST_OK) << ballast_last_error();
  ballast_cache_bytes bytes;
  std::memset(&bytes, 0x55, sizeof(bytes));
  bytes.size = offsetof(ballast_cache_bytes, used);
  ASSERT_EQ(ballast_cache_get_bytes(c.cache, &bytes), BALLAST_OK);
  EXPECT_EQ(bytes.size, offsetof(ballast_cache_bytes, used));
  EXPECT_NE(bytes.total, 0x5555555555555555u);
  EXPECT_EQ(bytes.used, 0x5555555555555555u);
}

TEST(CLog, ReceivesErrors) {
  std::vector<std::string> lines;
  ballast_set_log(
      [](ballast_log_level level, const char* line, void* user_data) {
        EXPECT_EQ(level, BALLAST_LOG_ERROR);
        static_cast<std::vector<std::string>*>(user_data)->emplace_back(line);
      },
      &lines);
  EXPECT_NE(ballast_cache_finish_prompt(nullptr), BALLAST_OK);
  ballast_set_log(nullptr, nullptr);
  EXPECT_NE(ballast_cache_finish_prompt(nullptr), BALLAST_OK);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0], ballast_last_error());
}

TEST(CMethods, AreListed) {
  ASSERT_EQ(ballast_method_count(), methods().size());
  for (std::size_t i = 0; i < methods().size(); ++i) {
    EXPECT_EQ(ballast_method_name(i), methods()[i]->name);
    EXPECT_EQ(ballast_method_title(i), methods()[i]->title);
  }
  EXPECT_EQ(ballast_method_name(methods().size()), nullptr);
}

}  // namespace
}  // namespace ballast
