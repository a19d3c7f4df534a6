#include "experiments/attention/prompt_means.h"

#include <gmock/gmock.h>

#include <cmath>

#include "ballast/error.h"
#include "experiments/metrics/interval.h"

namespace ballast {
namespace {

Result result_of(double error, const char* method = "a") {
  Result out;
  out.title = "one";
  out.rows = {{{"method", method}, {"rate", 0.5}, {"error", error}, {"by_layer", {error, 1.0}}}};
  return out;
}

TEST(PromptMeans, HaveTheIntervalOfStudentsT) {
  const std::vector<std::string> keys = {"error"};
  const Result mean = mean_over_prompts({result_of(0.1), result_of(0.2), result_of(0.6)}, keys);
  const Json& row = mean.rows.at(0);
  EXPECT_DOUBLE_EQ(row["error"], 0.3);
  EXPECT_EQ(row["rate"], 0.5);
  EXPECT_EQ(row["method"], "a");
  EXPECT_DOUBLE_EQ(row["by_layer"][0], 0.3);
  EXPECT_EQ(row["by_layer"][1], 1.0);
  EXPECT_EQ(row["prompts"], 3);
  // Deviations -0.2, -0.1, 0.3: a variance of 0.14 / 2.
  const double standard_error = std::sqrt(0.07 / 3);
  EXPECT_NEAR(row["error_error"], standard_error, 1e-12);
  EXPECT_NEAR(row["error_high"], 0.3 + 4.303 * standard_error, 1e-9);
  EXPECT_NEAR(row["error_low"], 0.3 - 4.303 * standard_error, 1e-9);
}

TEST(PromptMeans, OneTextHasNoInterval) {
  const std::vector<std::string> keys = {"error"};
  const Result one = mean_over_prompts({result_of(0.1)}, keys);
  EXPECT_EQ(one.rows[0]["error"], 0.1);
  EXPECT_EQ(one.rows[0]["error_error"], 0.0);
  EXPECT_FALSE(one.rows[0].contains("error_low"));
  EXPECT_THROW(mean_over_prompts({}, keys), Error);
  Result longer = result_of(0.2);
  longer.rows.push_back(longer.rows[0]);
  EXPECT_THROW(mean_over_prompts({result_of(0.1), longer}, keys), Error);
}

TEST(PromptMeans, StudentsTIsThatOfTables) {
  const std::pair<double, double> table[] = {{1, 12.706}, {2, 4.303},  {5, 2.571},
                                             {7, 2.365},  {10, 2.228}, {30, 2.042}};
  for (const auto& [degrees, t] : table) EXPECT_NEAR(student_t(degrees), t, 1e-3) << degrees;
  EXPECT_EQ(student_t(0), 0);
  EXPECT_NEAR(student_t(1e9), 1.95996, 1e-4);
}

}  // namespace
}  // namespace ballast
