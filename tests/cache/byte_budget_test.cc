// bytes=: the largest budget of entries whose whole cache is within them.
#include "cache/byte_budget.h"

#include <fmt/format.h>

#include "ballast/error.h"
#include "cache/streams.h"

namespace ballast::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

CacheShape shape_of(std::size_t layers, std::size_t heads, std::size_t dim) {
  CacheShape shape;
  shape.layers = layers;
  shape.kv_heads = heads;
  shape.queries_per_kv_head = 2;
  shape.key_dim = shape.value_dim = dim;
  shape.logits.scale = 0.2f;
  return shape;
}

/// A cache that has read `tokens` made-up tokens, its prompt finished.
Cache read(const CacheShape& shape, const CacheOptions& options, std::size_t tokens) {
  Cache cache(shape, options);
  const Matrix keys = random_matrix(tokens, shape.kv_heads * shape.key_dim, 1);
  const Matrix values = random_matrix(tokens, shape.kv_heads * shape.value_dim, 2);
  const Matrix queries = random_matrix(tokens, shape.kv_heads * 2 * shape.key_dim, 3);
  Matrix out(tokens, shape.kv_heads * 2 * shape.value_dim);
  for (std::size_t l = 0; l < shape.layers; ++l) {
    cache.forward(l, keys.view(), values.view(), queries.view(), out.view());
  }
  cache.finish_prompt();
  return cache;
}

std::vector<std::string> methods_that_count() {
  std::vector<std::string> out;
  for (const MethodInfo* info : methods()) {
    if (info->global_budget || info->window_policy == WindowPolicy::all) continue;
    out.emplace_back(info->name);
  }
  out.emplace_back("balancekv:outliers=yes");
  out.emplace_back("h2o:generated=evict");
  out.emplace_back("snapkv:layers=pyramid");
  return out;
}

std::string with(const std::string& method, const std::string& key) {
  return method + (method.find(':') == std::string::npos ? ":" : ",") + key;
}

class BytesBudget : public testing::TestWithParam<std::string> {};

