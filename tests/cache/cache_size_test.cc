#include "cache/cache_size.h"

#include <gtest/gtest.h>

#include "cache/byte_budget.h"
#include "cache/streams.h"

namespace ballast::test {
namespace {

struct Case {
  std::string method;
  Protocol protocol;
  StorageType keys, values;
};

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const MethodInfo* info : methods()) {
    for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
      // These divide a budget by scores that a test would have to give: replay_test.cc.
      if (info->global_budget && protocol == Protocol::stream) continue;
      for (auto [keys, values] : {std::pair{StorageType::bf16, StorageType::bf16},
                                  {StorageType::int8, StorageType::int4},
                                  {StorageType::q4, StorageType::q2}}) {
        out.push_back({std::string(info->name), protocol, keys, values});
      }
    }
  }
  return out;
}

class SizeOf : public testing::TestWithParam<Case> {};

// What is said beforehand is what a cache then says of itself, which bytes_test.cc holds against
// the heap.
TEST_P(SizeOf, ACacheIsWhatItTakes) {
  constexpr std::size_t kPrompt = 700, kAfter = 40, kDim = 64;
  CacheShape shape;
  shape.layers = 2;
  shape.kv_heads = 2;
  shape.key_dim = shape.value_dim = kDim;
  shape.logits.scale = 0.125f;
  const MethodInfo& info = find_method(GetParam().method);
  CacheOptions options;
  const bool exact = info.window_policy == WindowPolicy::all && !info.global_budget;
  options.policy = Policy::parse(exact ? GetParam().method : GetParam().method + ":bytes=1/2");
  options.protocol = GetParam().protocol;
  options.key_type = GetParam().keys;
  options.value_type = GetParam().values;
  options.expected_tokens = kPrompt + kAfter;
  const Matrix rows = random_matrix(kPrompt + kAfter, 2 * kDim, 1);
  Matrix out(kPrompt + kAfter, 2 * kDim);
  Cache cache(shape, options);
  std::size_t most = 0;
  for (std::size_t t = 0; t < kPrompt + kAfter;) {
    const std::size_t n = t < kPrompt ? 100 : 1;
    for (std::size_t l = 0; l < 2; ++l) {
      const auto part = rows.view().slice(t, n);
      cache.forward(l, part, part, part, out.view().slice(t, n));
    }
    t += n;
    most = std::max(most, cache.bytes().used());
    if (t == kPrompt && !info.global_budget) cache.finish_prompt();
  }
  const CacheSize::Need need = CacheSize(shape, options).need(kPrompt, kAfter);
  EXPECT_GE(need.most, most);
  EXPECT_GE(need.most, need.kept);
  if (info.global_budget) return;  // still whole
  const auto kept = static_cast<double>(cache.bytes().total());
  EXPECT_NEAR(static_cast<double>(need.kept) / kept, 1.0, 0.02);
  EXPECT_LE(need.most, (exact ? 1.4 : 2.5) * static_cast<double>(most));
}

INSTANTIATE_TEST_SUITE_P(All, SizeOf, testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param.method + "_" + std::string(to_string(info.param.protocol)) + "_" +
                     std::string(to_string(info.param.keys));
  std::ranges::replace(name, '-', '_');
  return name;
});

TEST(SizeOfExact, IsWhatACacheWithoutAMethodUses) {
  for (StorageType type : {StorageType::bf16, StorageType::int8, StorageType::q4}) {
    CacheShape shape;
    shape.layers = 2;
    shape.kv_heads = 2;
    shape.key_dim = shape.value_dim = 64;
    shape.logits.scale = 0.125f;
    CacheOptions options;
    options.key_type = options.value_type = type;
    const Matrix rows = random_matrix(300, 128, 1);
    Matrix out(300, 128);
    Cache cache(shape, options);
    for (std::size_t l = 0; l < 2; ++l) {
      cache.forward(l, rows.view(), rows.view(), rows.view(), out.view());
    }
    EXPECT_EQ(CacheSize(shape, options).exact(300), cache.bytes().used()) << to_string(type);
  }
}

}  // namespace
}  // namespace ballast::test
