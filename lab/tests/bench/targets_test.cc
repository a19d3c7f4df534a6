// The table of ./lab/bench.sh, from files such as Google Benchmark and ballast bench write.
#include "targets.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace ballast {
namespace {

using testing::HasSubstr;
using testing::Not;

const Target* find(const std::vector<Target>& targets, std::string_view what) {
  const auto found = std::find_if(targets.begin(), targets.end(),
                                  [&](const Target& target) { return target.what == what; });
  return found == targets.end() ? nullptr : &*found;
}

Json run(const std::string& name, const Json& counters) {
  Json json = {{"name", name}, {"run_type", "iteration"}};
  json.update(counters);
  return json;
}

Json attention() {
  return {
      {"benchmarks",
       std::vector<Json>{
           run("decode/bf16/dim:128/group:1/weighted:0/threads:2/min_time:0.3/manual_time",
               {{"of_read", 0.9}, {"quarter", 3.9}}),
           run("decode/bf16/dim:64/group:4/weighted:0/threads:2/min_time:0.3/manual_time",
               {{"of_read", 0.7}, {"quarter", 3.5}, {"cost", 0.2}}),
           run("decode/bf16/dim:128/group:1/weighted:1/threads:2/min_time:0.3/manual_time",
               {{"of_read", 0.1}, {"quarter", 0.1}, {"cost", 0.01}}),
           run("decode/bf16/dim:128/group:4/weighted:0/threads:1/min_time:0.3/manual_time",
               {{"of_read", 0.1}, {"quarter", 0.1}, {"cost", 0.9}}),
           run("prompt/f32/tokens:2048/dim:64/group:3", {{"of_f32", 0.7}}),
           run("prompt/int8/tokens:2048/dim:64/group:3", {{"of_bf16", 0.5}}),
           run("prompt/bf16/tokens:2048/dim:64/group:3", {{"of_bf16", 3.0}, {"of_tiles", 0.3}}),
           run("prompt/q4/tokens:2048/dim:64/group:3", {{"of_bf16", 2.0}, {"of_tiles", 0.1}})}}};
}

TEST(Targets, EachMeasurementIsHeldAgainstItsBound) {
  const auto targets = targets_of({{"attention", attention()}});
  const Target* read = find(targets, "bf16, of the plain read");
  ASSERT_NE(read, nullptr);
  ASSERT_EQ(read->measured.size(), 2u) << "one thread and weights are no measurements of it";
  EXPECT_EQ(read->measured[1].name, "bf16, d = 64, 4 queries");
  EXPECT_TRUE(read->reaches(read->measured[0].value));
  EXPECT_FALSE(read->reaches(read->measured[1].value));
  EXPECT_FALSE(read->reached());
  EXPECT_FALSE(find(targets, "four queries beside one")->reached());
  EXPECT_TRUE(find(targets, "weights")->reached());
  EXPECT_FALSE(find(targets, "a quarter of the entries")->reached());
  const Target* prompt = find(targets, "attention, of the bf16 peak");
  ASSERT_EQ(prompt->measured.size(), 1u) << "without that peak there is no share of it";
  EXPECT_TRUE(prompt->reached()) << "at least: the bound itself, too";
  const Target* tiles = find(targets, "attention by tiles, of their peak");
  ASSERT_EQ(tiles->measured.size(), 1u) << "codes take more time than products";
  EXPECT_FALSE(tiles->reached());
  EXPECT_EQ(find(targets, "a prompt of 16,384"), nullptr) << "nobody measured it";
  EXPECT_FALSE(read->reaches(std::numeric_limits<double>::quiet_NaN()));
}

TEST(Targets, TheTableNamesWhatWasMissed) {
  const std::string text = to_text(targets_of({{"attention", attention()}}));
  EXPECT_THAT(text, HasSubstr("≥ 80%      70 to 90%  not by 1 of 2"));
  EXPECT_THAT(text, HasSubstr("bf16, d = 64, 4 queries"));
  EXPECT_THAT(text, HasSubstr("≤ 5%            20%  not by 1 of 1"));
  EXPECT_THAT(text, HasSubstr("1.0%  reached"));
  EXPECT_THAT(text.substr(text.find("Not reached")), Not(HasSubstr("bf16, d = 128\n")));
  const Json json = to_json(targets_of({{"attention", attention()}}));
  EXPECT_EQ(json[0].at("at_least"), 0.8);
  EXPECT_EQ(json[0].at("reached"), false);
  EXPECT_EQ(json[0].at("measured")[1].at("value"), 0.7);
}

TEST(Targets, ThreadsAreComparedWithinATypeAndWidth) {
  const auto product = [](const char* type, int width, int threads, double rate) {
    return run(
        fmt::format("prompt/{}/width:{}/m:256/threads:{}/pages_KiB:2048", type, width, threads),
        {{"Gflop/s", rate}, {"of_peak", rate / 400}});
  };
  const Json matmul = {
      {"benchmarks",
       {product("Q8_0", 768, 1, 100), product("Q8_0", 768, 2, 190), product("Q8_0", 4096, 1, 150),
        product("Q8_0", 4096, 2, 240), product("F32", 768, 1, 50), product("F32", 768, 2, 100),
        run("decode/Q8_0/width:768/m:1/threads:2/pages_KiB:4", {{"of_read", 0.9}}),
        run("decode/Q8_0/width:768/m:4/threads:2/pages_KiB:4", {{"of_read", 0.2}}),
        run("decode/F32/width:768/m:1/threads:2/pages_KiB:4", {{"of_read", 0.2}})}}};
  const auto targets = targets_of({{"matmul", matmul}});
  const Target* threads = find(targets, "two threads beside one");
  ASSERT_EQ(threads->measured.size(), 3u);
  EXPECT_DOUBLE_EQ(threads->measured[0].value, 1.9);
  EXPECT_DOUBLE_EQ(threads->measured[1].value, 1.6);
  EXPECT_DOUBLE_EQ(threads->measured[2].value, 2.0);
  EXPECT_FALSE(threads->reached());
  EXPECT_TRUE(find(targets, "a token: Q4_0, Q4_K, Q6_K, Q8_0, of the plain read")->reached());
}

Json row(const char* method, std::size_t prompt, const Json& more) {
  Json json = {{"method", method}, {"prompt", prompt}};
  json.update(more);
  return json;
}

TEST(Targets, WholeModelsBesideThePeerAndOneAnother) {
  const Json speed = {
      {"results",
       std::vector<Json>{
           row("exact", 512, {{"decode_speed_over_peer", 0.9}, {"prompt_speed_over_peer", 9}}),
           row("exact", 16384, {{"decode_speed_over_peer", 2.5}, {"prompt_speed_over_peer", 2.9}}),
           row("balancekv:rate=0.25", 16384,
               {{"decode_speed_over_peer", 6},
                {"prompt_speed_over_peer", nullptr},
                {"prompt_seconds", 10},
                {"compress_seconds", 0.3}})}}};
  const Json methods = {
      {"results",
       std::vector<Json>{
           row("exact", 16384, {{"prompt_seconds", 10}, {"compress_seconds", 0}}),
           row("h2o:rate=0.25", 16384, {{"prompt_seconds", 12}, {"compress_seconds", 1}}),
           row("kcenter:rate=0.25", 16384, {{"prompt_seconds", 12}, {"compress_seconds", 5}})}}};
  const auto targets = targets_of({{"speed", speed}, {"methods", methods}});
  EXPECT_FALSE(find(targets, "a token after 512")->reached());
  EXPECT_TRUE(find(targets, "a token after 16,384, exact")->reached());
  EXPECT_TRUE(find(targets, "a token after 16,384, a quarter kept")->reached());
  EXPECT_FALSE(find(targets, "a prompt of 16,384")->reached());
  EXPECT_FALSE(find(targets, "BalanceKV, of the prompt")->reached());
  EXPECT_NEAR(find(targets, "H2O's scores, added to the prompt")->measured[0].value, 0.2, 1e-9);
  const Target* centres = find(targets, "k-center, 4,096 centres a head");
  EXPECT_EQ(centres->measured[0].value, 5);
  EXPECT_FALSE(centres->bound.has_value());
  EXPECT_EQ(find(targets, "ClusterGen"), nullptr);
}

TEST(Targets, ThroughputCountsWhereMemoryHoldsOneExactCache) {
  const auto fit = [](const char* method, std::size_t prompt, int batch, double rate) {
    return row(method, prompt, {{"batch", batch}, {"decode_tokens_per_second", rate}});
  };
  const Json throughput = {
      {"results", std::vector<Json>{fit("exact", 512, 1, 100), fit("h2o:rate=0.2", 512, 7, 310),
                                    fit("exact", 2048, 0, 0), fit("h2o:rate=0.2", 2048, 2, 200),
                                    fit("exact", 512, 4, 300), fit("h2o:rate=0.2", 512, 9, 400)}}};
  const auto targets = targets_of({{"throughput", throughput}});
  const Target* decode = find(targets, "decoding, beside exact");
  ASSERT_EQ(decode->measured.size(), 1u);
  EXPECT_EQ(decode->measured[0].name, "h2o:rate=0.2 after 512");
  EXPECT_DOUBLE_EQ(decode->measured[0].value, 3.1);
}

TEST(Targets, LengthsAreComparedWithinAMethod) {
  const auto at = [](const char* method, std::size_t tokens, double seconds, double memory) {
    return Json{{"method", method},
                {"tokens", tokens},
                {"decode_seconds_per_token", seconds},
                {"peak_memory", memory}};
  };
  const Json far = {{"results", std::vector<Json>{at("a", 1024, 1, 1), at("a", 2048, 2, 10),
                                                  at("a", 4096, 3, 11), at("b", 2048, 1, 10),
                                                  at("b", 8192, 1.5, 10), at("c", 1024, 1, 1)}}};
  const auto targets = targets_of({{"far", far}});
  const Target* time = find(targets, "a token, the shipped model");
  ASSERT_EQ(time->measured.size(), 2u);
  EXPECT_EQ(time->measured[0].name, "a, 4,096");
  EXPECT_DOUBLE_EQ(time->measured[0].value, 1.5);
  EXPECT_DOUBLE_EQ(time->measured[1].value, 1.5);
  EXPECT_DOUBLE_EQ(find(targets, "memory, the shipped model")->measured[0].value, 1.1);
}

TEST(Targets, AFileOfAnotherKindIsAnError) {
  EXPECT_ANY_THROW(targets_of({{"speed", Json{{"benchmarks", Json::array()}}}}));
  EXPECT_ANY_THROW(targets_of({{"attention", Json::array()}}));
  EXPECT_TRUE(targets_of({}).empty());
}

}  // namespace
}  // namespace ballast
