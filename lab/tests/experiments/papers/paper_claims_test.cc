#include "experiments/papers/paper_claims.h"

#include <gmock/gmock.h>

#include <cmath>

namespace ballast {
namespace {

Json row(const char* method, double rate, double score, double error = 0) {
  return {{"method", method}, {"rate", rate}, {"score", score}, {"score_error", error}};
}

PaperClaim claim(const char* better, const char* worse, bool lower = false) {
  PaperClaim out;
  out.metric = "score";
  out.lower = lower;
  out.better = better;
  out.worse = worse;
  return out;
}

TEST(PaperClaims, ComparesRowsOfOneSetting) {
  const std::vector<Json> rows = {row("a", 0.5, 0.9), row("b", 0.5, 0.8), row("a", 0.25, 0.3),
                                  row("b", 0.25, 0.6), row("b", 0.1, 0.1)};
  const ClaimVerdict verdict = judge(claim("a", "b"), rows);
  EXPECT_EQ(verdict.pairs, 2u);
  EXPECT_EQ(verdict.holds, 1u);
  EXPECT_DOUBLE_EQ(verdict.better, 0.6);
  EXPECT_DOUBLE_EQ(verdict.worse, 0.7);
  EXPECT_EQ(verdict.text(), "agrees in 1 of 2");
  // The smaller number wins: the settings change places.
  EXPECT_EQ(judge(claim("b", "a", true), rows).holds, 1u);
  EXPECT_EQ(judge(claim("b", "a"), std::span(rows).first(2)).text(), "disagrees");
  EXPECT_EQ(judge(claim("a", "b"), std::span(rows).first(2)).text(), "agrees");
}

TEST(PaperClaims, ADifferenceWithinTwoErrorsIsLevelWhereThePapersWouldShow) {
  // 1.96 sqrt(0.03² + 0.04²) = 0.098.
  const std::vector<Json> within = {row("a", 0.5, 0.89, 0.03), row("b", 0.5, 0.8, 0.04)};
  PaperClaim powered = claim("a", "b");
  powered.paper_better = 70;  // percent
  powered.paper_worse = 60;
  EXPECT_EQ(judge(powered, within).text(), "level");
  powered.paper_worse = 65;
  EXPECT_EQ(judge(powered, within).text(), "undecided");
  // Without the paper's numbers a tenth of the larger one, 0.089.
  EXPECT_EQ(judge(claim("a", "b"), within).text(), "undecided");
  const std::vector<Json> beyond = {row("a", 0.5, 0.9, 0.03), row("b", 0.5, 0.8, 0.04)};
  EXPECT_EQ(judge(claim("a", "b"), beyond).text(), "agrees");
  EXPECT_EQ(judge(claim("b", "a"), beyond).text(), "disagrees");
  std::vector<Json> both = within;
  both.insert(both.end(), {row("a", 0.1, 0.9), row("b", 0.1, 0.1)});
  EXPECT_EQ(judge(claim("a", "b"), both).text(), "agrees in 1 of 2, undecided in 1");
}

TEST(PaperClaims, DifferencesOfTheSameSamplesArePaired) {
  std::vector<Json> rows = {row("a", 0.5, 0.6, 0.2), row("b", 0.5, 0.4, 0.2)};
  EXPECT_EQ(judge(claim("a", "b"), rows).text(), "undecided");
  // Every sample loses about as much.
  rows[0]["scores"] = {1.0, 0.9, 0.8, 0.3, 0.0};
  rows[1]["scores"] = {0.8, 0.7, 0.5, 0.1, -0.1};
  EXPECT_EQ(judge(claim("a", "b"), rows).text(), "agrees");
}

TEST(PaperClaims, NoVerdictWhereTheExactCacheIsAtChance) {
  std::vector<Json> rows = {row("a", 0.5, 0.04, 0.001),
                            row("b", 0.5, 0.02, 0.001),
                            {{"method", "exact"}, {"score", 0.05}, {"score_error", 0.01}}};
  EXPECT_EQ(judge(claim("a", "b"), rows).text(), "exact at chance: needs a larger model");
  EXPECT_EQ(judge(claim("a", "b"), rows).pairs, 0u);
  rows[2]["score"] = 0.9;
  EXPECT_EQ(judge(claim("a", "b"), rows).text(), "agrees");
  // One of four choices.
  rows[2]["chance"] = 0.25;
  rows[2]["score"] = 0.26;
  EXPECT_EQ(judge(claim("a", "b"), rows).text(), "exact at chance: needs a larger model");
  // Another task has its own verdict.
  for (Json& one : rows) one["task"] = "x";
  for (Json one : std::vector<Json>(rows)) {
    one["task"] = "y";
    if (one["method"] == "exact") one["score"] = 0.9;
    rows.push_back(one);
  }
  EXPECT_EQ(judge(claim("a", "b"), rows).text(), "agrees");
  EXPECT_EQ(judge(claim("a", "b"), rows).at_chance, 1u);
}

TEST(PaperClaims, TheExactCacheIsComparedWithEverySize) {
  const std::vector<Json> rows = {
      row("a", 0.5, 0.3), row("a", 0.2, 0.6), {{"method", "exact"}, {"score", 0.5}}};
  EXPECT_EQ(judge(claim("a", "exact", true), rows).text(), "agrees in 1 of 2");
}

TEST(PaperClaims, AMeanOfGroupsIsNoSetting) {
  std::vector<Json> rows = {row("a", 0.5, 0.9), row("b", 0.5, 0.8), row("a", 0.5, 0.7),
                            row("b", 0.5, 0.8)};
  for (std::size_t i = 0; i < 4; ++i) rows[i]["task"] = i < 2 ? "qasper" : "all";
  EXPECT_EQ(judge(claim("a", "b"), rows).text(), "agrees");
  EXPECT_EQ(judge(claim("a", "b"), rows).pairs, 1u);
  EXPECT_EQ(ranking(claim("a", "b"), rows)[0].settings, 1u);
}

TEST(PaperClaims, SeedsGiveAnErrorWhereSamplesDoNot) {
  std::vector<Json> rows = {{{"method", "a"}, {"error", 0.2}}, {{"method", "b"}, {"error", 0.21}}};
  PaperClaim below = claim("a", "b", true);
  below.metric = "error";
  EXPECT_EQ(judge(below, rows).text(), "agrees");
  for (Json& one : rows) one["error_sd_seeds"] = 0.005;
  EXPECT_EQ(judge(below, rows).text(), "level");
}

TEST(PaperClaims, AStarIsTheBestOfSeveral) {
  const std::vector<Json> rows = {row("k:window=1", 0.5, 0.4), row("k:window=2", 0.5, 0.7),
                                  row("k", 0.5, 0.1), row("b", 0.5, 0.6)};
  EXPECT_DOUBLE_EQ(judge(claim("k*", "b"), rows).better, 0.7);
  EXPECT_DOUBLE_EQ(judge(claim("k*", "b", true), rows).better, 0.1);
  EXPECT_EQ(judge(claim("k", "b"), rows).text(), "disagrees");
}

TEST(PaperClaims, ComparesColumnsOfARow) {
  PaperClaim columns;
  columns.by = "";
  columns.lower = true;
  columns.better = "value";
  columns.worse = "key";
  const std::vector<Json> rows = {{{"value", 3.0}, {"key", 15.0}}, {{"value", 4.0}, {"key", 3.0}}};
  EXPECT_EQ(judge(columns, rows).text(), "agrees in 1 of 2");
}

TEST(PaperClaims, NothingMeasuredIsSaid) {
  EXPECT_EQ(judge(claim("a", "b"), {}).text(), "not measured");
  const std::vector<Json> odd = {{{"method", "a"}},
                                 {{"method", "b"}, {"score", nullptr}},
                                 {{"score", 1.0}},
                                 Json::array(),
                                 row("a", 0.5, 1)};
  EXPECT_EQ(judge(claim("a", "b"), odd).text(), "not measured");
  EXPECT_TRUE(std::isnan(judge(claim("a", "b"), odd).better));
}

TEST(PaperClaims, ANumberMayStandInPlaceOfAName) {
  const std::vector<Json> rows = {row("a", 0.5, 0.97), row("a", 0.25, 0.9), row("b", 0.5, 0.1)};
  PaperClaim above = claim("a", "");
  above.bound = 0.95;
  EXPECT_EQ(judge(above, rows).text(), "agrees in 1 of 2");
  EXPECT_DOUBLE_EQ(judge(above, rows).worse, 0.95);
  above.by = "";
  above.better = "score";
  EXPECT_EQ(judge(above, rows).pairs, 3u);
  EXPECT_EQ(judge(above, rows).holds, 1u);
}

TEST(PaperClaims, AClaimOfBeingLevelNeedsPower) {
  // The error of the difference is 0.05, of which 1.96 are 0.098.
  const std::vector<Json> rows = {row("a", 0.5, 0.89, 0.03), row("b", 0.5, 0.8, 0.04)};
  PaperClaim level = claim("a", "b");
  level.level = true;
  EXPECT_EQ(judge(level, rows).text(), "undecided");
  const std::vector<Json> sure = {row("a", 0.5, 0.82, 0.01), row("b", 0.5, 0.8, 0.01)};
  EXPECT_EQ(judge(level, sure).text(), "agrees");
  // How little the paper found between them asks for no more.
  level.paper_better = 43.2;
  level.paper_worse = 43.0;
  EXPECT_EQ(judge(level, sure).text(), "agrees");
  const std::vector<Json> apart = {row("a", 0.5, 0.7, 0.03), row("b", 0.5, 0.8, 0.04)};
  EXPECT_EQ(judge(level, apart).text(), "disagrees");
}

TEST(PaperClaims, TypesOfStorageAreComparedMethodByMethod) {
  std::vector<Json> rows = {row("a", 0.5, 0.9), row("a", 0.5, 0.8), row("b", 0.5, 0.1),
                            row("b", 0.5, 0.3)};
  for (std::size_t i = 0; i < 4; ++i) rows[i]["cache_type"] = i % 2 == 0 ? "bf16" : "int4";
  PaperClaim types = claim("int4", "bf16");
  types.by = "cache_type";
  EXPECT_EQ(judge(types, rows).pairs, 2u);
  EXPECT_EQ(judge(types, rows).holds, 1u);
}

TEST(PaperClaims, TimesThatDifferByLittleAreLevel) {
  const std::vector<Json> rows = {row("a", 0.5, 1.05), row("b", 0.5, 1.0)};
  PaperClaim times = claim("a", "b");
  EXPECT_EQ(judge(times, rows).text(), "agrees");
  times.tolerance = 0.1;
  EXPECT_EQ(judge(times, rows).text(), "level");
  EXPECT_EQ(judge(times, std::vector<Json>{row("a", 0.5, 1.2), row("b", 0.5, 1.0)}).text(),
            "agrees");
}

TEST(PaperClaims, RanksAllNamesByTheirMean) {
  std::vector<Json> rows = {row("a", 0.5, 0.4), row("b", 0.5, 0.5), row("a", 0.25, 0.8),
                            row("b", 0.25, 0.5), row("c", 0.5, 0.1)};
  rows.push_back({{"method", "c"}, {"score", nullptr}});
  const std::vector<RankedName> best = ranking(claim("a", "b"), rows);
  ASSERT_EQ(best.size(), 3u);
  EXPECT_EQ(best[0].name, "a");
  EXPECT_DOUBLE_EQ(best[0].mean, 0.6);
  EXPECT_EQ(best[0].settings, 2u);
  EXPECT_EQ(best[2].name, "c");
  EXPECT_EQ(best[2].settings, 1u);
  EXPECT_EQ(ranking(claim("a", "b", true), rows)[0].name, "c");
  PaperClaim least = claim("a", "b");
  least.least_first = true;
  EXPECT_EQ(ranking(least, rows)[0].name, "c");
}

}  // namespace
}  // namespace ballast
