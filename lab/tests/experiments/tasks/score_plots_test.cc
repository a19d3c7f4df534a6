#include "experiments/tasks/score_plots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ballast {
namespace {

using Names = std::vector<std::string>;

const std::vector<ResultColumn> kGroup = {{"task", "task", Unit::text, ""}};

Json row(const std::string& task, const std::string& method, double rate, double score) {
  Json out = {{"task", task}, {"method", method}, {"score", score}, {"score_error", 0.1}};
  if (rate > 0) out["rate"] = rate;
  return out;
}

TEST(ScorePlots, OfSeveralMemoriesAreLinesOfEachGroup) {
  const std::vector<Json> rows = {row("a", "exact", 0, 1),    row("a", "h2o", 0.5, 0.7),
                                  row("a", "h2o", 0.25, 0.6), row("b", "exact", 0, 0.9),
                                  row("b", "h2o", 0.5, 0.5),  row("b", "h2o", 0.25, 0.4)};
  const auto plots = score_plots("T", rows, kGroup, "score", "acc");
  ASSERT_EQ(plots.size(), 2u);
  EXPECT_EQ(plots[1].title, "T: b");
  EXPECT_EQ(plots[1].y_title, "acc");
  EXPECT_EQ(plots[1].x_title, "fraction of entries kept");
  ASSERT_EQ(plots[1].lines.size(), 2u);
  // What is exact is level over the memories of the others.
  const auto& exact = plots[1].lines[0].points;
  ASSERT_EQ(exact.size(), 2u);
  EXPECT_EQ(exact[0].x, 0.25);
  EXPECT_EQ(exact[1].x, 0.5);
  EXPECT_EQ(exact[0].y, 0.9);
  EXPECT_EQ(exact[1].y, 0.9);
  const auto& h2o = plots[1].lines[1].points;
  ASSERT_EQ(h2o.size(), 2u);
  EXPECT_EQ(h2o[0].y, 0.5);
  EXPECT_EQ(h2o[0].deviation, 0.1);
}

TEST(ScorePlots, ShowTheOverallRowsAloneWhereThereAreSome) {
  const std::vector<Json> rows = {row("a", "h2o", 0.5, 0.7), row("a", "h2o", 0.25, 0.6),
                                  row("all", "h2o", 0.5, 0.5), row("all", "h2o", 0.25, 0.4)};
  const auto plots = score_plots("T", rows, kGroup, "score", "acc");
  ASSERT_EQ(plots.size(), 1u);
  EXPECT_EQ(plots[0].title, "T");
  EXPECT_EQ(plots[0].lines[0].points[0].y, 0.5);
}

TEST(ScorePlots, OfOneMemoryAreBars) {
  const std::vector<Json> rows = {row("a", "exact", 0, 1), row("a", "h2o", 0.5, 0.7),
                                  row("b", "exact", 0, 0.9), row("b", "h2o", 0.5, 0.5)};
  const auto plots = score_plots("T", rows, kGroup, "score", "acc");
  ASSERT_EQ(plots.size(), 1u);
  EXPECT_EQ(plots[0].kind, Plot::Kind::bars);
  EXPECT_EQ(plots[0].x_labels, (Names{"a", "b"}));
  ASSERT_EQ(plots[0].lines.size(), 2u);
  EXPECT_EQ(plots[0].lines[1].name, "h2o");
  EXPECT_EQ(plots[0].lines[1].points[1].y, 0.5);
}

TEST(AddScores, GoBesideTheOnesThatAreThere) {
  std::vector<Sample> samples(2);
  samples[0].group = samples[1].group = {{"task", "a"}};
  const std::vector<Variant> variants(1);
  std::vector<std::vector<Answered>> answers(2, std::vector<Answered>(1));
  answers[0][0].text = "long";
  const Scorer one = [](const Sample&, const Answered&) { return 1.0; };
  const Scorer length = [](const Sample&, const Answered& a) {
    return static_cast<double>(a.text.size());
  };
  auto rows = score_rows(samples, variants, answers, one);
  add_scores(rows, "length", samples, variants, answers, length, false);
  EXPECT_EQ(rows.at(0)["score"], 1.0);
  EXPECT_EQ(rows[0]["length"], 2.0);
  EXPECT_EQ(rows[0]["length_error"], 2.0);
}

}  // namespace
}  // namespace ballast