TEST_P(BytesBudget, IsNeverPassedAndUsed) {
  struct Case {
    std::size_t layers, heads, dim, tokens;
    const char* bytes;
    const char* type;
  };
  for (const Case& c :
       {Case{2, 2, 32, 700, "1/2", "bf16"}, Case{3, 1, 64, 900, "1/4", "f32"},
        Case{2, 3, 80, 800, "30%", "int8"}, Case{1, 2, 64, 1000, "1/8", "q4/q2"},
        Case{2, 2, 48, 600, "100K", "int4"}, Case{4, 1, 32, 900, "0.09K/token", "bf16"},
        Case{2, 2, 32, 64, "100K", "bf16"}}) {
    for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      // A stream's are among its entries.
      const bool outliers_too =
          GetParam() == "balancekv:outliers=yes" && protocol == Protocol::prefill;
      // The covariance of its queries alone takes more than an eighth of so little.
      const bool moments =
          ((GetParam() == "expected-attention" || GetParam() == "triattention") && c.layers == 1) ||
          (GetParam() == "attention-matching" && c.tokens != 700);
      // These hold them in prefill too.
      const bool always = GetParam() == "attention-matching" || GetParam() == "triattention";
      if (moments && (always || protocol == Protocol::stream)) continue;
      const std::string method =
          with(GetParam(), fmt::format("bytes={},type={},sink=4", c.bytes, c.type));
      SCOPED_TRACE(fmt::format("{} in {}, {} layers of {} × {}, {} tokens", method,
                               to_string(protocol), c.layers, c.heads, c.dim, c.tokens));
      const CacheShape shape = shape_of(c.layers, c.heads, c.dim);
      CacheOptions options;
      options.policy = Policy::parse(method);
      options.protocol = protocol;
      options.expected_tokens = protocol == Protocol::stream ? c.tokens : 0;
      const std::size_t allowed =
          options.policy.memory("bytes").bytes(c.tokens, exact_bf16_bytes(shape, c.tokens));
      const Cache cache = read(shape, options, c.tokens);
      EXPECT_LE(cache.bytes().used(), allowed);
      if (protocol == Protocol::stream) {
        EXPECT_LE(cache.bytes().total(), allowed);
      }
      const auto row = static_cast<double>(stored_row_bytes(cache.options().key_type, c.dim) +
                                           stored_row_bytes(cache.options().value_type, c.dim));
      // One entry more of every head, with what methods note of it, and outliers that may be.
      const double more = static_cast<double>(c.layers * c.heads) * 3 * (row + 64);
      const double outliers =
          outliers_too ? static_cast<double>(c.heads * c.tokens * sizeof(Position)) : 0;
      const double held = static_cast<double>(cache.bytes().total());
      if (cache.entries() < c.tokens) {
        EXPECT_GE(held + more + outliers, static_cast<double>(allowed));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BytesBudget, testing::ValuesIn(methods_that_count()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace_if(
                               name, [](char c) { return std::isalnum(c) == 0; }, '_');
                           return name;
                         });

std::string error_with(const std::string& method, Protocol protocol, std::size_t tokens) {
  return error_of([&] {
    CacheOptions options;
    options.policy = Policy::parse(method);
    options.protocol = protocol;
    read(shape_of(2, 2, 32), options, tokens);
  });
}

TEST(BytesBudget, ImpossibleOnesAreRefused) {
  EXPECT_THAT(error_with("h2o:bytes=2K", Protocol::prefill, 300),
              AllOf(HasSubstr("h2o:bytes=2K: 2048 bytes for 300 tokens"), HasSubstr("give more")));
  EXPECT_THAT(error_with("h2o:bytes=1/8", Protocol::stream, 300),
              AllOf(HasSubstr("a stream of unknown length has no share"), HasSubstr("256M")));
  CacheOptions amount;
  amount.policy = Policy::parse("h2o:bytes=64K");
  amount.protocol = Protocol::stream;
  EXPECT_LE(read(shape_of(2, 2, 32), amount, 300).bytes().total(), 65536u);
  EXPECT_THAT(error_of([] { Policy::parse("h2o:bytes=1"); }), HasSubstr("share or bytes"));
  EXPECT_THAT(error_of([] { Policy::parse("h2o:bytes=1/8,rate=0.5"); }), HasSubstr("give one"));
  EXPECT_THAT(error_of([] { Policy::parse("h2o:budget=9,bytes=1/8"); }), HasSubstr("give one"));
  EXPECT_THAT(error_of([] { Policy::parse("exact:bytes=1/8"); }), HasSubstr("exact:type=int4"));
  EXPECT_THAT(error_of([] { Policy::parse("h2o:type=int5"); }), HasSubstr("int5"));
}

// A text that is too short for a share of it stays exact; what is measured at equal bytes does not.
TEST(BytesBudget, ATextTooShortForAShareStaysExact) {
  for (const char* method : {"h2o", "snapkv", "replay", "kvzip"}) {
    for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      SCOPED_TRACE(fmt::format("{} in {}", method, to_string(protocol)));
      const CacheShape shape = shape_of(2, 2, 32);
      CacheOptions options;
      options.policy = Policy::parse(method + std::string(":bytes=1/8"));
      options.protocol = protocol;
      options.expected_tokens = protocol == Protocol::stream ? 5 : 0;
      const Cache cache = read(shape, options, 5);
      EXPECT_EQ(cache.entries(), 5u);
      EXPECT_THAT(error_of([&] { require_bytes(cache); }), HasSubstr("give"));
      require_bytes(shape, options, 4000);
      options.policy = Policy::parse(method + std::string(":bytes=100B"));
      EXPECT_THAT(error_of([&] { require_bytes(shape, options, 5); }), HasSubstr("give"));
    }
  }
}

// The search tries budgets that are larger than the one it finds.
TEST(BytesBudget, IsFoundWhereLargerOnesAreRefused) {
  CacheOptions options;
  options.policy = Policy::parse("attention-matching:bytes=1/16,keys=omp");
  options.protocol = Protocol::stream;
  options.expected_tokens = 10'000;
  const Policy found = fit_bytes(shape_of(1, 1, 64), options, options.expected_tokens);
  EXPECT_LT(found.integer("budget"), 1000);
  EXPECT_GT(found.integer("budget"), 100);
}

TEST(BytesBudget, OfTheWholeTextIsExact) {
  CacheOptions options;
  options.policy = Policy::parse("h2o:bytes=400K");
  EXPECT_EQ(read(shape_of(2, 2, 32), options, 150).entries(), 150u);
}

TEST(BytesBudget, GoesOnFromAFile) {
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    CacheOptions options;
    options.policy = Policy::parse("h2o:bytes=1/4,type=int8");
    options.protocol = protocol;
    options.expected_tokens = 400;
    const Cache cache = read(shape_of(2, 2, 32), options, 400);
    const Cache again = Cache::parse(cache.to_bytes(), "memory");
    EXPECT_EQ(again.to_bytes(), cache.to_bytes());
    EXPECT_EQ(cache.clone().to_bytes(), cache.to_bytes());
    EXPECT_EQ(again.options().key_type, StorageType::int8);
  }
}

TEST(StorageOfAMethod, IsThatOfItsCache) {
  CacheOptions options;
  options.policy = Policy::parse("exact:type=q4/q2");
  Cache cache = read(shape_of(1, 2, 64), options, 100);
  EXPECT_EQ(cache.options().key_type, StorageType::q4);
  EXPECT_EQ(cache.options().value_type, StorageType::q2);
  // The first four tokens are bf16; a head has a mean of keys and one of values.
  EXPECT_EQ(cache.bytes().used(), 2u * (96 * (34 + 18) + 4 * 256 + 2 * 256));
  options.policy = Policy();
  Cache plain(shape_of(1, 2, 64), options);
  for (const char* one : {"h2o:rate=0.5,type=int4/f32", "h2o:rate=0.5,type=f32/int4"}) {
    EXPECT_THAT(error_of([&] { fork_of(plain, Policy::parse(one), 0); }), HasSubstr("same types"));
  }
  EXPECT_THAT(error_of([&] { fork_of(plain, Policy::parse("h2o:rate=0.5,type=int4"), 0); }),
              HasSubstr("stores its tokens in f32/f32"));
}

}  // namespace
}  // namespace ballast::test
