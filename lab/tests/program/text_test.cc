// The experiments that ask a model questions from benchmark files, on a tiny model with random
// weights.
#include <signal.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "cli/program.h"
#include "paths.h"
#include "program/tiny.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::copa;
using test::expect_refusal;
using test::kTwoMethods;
using test::run_with;
using test::Said;
using test::Words;
using testing::HasSubstr;
using test::operator+;

const fs::path kShared = BALLAST_SHARED_DATA;

class EvalText : public test::EvalTiny {};

TEST_F(EvalText, LinesGiveTheSameRowsEachTime) {
  const Words words = kTwoMethods + Words{"--lines", "2,5", "--repeat", "2", "--max-tokens", "4"};
  const json once = result("lines", words);
  ASSERT_EQ(once["results"].size(), 4u);
  EXPECT_EQ(once["results"][0]["lines"], 2);
  EXPECT_EQ(once["results"][0]["method"], "exact");
  EXPECT_EQ(once["results"][0]["samples"], 2);
  EXPECT_EQ(once["results"][1]["rate"], 0.5);
  EXPECT_LT(once["results"][1]["entries"], once["results"][0]["entries"]);
  EXPECT_LT(once["results"][1]["cache_bytes"], once["results"][0]["cache_bytes"]);
  EXPECT_EQ(result("lines", words), once);
}

TEST_F(EvalText, APaperIsItsRowsAndWhereItsClaimsHold) {
  write_text(dir_ / "text", std::string(40, 'a') + " the lazy dog jumps over it");
  const Words words = {"eval",
                       "paper",
                       "balancekv",
                       "-m",
                       model(),
                       "--text",
                       path("text"),
                       "-o",
                       path("paper"),
                       "--rows",
                       "table-3,table-4,table-1",
                       "-q",
                       "--json"};
  const Said said = run_with(words);
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const json rows = said.json().at("results");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].at("row"), "Table 3");
  EXPECT_GT(rows[0].at("pairs"), 0);
  EXPECT_EQ(rows[0].at("paper"), "3.34, 15.3");
  EXPECT_THAT(rows[2].at("verdict").get<std::string>(), HasSubstr("needs longbench/qasper"));
  EXPECT_THAT(rows[3].at("verdict").get<std::string>(), HasSubstr("needs coco/captions"));
  const json norms = json::parse(read_text(path("paper") + "/table-3.json"));
  EXPECT_EQ(norms.at("experiment"), "norms");
  EXPECT_THAT(read_text(path("paper") + "/balancekv.html"), HasSubstr("values shorter than keys"));
  // What is there is not measured again, unless the command would be another.
  const auto written = fs::last_write_time(path("paper") + "/table-3.json");
  ASSERT_EQ(run_with(words).exit_code, 0);
  EXPECT_EQ(fs::last_write_time(path("paper") + "/table-3.json"), written);
  const std::string deep = "{\"a\":" + std::string(100, '[') + std::string(100, ']') + "}";
  write_text(path("paper") + "/table-3.json", deep);
  expect_refusal(run_with(words), "table-3.json: JSON nested deeper than 64");
  const Said listed = run_with({"eval", "paper", "h2o", "--list"});
  EXPECT_THAT(listed.out, HasSubstr("needs choice/copa.jsonl"));
  expect_refusal(run_with({"eval", "paper", "x"}), "known: balancekv, clustergen, h2o");
  expect_refusal(run_with({"eval", "paper", "h2o", "--rows", "table-99"}), "--list shows them");
  expect_refusal(run_with({"eval", "paper", "h2o"}), "-m");
}

