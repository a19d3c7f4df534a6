#include "experiments/data/index_instance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "support.h"

namespace ballast {
namespace {

using Part = KvSource::Part;

TEST(IndexInstance, IsAppendixC) {
  IndexOptions options;
  options.tokens = 500;
  options.dim = 40;
  options.radius = 3;
  const IndexInstance instance(options);
  const Matrix keys = instance.read(Part::key, 0, 0, 0, 500);
  const Matrix values = instance.read(Part::value, 0, 0, 0, 500);
  const Matrix queries = instance.read(Part::query, 0, 0, 0, 500);
  std::set<std::size_t> bits;
  std::map<std::size_t, std::vector<float>> key_of;
  double plus = 0, positive = 0;
  for (std::size_t t = 0; t < 500; ++t) {
    const std::size_t bit = instance.bit(t);
    EXPECT_LT(bit, 1000u);
    EXPECT_TRUE(bits.insert(bit).second);
    double square = 0;
    for (std::size_t c = 0; c < 40; ++c) {
      square += double{keys[t][c]} * keys[t][c];
      plus += keys[t][c] > 0 ? 1 : 0;
      ASSERT_EQ(std::abs(values[t][c]), c == bit % 40 ? 1.0f : 0.0f);
      positive += values[t][c] > 0 ? 1 : 0;
    }
    EXPECT_NEAR(square, 9, 1e-4);
    // One key a group.
    const std::vector<float> key(keys[t].begin(), keys[t].end());
    const auto [known, fresh] = key_of.emplace(bit / 40, key);
    if (!fresh) {
      EXPECT_EQ(known->second, key);
    }
  }
  EXPECT_EQ(key_of.size(), 25u);
  EXPECT_NEAR(positive / 500, 0.5, 5 * 0.5 / std::sqrt(500.0));      // 5 deviations
  EXPECT_NEAR(plus / (500 * 40), 0.5, 5 * 0.5 / std::sqrt(1000.0));  // of 25 keys of 40 signs
  // A query is the key of a bit, which is 1 in about half of the cases.
  std::size_t there = 0;
  for (std::size_t t = 0; t < 500; ++t) {
    const std::vector<float> query(queries[t].begin(), queries[t].end());
    for (const auto& [group, key] : key_of) there += key == query ? 1 : 0;
  }
  EXPECT_EQ(there, 500u);
}

TEST(IndexInstance, AnyPartIsTheSame) {
  const IndexInstance instance({.tokens = 300, .dim = 7, .radius = 2, .seed = 5});
  for (Part part : {Part::query, Part::key, Part::value}) {
    const Matrix all = instance.read(part, 0, 0, 0, 300);
    const Matrix some = instance.read(part, 0, 0, 113, 50);
    EXPECT_TRUE(std::equal(some.data(), some.data() + 350, all[113].data()));
  }
  EXPECT_NE(instance.bit(0), IndexInstance({.tokens = 300, .dim = 7, .seed = 6}).bit(0));
}

TEST(IndexInstance, RefusesWhatCannotBe) {
  for (IndexOptions o : {IndexOptions{.tokens = 0}, IndexOptions{.dim = 0},
                         IndexOptions{.dim = 257}, IndexOptions{.radius = 0}}) {
    EXPECT_NE(test::error_of([&] { IndexInstance{o}; }), "");
  }
  const IndexInstance one({.tokens = 1});
  EXPECT_NE(test::error_of([&] { one.read(Part::key, 0, 0, 1, 1); }), "");
}

}  // namespace
}  // namespace ballast
