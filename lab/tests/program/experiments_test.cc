// The experiments on queries, keys and values, and the capture that feeds them.
#include <gmock/gmock.h>

#include <algorithm>

#include "cli/model_run.h"
#include "model/reference_case.h"

namespace ballast {
namespace {

using nlohmann::json;
using test::expect_refusal;
using test::run_with;
using test::Said;
using test::Words;
using testing::HasSubstr;
using test::operator+;

const Words kStream = {"--synth", "--tokens",     "300", "--layers",   "2", "--heads",
                       "4",       "--kv-heads",   "2",   "--dim",      "8", "--clusters",
                       "6",       "--query-norm", "4",   "--key-norm", "4"};

json result_of(const Words& command) {
  const Said said = run_with(command + Words{"--json"});
  EXPECT_EQ(said.exit_code, 0) << said.err;
  json out = said.exit_code == 0 ? said.json() : json::object();
  for (json& row : out["results"]) row.erase("compress_seconds");
  // What is drawn repeats the rows.
  out.erase("plots");
  return out;
}

TEST(Experiments, SayTheSameTwice) {
  for (const Words& command :
       {Words{"eval", "ablation", "--sink", "8", "--window", "16", "--queries", "16", "--seeds",
              "2", "--blocks", "16,32", "--rates", "0.5,0.25"},
        Words{"eval", "norms"}, Words{"eval", "clusters", "--centres", "1,4,64"},
        Words{"eval", "heavy"}}) {
    const json first = result_of(command + kStream);
    EXPECT_EQ(first.dump(), result_of(command + kStream).dump());
    EXPECT_EQ(first["experiment"], command[1]);
    EXPECT_THAT(first["command"], HasSubstr("ballast eval " + command[1] + " "));
    EXPECT_THAT(first["title"], HasSubstr("synthetic stream"));
  }
}

TEST(Experiments, AblationHasARowForEachBlockRateAndLayer) {
  const json rows =
      result_of(Words{"eval", "ablation", "--sink", "8", "--window", "16", "--queries", "16",
                      "--seeds", "2", "--blocks", "16,64", "--rates", "0.5,0.25"} +
                kStream)["results"];
  ASSERT_EQ(rows.size(), 8u);
  EXPECT_EQ(rows[0]["layer"], 0);
  EXPECT_EQ(rows[0]["block"], 16);
  EXPECT_EQ(rows[1]["rate"], 0.25);
  EXPECT_EQ(rows[2]["block"], 64);
  EXPECT_EQ(rows[7]["layer"], 1);
  EXPECT_GT(rows[1]["error"], rows[0]["error"]);
  expect_refusal(run_with(Words{"eval", "ablation", "--method", "uniform"} + kStream), "block");
  expect_refusal(run_with(Words{"eval", "ablation", "--blocks", "0"} + kStream), "block");
  expect_refusal(run_with({"eval", "ablation"}), "give a file or --synth");
}

TEST(Experiments, NormsAreThoseOfTheStream) {
  const json rows = result_of(Words{"eval", "norms"} + kStream)["results"];
  ASSERT_EQ(rows.size(), 3u);  // two layers, and all
  EXPECT_EQ(rows[2]["layer"], "all");
  EXPECT_NEAR(rows[2]["query"], 4, 0.4);
  EXPECT_NEAR(rows[2]["key_shifted"], 4, 0.4);
  EXPECT_GT(rows[2]["query_ci"], 0);
  EXPECT_EQ(result_of(Words{"eval", "norms", "--select-layers", "1"} + kStream)["results"].size(),
            1u);
}

TEST(Experiments, ClustersShowInTheRadius) {
  const json rows = result_of(
      Words{"eval", "clusters", "--centres", "64,1", "--select-layers", "0"} + kStream)["results"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["part"], "keys");
  EXPECT_EQ(rows[0]["centres"], 1);  // in order, however given
  EXPECT_LT(rows[1]["radius"], rows[0]["radius"]);
  EXPECT_EQ(rows[3]["part"], "values");
  expect_refusal(run_with(Words{"eval", "clusters", "--centres", "0"} + kStream),
                 "must be at least 1");
  expect_refusal(run_with(Words{"eval", "clusters", "--select-kv-heads", "7"} + kStream),
                 "there is no KV head 7");
}

TEST(Experiments, NewtonsStepsThatDivergeLeaveTheRest) {
  const Words words = {"eval", "submodular", "-q", "--synth", "--tokens", "600", "--dim", "8"};
  const json rows = result_of(words)["results"];
  EXPECT_TRUE(rows[0]["greedy"].is_number());
  const json& newton = rows[3];
  EXPECT_TRUE(newton["steps"].is_number());
  EXPECT_EQ(newton["steps_drawn"], "diverged");
  EXPECT_THAT(run_with(words).out, HasSubstr("diverged     a step overshot"));
}

TEST(Experiments, HeavyTokensGetMostAttention) {
  const json rows = result_of(Words{"eval", "heavy"} + kStream)["results"];
  ASSERT_EQ(rows.size(), 2u);
  for (const json& row : rows) {
    EXPECT_GT(row["sparsity"], 0);
    EXPECT_LT(row["sparsity"], 1);
    EXPECT_GT(row["share_20"], 0.2);
    EXPECT_GT(row["share_20"], row["share_1"]);
  }
  expect_refusal(run_with(Words{"eval", "heavy", "-m", "x.gguf"} + kStream), "give -m and --text");
  expect_refusal(run_with(Words{"eval", "heavy", "--removed", "1"} + kStream), "between 0 and 1");
}

class Capture : public testing::Test {
 protected:
  static void SetUpTestSuite() { case_ = new test::ReferenceCase("llama"); }
  static void TearDownTestSuite() { delete case_; }
  void SetUp() override {
    if (!case_->made()) GTEST_SKIP() << "tests/model/reference.py needs python3 with numpy";
    write_text(dir_ / "text", "It was dark. The box was near the door. It was shut.");
  }
  std::string path(const char* name) const { return (dir_ / name).string(); }
  Words capture(const Words& more) const {
    return Words{"capture", "-m", case_->gguf().string(), "-f", path("text")} + more;
  }