TEST_F(EvalText, APaperReadsNoMoreThanTheLongestText) {
  write_text(dir_ / "text", std::string(400, 'a') + " the lazy dog jumps over it");
  const Said said =
      run_with({"eval", "paper", "h2o", "-m", model(), "--text", path("text"), "-o", path("paper"),
                "--rows", "table-12", "--longest", "48", "-q", "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const json row = said.json().at("results").at(0);
  EXPECT_EQ(row.at("longest"), 48);
  EXPECT_EQ(row.at("model"), model());
  EXPECT_THAT(row.at("row_command").get<std::string>(), HasSubstr("--length 48"));
  const json measured = json::parse(read_text(path("paper") + "/table-12.json"));
  EXPECT_EQ(measured.at("settings").at("tokens"), 48);
}

TEST_F(EvalText, ARowOfOneFileOfAPaperIsMeasured) {
  fs::create_directories(dir_ / "longeval");
  const json line = {
      {"prompt", "line a: <12>\nWhat is in line a?"}, {"expected_number", 12}, {"num_lines", 1}};
  write_text(dir_ / "longeval/200_lines.jsonl", line.dump() + "\n");
  const Said said = run_with({"eval", "paper", "clustergen", "-m", model(), "--data", path("."),
                              "-o", path("paper"), "--rows", "table-1-200", "-q", "--json"});
  ASSERT_EQ(said.exit_code, 0) << said.err;
  const json rows = said.json().at("results");
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows[0].at("row"), "Table 1, 5k");
  EXPECT_THAT(rows[0].at("verdict").get<std::string>(), testing::Not(HasSubstr("failed")));
}

TEST_F(EvalText, LinesGoOnAfterAnInterruption) {
  const Words words = Words{"eval", "lines",    "-m", model(),        "-q", "--lines",
                            "5",    "--repeat", "16", "--max-tokens", "2"} +
                      kTwoMethods;
  const fs::path progress = dir_ / "cut.json.progress";
  {
    test::Program program(words + Words{"--json=" + path("cut.json")});
    for (int i = 0; i < 2000 && (!fs::exists(progress) || fs::file_size(progress) < 2000); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    program.signal(SIGINT);
    program.wait();
  }
  if (!fs::exists(progress)) GTEST_SKIP() << "it was done before it could be interrupted";
  EXPECT_FALSE(fs::exists(dir_ / "cut.json"));
  const std::string found = read_text(progress);
  write_text(progress, found + "{\"key\": \"half");  // cut off within a line
  const Said resumed = run_with(words + Words{"--json=" + path("cut.json")});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_FALSE(fs::exists(progress));
  const Said whole = run_with(words + Words{"--json=" + path("whole.json")});
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  const json a = json::parse(read_text(dir_ / "cut.json"));
  const json b = json::parse(read_text(dir_ / "whole.json"));
  ASSERT_EQ(a["results"].size(), b["results"].size());
  for (std::size_t i = 0; i < a["results"].size(); ++i) {
    EXPECT_EQ(a["results"][i]["score"], b["results"][i]["score"]);
    EXPECT_EQ(a["results"][i]["samples"], 16);
    EXPECT_EQ(a["results"][i]["cache_bytes"], b["results"][i]["cache_bytes"]);
  }
}

std::string longbench_record(const std::string& task, const std::string& answer, int length) {
  return json{{"input", "Which?"},   {"context", "It was dark. The box was near the door."},
              {"answers", {answer}}, {"all_classes", {"Food", "Sport"}},
              {"length", length},    {"dataset", task}}
             .dump() +
         "\n";
}

TEST_F(EvalText, LongBenchScoresEachTaskAndTheirMean) {
  file("data/hotpotqa_e.jsonl",
       longbench_record("hotpotqa", "a", 100) + longbench_record("hotpotqa", "b", 9000));
  file("data/trec_e.jsonl", longbench_record("trec", "Food", 100));
  const Words words = kTwoMethods + Words{"--data", path("data"), "--e"};
  const json all = result("longbench", words);
  std::vector<std::string> tasks;
  for (const json& row : all["results"]) tasks.push_back(row["task"]);
  EXPECT_EQ(tasks, (Words{"hotpotqa", "hotpotqa", "trec", "trec", "all", "all"}));
  EXPECT_EQ(all["title"], "LongBench-E");
  const json by_length = result("longbench", words + Words{"--tasks", "hotpotqa", "--by-length"});
  EXPECT_EQ(by_length["results"][0]["length"], "0-4k");
  EXPECT_EQ(by_length["results"][2]["length"], "8k+");
  const Said table = eval("light", {"--data", path("data"), "--e", "--tasks", "trec", "--rates",
                                    "0.8", "--methods", "balancekv"});
  EXPECT_EQ(table.exit_code, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("balancekv"));
}

TEST_F(EvalText, BadDataIsNamedBeforeAnythingRuns) {
  const std::string good = longbench_record("hotpotqa", "a", 1);
  expect_refusal(eval("longbench", {"--data", file("a.jsonl", good + "{\"context\": 1}\n")}),
                 "a.jsonl:2: LongBench has no task \"a\"");
  expect_refusal(eval("longbench", {"--data", file("b.jsonl", good + "{\"dataset\": \"lcc\"}")}),
                 "b.jsonl:2: the field \"context\" is missing");
  expect_refusal(eval("longbench", {"--data", file("c.jsonl", "")}), "holds no sample");
  expect_refusal(eval("longbench", {"--data", file("d.jsonl", good), "--tasks", "dureader"}),
                 "Chinese");
  expect_refusal(eval("lines", {"--data", path("nothing.jsonl")}), "No such file");
  expect_refusal(eval("ruler", {"--data", file("vt.jsonl", "{\"input\": \"x\"}")}),
                 "vt.jsonl:1: the field \"outputs\" is missing");
  expect_refusal(eval("summarise", {"--data", file("x.jsonl", "{\"article\": \"x\"}")}),
                 "\"summary_gt\" is missing");
  expect_refusal(eval("choice", {"--data", file("e.jsonl", "{}")}), "does not begin with a task");
  expect_refusal(
      eval("choice", {"--data", file("piqa.jsonl",
                                     R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 0})")}),
      "--shots 5 needs as many examples; the file has 0");
  expect_refusal(
      eval("diversity", {"--data", file("one.jsonl", R"({"article": "x", "summary_gt": "y"})")}),
      "Self-BLEU needs at least two prompts");
}

TEST_F(EvalText, SamplesLongerThanTheModelLoseTheirMiddle) {
  json record = json::parse(longbench_record("hotpotqa", "a", 9000));
  record["context"] = std::string(5000, 'x');
  const std::string data = file("hotpotqa.jsonl", record.dump());
  const json all = result("longbench", kTwoMethods + Words{"--data", data});
  EXPECT_THAT(all["notes"].dump(), HasSubstr("their middle was left out"));
}

TEST_F(EvalText, RulerAndSummariesScoreAnswers) {
  const std::string ruler =
      file("niah_single_1.jsonl", R"({"input": "A word.\nWhich is it?", "outputs": ["word"]})");
  const json scores =
      result("ruler", kTwoMethods + Words{"--data", ruler, "--max-tokens", "3", "--raw"});
  EXPECT_EQ(scores["results"].size(), 2u);
  const std::string articles =
      file("xsum.jsonl",
           R"({"article": "It was dark.\nSay it.\n", "summary_gt": "Dark.", "max_tokens": 4})");
  for (const char* flag : {"-q", "--helm"}) {
    const json summaries = result("summarise", kTwoMethods + Words{"--data", articles, flag});
    ASSERT_EQ(summaries["results"].size(), 2u);
    for (const char* key : {"rouge_1", "score", "rouge_l"}) {
      const double score = summaries["results"][0][key];
      EXPECT_TRUE(score >= 0 && score <= 1) << key;
    }
  }
}

TEST_F(EvalText, RulersFilesOfOurTasksNeedNoHaystack) {
  const Words words = {"--make", path("made"), "--lengths", "2000", "--count", "2", "--tasks"};
  const Said made = eval("ruler", words + Words{"code_result,arithmetic_3"});
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(read_text(path("made") + "/2000/code_result.jsonl"), HasSubstr("def "));
  EXPECT_THAT(read_text(path("made") + "/2000/arithmetic_3.jsonl"), HasSubstr("At first the"));
  expect_refusal(eval("ruler", words + Words{"code_result,vt"}), "give --haystack");
}

TEST_F(EvalText, ChoiceRunsAllOfThePapersMethods) {
  const json all =
      result("choice", {"--data", file("copa.jsonl", copa(4)), "--shots", "1", "--rates", "0.5"});
  ASSERT_EQ(all["results"].size(), 15u);
  for (const json& row : all["results"]) {
    EXPECT_EQ(row["samples"], 4);
    EXPECT_FALSE(row.contains("acc_norm"));
    const double score = row["score"];
    EXPECT_EQ(score * 4, std::round(score * 4));
  }
  // Hardly anything is kept, and nothing breaks.
  EXPECT_EQ(result("choice", {"--data", file("copa.jsonl", copa(2)), "--shots", "0", "--rates",
                              "0.01"})["results"]
                .size(),
            15u);
}

TEST_F(EvalText, ChoiceUnitesWinograndesHalves) {
  std::string data;
  for (int i = 0; i < 3; ++i) {
    data += json{{"sentence", "The cup hit the wall and _ broke " + std::to_string(i)},
                 {"option1", "it"},
                 {"option2", "the wall"},
                 {"answer", "1"}}
                .dump() +
            "\n";
  }
  const json all = result("choice", kTwoMethods + Words{"--data", file("winogrande.jsonl", data),
                                                        "--shots", "0", "--limit", "2"});
  ASSERT_EQ(all["results"].size(), 2u);
  EXPECT_EQ(all["results"][0]["samples"], 2);
}

TEST_F(EvalText, ChoiceGivesLengthScoresWhereTheHarnessDoes) {
  const std::string data =
      file("piqa.jsonl", R"({"goal": "g", "sol1": "a", "sol2": "bb", "label": 0})");
  const json all = result("choice", kTwoMethods + Words{"--data", data, "--shots", "0"});
  EXPECT_TRUE(all["results"][0].contains("acc_norm"));
}

TEST_F(EvalText, DiversityComparesTextsOfOneLength) {
  std::string data;
  for (const char* text : {"It was dark.", "The box was near the door.", "I sang."}) {
    data += json{{"article", text}, {"summary_gt", "x"}}.dump() + "\n";
  }
  const Words words = {"--data",    file("x.jsonl", data),
                       "--tokens",  "12",
                       "--methods", "exact;uniform",
                       "--rates",   "0.5",
                       "--seeds",   "2"};
  const json all = result("diversity", words);
  ASSERT_EQ(all["results"].size(), 2u);
  for (const json& row : all["results"]) {
    const double score = row["score"];
    EXPECT_TRUE(score >= 0 && score <= 1) << score;
  }
  EXPECT_EQ(result("diversity", words), all);
}

TEST_F(EvalText, PlotsAreDrawn) {
  const std::string plot = path("lines.svg");
  const Said said =
      eval("lines", {"--lines", "2", "--repeat", "1", "--max-tokens", "1", "--methods",
                     "exact;local", "--rates", "0.5,0.25", "--plot", plot});
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(read_text(plot), HasSubstr("<svg"));
}

TEST_F(EvalText, RealFilesRunUnchanged) {
  if (!fs::exists(kShared / "longeval")) GTEST_SKIP() << "no shared data";
  const Words one = {"--limit", "1", "--methods", "exact;local", "--rates", "0.5"};
  const auto shared = [](const char* name) { return (kShared / name).string(); };
  EXPECT_EQ(
      result("lines", one + Words{"--data", shared("longeval"), "--max-tokens", "4"})["results"]
          .size(),
      4u);
  EXPECT_EQ(result("ruler", one + Words{"--data", shared("ruler"), "--max-tokens", "4"})["results"]
                .size(),
            2u);
  EXPECT_EQ(
      result("longbench", one + Words{"--data", shared("longbench/multi_news.jsonl")})["results"]
          .size(),
      2u);
  EXPECT_EQ(
      result("summarise", one + Words{"--data", shared("longbench/xsum_0shot.jsonl")})["results"]
          .size(),
      2u);
}

}  // namespace
}  // namespace ballast
