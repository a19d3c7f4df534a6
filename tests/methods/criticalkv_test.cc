#include <array>

#include "methods/scored_support.h"

namespace ballast::test {
namespace {

TEST(CriticalKv, Contract) {
  check_contract({.method = "criticalkv:budget=64", .any_chunking = false});
  check_contract({.method = "criticalkv:budget=64,kernel=7,pooling=max", .any_chunking = false});
}

/// |A_q v|_1 for given matrices, the mean over two query heads.
class Projected : public ValueNorms {
 public:
  explicit Projected(std::size_t dim)
      : maps_{random_matrix(11, dim, 1), random_matrix(11, dim, 2)} {}
  double norm(std::span<const float> value) const {
    double sum = 0;
    for (const Matrix& map : maps_) {
      for (std::size_t r = 0; r < map.rows(); ++r) {
        double dot = 0;
        for (std::size_t c = 0; c < value.size(); ++c) dot += double{map[r][c]} * value[c];
        sum += std::abs(dot) / 2;
      }
    }
    return sum;
  }
  void measure(std::size_t layer, std::size_t kv_head, const RowsView& values,
               std::span<float> out) const override {
    EXPECT_EQ(layer, 2u);  // of setup_of()
    EXPECT_EQ(kv_head, 3u);
    std::vector<float> row(values.dim);
    for (std::size_t i = 0; i < values.rows; ++i) {
      values.decode(i, row);
      out[i] = static_cast<float>(norm(row));
    }
  }

 private:
  std::array<Matrix, 2> maps_;
};

TEST(CriticalKv, TwoChoicesFollowTheAlgorithm) {
  const std::size_t group = 2;
  for (const std::string options : {"", ",first=0", ",first=1", ",kernel=1", ",kernel=4"}) {
    const std::string method = "criticalkv:budget=9" + options;
    const Policy policy = Policy::parse(method);
    const auto reach = static_cast<std::ptrdiff_t>(policy.integer("kernel") / 2);
    for (std::size_t n : {0u, 1u, 3u, 60u, 501u}) {
      for (std::size_t capacity : {0u, 1u, 2u, 25u, 700u}) {
        const std::size_t dim = 5;
        HeadStream stream = random_stream(n, dim, n + capacity);
        for (float& m : stream.attention_sum) m = std::round(m * 65536.0f) / 65536.0f;
        const auto norms = std::make_shared<const Projected>(dim);
        SummarySetup setup = setup_of(method, capacity, dim, Protocol::prefill, n);
        setup.queries_per_kv_head = group;
        for (const bool projected : {true, false}) {
          stream.norms = projected ? norms.get() : nullptr;
          const auto queries = double(std::min<std::size_t>(n + 3, 32) * group);
          std::vector<double> first, second;
          for (std::size_t i = 0; i < n; ++i) {
            double pooled = 0, norm = 0;
            for (std::size_t j = 0; j < n; ++j) {
              if (std::abs(std::ptrdiff_t(j) - std::ptrdiff_t(i)) <= reach)
                pooled += stream.attention_sum[j];
            }
            for (float x : stream.values[i]) norm += std::abs(double{x});
            if (projected) norm = norms->norm(stream.values[i]);
            first.push_back(pooled);
            second.push_back((pooled / queries / double(2 * reach + 1) + 1e-4) * norm);
          }
          const std::size_t half =
              std::size_t(policy.real("first") * double(std::min(n, capacity)));
          std::vector<Position> want = best(first, n > capacity ? half : n);
          for (Position i : want) second[std::size_t(i)] = -1;
          for (Position i : best(second, std::min(n, capacity) - want.size())) want.push_back(i);
          std::ranges::sort(want);
          auto summary = make_summary(setup);
          summary->absorb(stream.block(0, n));
          ASSERT_EQ(kept_positions(*summary), want) << method << ", " << n << " " << capacity;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ballast::test