  static test::ReferenceCase* case_;
  TempDir dir_;
};
test::ReferenceCase* Capture::case_ = nullptr;

TEST_F(Capture, FeedsTheExperiments) {
  const Said said = run_with(capture({"-o", path("qkv"), "--layers", "1", "--dtype", "f32"}));
  ASSERT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr(path("qkv") + ": 1 layer of "));
  EXPECT_EQ(run_with({"inspect", path("qkv")}).exit_code, 0);
  EXPECT_EQ(result_of({"eval", "norms", path("qkv")})["results"][0]["layer"], 1);
  const Words heavy = {"eval",   "heavy",      path("qkv"), "-m",  case_->gguf().string(),
                       "--text", path("text"), "--removed", "0.25"};
  const json rows = result_of(heavy)["results"];
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[1]["of"], "words");
  EXPECT_EQ(rows[2]["of"], "everything");
  EXPECT_EQ(rows[3]["method"], "h2o:rate=0.75,keep=light");
  EXPECT_NE(rows[2]["perplexity"], rows[3]["perplexity"]);
  EXPECT_GT(rows[2]["perplexity"], 1);
  test::columns = "80";
  const std::string narrow = run_with(heavy).out;
  test::columns = "200";
  EXPECT_THAT(narrow, testing::ContainsRegex("perplexity +nats/token\n"));
  EXPECT_THAT(narrow, testing::ContainsRegex("\neverything  +[0-9]"));
  EXPECT_THAT(narrow, testing::Not(HasSubstr("\neverything\n")));
}

TEST_F(Capture, OfManyPromptsGivesMeansAndIntervals) {
  std::string prompts;
  for (int i = 0; i < 3; ++i) {
    prompts +=
        json{{"prompt", "line " + std::to_string(i) + ": <7>\nIt was dark. What is in line?\n"},
             {"expected_number", i}}
            .dump() +
        "\n";
  }
  write_text(dir_ / "x_lines.jsonl", prompts);
  const Words many = {"capture", "-m", case_->gguf().string(), "--data", path("x_lines.jsonl")};
  const json made = run_with(many + Words{"--limit", "2", "-o", path("prompts"), "--json"}).json();
  ASSERT_EQ(made["files"].size(), 2u);
  const json both = result_of({"eval", "norms", path("prompts")});
  EXPECT_EQ(both["settings"]["prompts"], 2);
  EXPECT_THAT(both["title"], HasSubstr("2 texts"));
  double mean = 0;
  for (const char* name : {"prompts/0001.safetensors", "prompts/0002.safetensors"}) {
    mean += result_of({"eval", "norms", path(name)})["results"][0]["query"].get<double>() / 2;
  }
  const json row = both["results"][0];
  EXPECT_NEAR(row["query"].get<double>(), mean, 1e-9);
  EXPECT_EQ(row["prompts"], 2);
  EXPECT_LT(row["query_low"], row["query"]);
  EXPECT_GT(row["query_high"], row["query"]);
  const Words ends = {"--sink", "2", "--window", "4", "--queries", "4"};
  const json errors = result_of(
      Words{"eval", "attention", path("prompts"), "--methods", "uniform", "--rates", "0.5"} + ends);
  EXPECT_EQ(errors["results"][0]["prompts"], 2);
  EXPECT_TRUE(errors["results"][0].contains("error_low"));
  EXPECT_EQ(
      result_of(Words{"eval", "ablation", path("prompts"), "--blocks", "4", "--rates", "0.5"} +
                ends)["results"]
          .size(),
      3u);
  std::filesystem::create_directories(dir_ / "none");
  expect_refusal(run_with({"eval", "norms", path("none")}), "without safetensors files");
  expect_refusal(run_with(many + Words{"-f", path("text"), "-o", path("x")}), "--file and --data");
}

TEST_F(Capture, TakesTheFirstTokens) {
  const json whole = run_with(capture({"-o", path("a"), "--json"})).json();
  EXPECT_EQ(whole["layers"].size(), 3u);
  const json some = run_with(capture({"-o", path("b"), "--tokens", "9", "--json"})).json();
  EXPECT_EQ(some["tokens"], 9);
  EXPECT_GT(whole["tokens"], 9);
  EXPECT_EQ(some["type"], "f16");
}

TEST_F(Capture, ATextPastTheModelsPositionsIsNamed) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += "the lazy dog ";
  write_text(dir_ / "long", text);
  const Words words = {"capture", "-m",     case_->gguf().string(), "-f", path("long"),
                       "-o",      path("x")};
  expect_refusal(run_with(words), path("long") + ": ");
  expect_refusal(run_with(words), " takes the first ones");
  EXPECT_FALSE(std::filesystem::exists(path("x")));
}

TEST_F(Capture, RefusesWhatCannotBe) {
  expect_refusal(run_with(capture({"-o", path("x"), "--layers", "3"})), "there is no layer 3");
  expect_refusal(run_with(capture({"-o", path("x"), "--dtype", "int8"})), "unknown type 'int8'");
  expect_refusal(run_with(capture({"-o", path("no/x")})), "No such file or directory");
  write_text(dir_ / "text", "");
  expect_refusal(run_with(capture({"-o", path("x")})), "there is no text in it");
  EXPECT_FALSE(std::filesystem::exists(path("x")));
}

}  // namespace
}  // namespace ballast
