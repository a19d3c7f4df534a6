// What every experiment owes its users, whatever it measures: the same command gives the same
// bytes, an interrupted run goes on, bad data is named. A new experiment needs a line in the table
// here.
#include <algorithm>
#include <cstring>
#include <set>

#include "cli/model_run.h"
#include "model/reference_case.h"
#include "sanitized.h"
#include "vision/towers.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using json = nlohmann::ordered_json;  // as the results are: in the order of their keys
using test::expect_refusal;
using test::run_with;
using test::Said;
using testing::HasSubstr;
using List = std::vector<std::string>;

struct Case {
  const char* name;
  List arguments;
  List files = {};  ///< of its data
};

List join(std::initializer_list<List> parts) {
  List out;
  for (const List& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

const List kStream = {"--synth", "--tokens",     "300", "--layers",   "2", "--heads",
                      "4",       "--kv-heads",   "2",   "--dim",      "8", "--clusters",
                      "6",       "--query-norm", "4",   "--key-norm", "4"};
const List kShape = {
    "--shape",
    "layers=2,width=64,heads=4,kv=2,head=32,hidden=96,vocabulary=300,positions=2000,type=q8_0"};
const List kEnds = {"--sink", "8", "--window", "16", "--queries", "16"};
/// A method of each kind: nothing watched, random numbers, attention watched.
const List kMethods = {
    "--methods", "exact;local;uniform:sink=2,window=4;h2o", "--rates", "0.5", "--seeds", "2"};

test::Towers* towers = nullptr;

/// The files that EveryExperiment writes, {} standing for their folder, and the tiny model.
std::vector<Case> every_case() {
  const List model = {"-m", "{}/long.gguf"};
  const List asked = join({model, kMethods});
  return {
      {"attention",
       join({{"--methods", "balancekv:block=16;uniform;h2o", "--rates", "0.5,0.25", "--seeds", "2"},
             kEnds,
             kStream})},
      {"ablation", join({{"--blocks", "16,32", "--rates", "0.5", "--seeds", "2"}, kEnds, kStream})},
      {"memory", {"--lengths", "300,600", "--budgets", "100,400", "--dim", "8", "--seeds", "2"}},
      {"norms", kStream},
      {"clusters", join({{"--centres", "1,4,64"}, kStream})},
      {"heavy", join({model, {"--text", "{}/text", "--length", "200"}, kStream})},
      {"submodular", join({{"--ground", "6", "--keep", "2", "--sets", "3"}, kStream})},
      {"neurons", join({model, {"{}/text", "{}/lines.jsonl", "--length", "60"}})},
      {"needle", join({asked, {"--lengths", "500,620", "--depth-count", "2", "--repeat", "1"}})},
      {"lines", join({asked, {"--data", "{}/lines.jsonl", "--max-tokens", "4"}}), {"lines.jsonl"}},
      {"records",
       join(
           {asked, {"--lengths", "600", "--repeat", "2", "--questions", "3", "--question-later"}})},
      {"longbench",
       join({asked, {"--data", "{}/hotpotqa.jsonl", "--data", "{}/trec.jsonl"}}),
       {"hotpotqa.jsonl", "trec.jsonl"}},
      {"light", join({asked, {"--data", "{}/hotpotqa.jsonl"}}), {"hotpotqa.jsonl"}},
      {"ruler",
       join({asked, {"--data", "{}/niah_single_1.jsonl", "--max-tokens", "4"}}),
       {"niah_single_1.jsonl"}},
      {"summarise", join({asked, {"--data", "{}/xsum.jsonl"}}), {"xsum.jsonl"}},
      {"captions", join({{"-m", (towers->dir / "qwen2").string(), "--data", "{}/captions.json",
                          "--max-tokens", "4"},
                         kMethods})},
      {"choice",
       join({asked, {"--data", "{}/copa.jsonl", "--data", "{}/piqa.jsonl", "--shots", "1"}}),
       {"copa.jsonl", "piqa.jsonl"}},
      {"quantised", join({asked, {"--data", "{}/copa.jsonl", "--shots", "0"}}), {"copa.jsonl"}},
      {"diversity", join({asked, {"--data", "{}/xsum.jsonl", "--tokens", "8"}}), {"xsum.jsonl"}},
      {"answers", join({model,
                        {"--data", "{}/questions.jsonl", "-o", "{}/answers", "--max-tokens", "4",
                         "--methods", "exact;h2o", "--rates", "0.5"}})},
      {"stream", join({model,
                       {"{}/text", "--methods", "h2o;streaming-llm;uniform:sink=2,window=4",
                        "--budgets", "24", "--tokens", "300"}})},
      {"efficiency", join({kShape,
                           {"--prompt", "64", "--generate", "3", "--repeat", "1", "--methods",
                            "exact;h2o", "--rates", "0.5"}})},
      {"throughput", join({kShape,
                           {"--prompt", "64", "--generate", "3", "--memory", "8M", "--batch", "2",
                            "--methods", "exact;h2o", "--rates", "0.5"}})},
  };
}

std::string record(const char* task, const char* answer) {
  return json{{"input", "Which?"},   {"context", "It was dark. The box was near the door."},
              {"answers", {answer}}, {"all_classes", {"Food", "Sport"}},
              {"length", 100},       {"dataset", task}}
             .dump() +
         "\n";
}

test::ReferenceCase* tiny = nullptr;

std::string folder() { return tiny->dir().path().string(); }
std::string path(const std::string& name) { return folder() + "/" + name; }

/// The tiny model told that it has more positions, a text, and a file of every benchmark.
void write_files() {
  std::string bytes = read_text(tiny->gguf());
  const std::string key = "llama.context_length";
  const std::uint32_t positions = 2048;
  std::memcpy(bytes.data() + bytes.find(key) + key.size() + 4, &positions, sizeof positions);
  write_text(path("long.gguf"), bytes);
  write_text(path("text"), "It was dark. The box was near the door. It was shut. I sang.");
  std::string lines, ruler, articles, copa, piqa;
  for (int i = 0; i < 3; ++i) {
    const std::string n = std::to_string(i);
    lines += json{{"prompt", "line a: <1" + n + ">\nline b: <2>\nWhat is in line a?"},
                  {"expected_number", 10 + i},
                  {"num_lines", 2}}
                 .dump() +
             "\n";
    ruler +=
        json{{"input", "A word " + n + ".\nWhich is it?"}, {"outputs", {"word"}}}.dump() + "\n";
    articles += json{{"article", "It was dark " + n + ".\nSay it.\n"},
                     {"summary_gt", "Dark."},
                     {"max_tokens", 4}}
                    .dump() +
                "\n";
    copa += json{{"premise", "It rained " + n + "."},
                 {"choice1", "I got wet."},
                 {"choice2", "I sang."},
                 {"question", "effect"},
                 {"label", i % 2}}
                .dump() +
            "\n";
    piqa +=
        json{{"goal", "go " + n}, {"sol1", "left"}, {"sol2", "right"}, {"label", 1}}.dump() + "\n";
  }
  write_text(path("questions.jsonl"),
             "{\"question_id\": 1, \"turns\": [\"Where?\", \"Why was it dark?\"]}\n"
             "{\"question_id\": 2, \"turns\": [\"Who?\"]}\n");
  write_text(path("captions.json"),
             R"({"images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b.png"}],
                 "annotations": [{"image_id": 1, "caption": "A dog."},
                                 {"image_id": 2, "caption": "Two cats"}]})");
  test::write_png(path("a.png"), test::kPicture);
  test::write_png(path("b.png"), test::picture_of(60, 90));
  write_text(path("lines.jsonl"), lines);
  write_text(path("niah_single_1.jsonl"), ruler);
  write_text(path("xsum.jsonl"), articles);
  write_text(path("copa.jsonl"), copa);
  write_text(path("piqa.jsonl"), piqa);
  write_text(path("hotpotqa.jsonl"), record("hotpotqa", "a") + record("hotpotqa", "box"));
  write_text(path("trec.jsonl"), record("trec", "Food"));
}

/// `data`: where the files of questions are, if elsewhere.
List command(const Case& c, const List& more, const std::string& data = folder()) {
  List words = join({{"eval", c.name}, c.arguments, more});
  for (std::string& word : words) {
    if (word.starts_with("{}/")) {
      word.replace(0, 2, word == "{}/long.gguf" || word == "{}/text" ? folder() : data);
    }
  }
  return words;
}

class EveryExperiment : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    tiny = new test::ReferenceCase("llama");
    towers = new test::Towers;
    if (tiny->made()) write_files();
  }
  static void TearDownTestSuite() {
    delete tiny;
    delete towers;
  }
  void SetUp() override { BALLAST_NEED_REFERENCE(*tiny); }

  static void check_all(void (*check)(const Case&)) {
    for (const Case& c : every_case()) {
      SCOPED_TRACE(c.name);
      check(c);
    }
  }
};

/// Takes out what is measured with a clock, and memory of the whole process.
void hide_times(json& at, const std::string& experiment) {
  const bool timed = experiment == "efficiency" || experiment == "throughput";
  if (at.is_array()) {
    for (json& item : at) hide_times(item, experiment);
  }
  if (!at.is_object()) return;
  for (auto& [key, value] : at.items()) {
    const bool time =
        key.find("second") != std::string::npos || key.find("_over_floor") != std::string::npos ||
        (timed && (key == "machine" || key == "peak_memory" || key == "decode_ratio" ||
                   (key == "ratio" && experiment == "throughput") ||
                   (key == "notes" && experiment == "efficiency")));
    if (time) {
      value = "time";
    } else {
      hide_times(value, experiment);
    }
  }
  if (at.contains("y_title") && at["y_title"] == "seconds per KV head") at["lines"] = "times";
}

json result_of(const Said& said, const std::string& experiment) {
  EXPECT_EQ(said.exit_code, 0) << said.err;
  if (said.exit_code != 0) return {{"command", ""}, {"results", json::array()}};
  json out = json::parse(said.out);
  hide_times(out, experiment);
  return out;
}

void check_bytes(const Case& c) {
  const std::string name = c.name;
  const Said said = run_with(command(c, {"-q", "--json"}));
  json first = result_of(said, name);
  EXPECT_EQ(result_of(run_with(command(c, {"-q", "--json"})), name).dump(2), first.dump(2));
  // Threads change nothing either, but the command says how many.
  json other = result_of(run_with(command(c, {"-q", "--json", "--threads", "3"})), name);
  other["command"] = first["command"];
  for (json& row : other["results"]) row["command"] = first["command"];
  EXPECT_EQ(other.dump(2), first.dump(2));
}

void check_rows(const Case& c) {
  const json all = result_of(run_with(command(c, {"-q", "--json"})), c.name);
  ASSERT_TRUE(all.contains("experiment"));
  EXPECT_EQ(all["experiment"], c.name);
  ASSERT_FALSE(all["results"].empty());
  for (const json& row : all["results"]) {
    EXPECT_THAT(row["command"].get<std::string>(), HasSubstr("ballast eval "));
    const std::set<std::string> measures_no_cache = {"norms", "clusters", "heavy", "submodular",
                                                     "neurons"};
    if (measures_no_cache.contains(c.name)) continue;
    const auto has = [&](std::initializer_list<const char*> keys) {
      return std::ranges::any_of(keys, [&](const char* key) { return row.contains(key); });
    };
    EXPECT_TRUE(has({"entries"})) << row;
    EXPECT_TRUE(has({"cache_bytes", "summary_bytes", "sequence_bytes"})) << row;
    EXPECT_TRUE(has({"seconds_per_token", "compress_seconds", "decode_seconds"})) << row;
  }
}

void check_going_on(const Case& c) {
  const std::string name = c.name;
  const TempDir dir;
  const std::string file = (dir / "r.json").string(), progress = file + ".progress";
  // A second name for the file of findings, which goes when the experiment ends.
  write_text(progress, "");
  fs::create_hard_link(progress, dir / "findings");
  const List words = command(c, {"--json=" + file});
  ASSERT_EQ(run_with(words).exit_code, 0);
  EXPECT_FALSE(fs::exists(progress));
  json whole = json::parse(read_text(file));
  hide_times(whole, name);
  const std::string findings = read_text(dir / "findings");
  const std::size_t header = findings.find('\n') + 1;
  ASSERT_GT(findings.size(), header) << "nothing was noted";
  for (const double part : {0.0, 0.3, 0.7, 1.0}) {
    const auto cut =
        header + static_cast<std::size_t>(part * static_cast<double>(findings.size() - header));
    write_text(progress, findings.substr(0, cut));
    const auto kept = std::count(findings.begin(), findings.begin() + static_cast<long>(cut), '\n');
    const Said said = run_with(words);
    ASSERT_EQ(said.exit_code, 0) << said.err;
    if (kept > 1) {
      EXPECT_THAT(said.err, HasSubstr(".progress, which has " + std::to_string(kept - 1)));
    }
    json resumed = json::parse(read_text(file));
    hide_times(resumed, name);
    EXPECT_EQ(resumed.dump(2), whole.dump(2)) << part << " of the findings";
    EXPECT_FALSE(fs::exists(progress));
  }
  // Times come from the findings too where all are there: nothing was measured again.
  write_text(progress, findings);
  run_with(words);
  const std::string once = read_text(file);
  if (name != "efficiency") {
    write_text(progress, findings);
    run_with(words);
    EXPECT_EQ(read_text(file), once);
  }
  // Findings of another command are not mixed in, and not lost.
  write_text(progress, findings);
  const std::size_t at = findings.find("\"ballast_progress\":{") + 20;
  const std::string other =
      findings.substr(0, at) + "\"another\":1," + findings.substr(at, std::string::npos);
  write_text(progress, other);
  expect_refusal(run_with(words), "the progress of another command");
  EXPECT_EQ(read_text(progress), other);
}

void check_bad_data(const Case& c) {
  const TempDir dir;
  for (const std::string& bad : c.files) {
    const auto refused_with = [&](const std::string& content, const std::string& message) {
      for (const std::string& name : c.files) {
        write_text(dir / name, name == bad ? content : read_text(path(name)));
      }
      expect_refusal(run_with(command(c, {"-q"}, dir.path().string())), message);
    };
    const std::string good = read_text(path(bad)), at = (dir / bad).string();
    const auto last = std::to_string(std::count(good.begin(), good.end(), '\n') + 1);
    refused_with("", at + ": holds no sample");
    refused_with("\n \n", at + ": holds no sample");
    refused_with(good + "{\"half\": ", at + ":" + last + ": not valid JSON");
    refused_with(good + "[1]\n", at + ":" + last + ": array where an object was expected");
    // Each field that the first record needs, missing and of the wrong kind.
    const json whole = json::parse(good.substr(0, good.find('\n')));
    const std::set<std::string> may_miss = {"num_lines", "max_tokens", "length", "dataset",
                                            "all_classes"};
    for (const auto& [key, value] : whole.items()) {
      if (may_miss.contains(key)) continue;
      json less = whole, wrong = whole;
      less.erase(key);
      wrong[key] = json::object({{"an", "object"}});
      refused_with(good + less.dump() + "\n", at + ":" + last + ": the ");
      refused_with(good + wrong.dump() + "\n", at + ":" + last + ": the ");
    }
    fs::remove(dir / bad);
    expect_refusal(run_with(command(c, {"-q"}, dir.path().string())), "No such file");
  }
}

void check_methods(const Case& c) {
  const std::set<std::string> lists_none = {"ablation", "norms",      "clusters",
                                            "heavy",    "submodular", "neurons"};
  if (lists_none.contains(c.name)) return;
  expect_refusal(run_with(join({command(c, {"-q"}), {"--methods", "magic"}})), "unknown method");
}

TEST_F(EveryExperiment, GivesTheSameBytesAgainButForTimes) {
  if (test::kSanitized) GTEST_SKIP() << "the other tests show a sanitizer the same";
  check_all(check_bytes);
}
TEST_F(EveryExperiment, SaysInEveryRowWhatItCostAndWhereItCameFrom) { check_all(check_rows); }
TEST_F(EveryExperiment, GoesOnAfterAnInterruptionAnywhere) { check_all(check_going_on); }
/// Layers of which a later one needs an earlier one's state are not skipped.
TEST_F(EveryExperiment, WhatLayersShareIsMadeAgain) {
  for (const char* methods : {"spatten", "uniform;balancekv:block=16,outliers=yes"}) {
    const TempDir dir;
    const std::string progress = (dir / "r.json.progress").string();
    write_text(progress, "");
    fs::create_hard_link(progress, dir / "findings");
    const List words = join({{"eval", "attention", "--methods", methods, "--rates", "0.5",
                              "--seeds", "2", "--json=" + (dir / "r.json").string()},
                             kEnds,
                             kStream});
    ASSERT_EQ(run_with(words).exit_code, 0);
    const std::string findings = read_text(dir / "findings");
    EXPECT_EQ(std::count(findings.begin(), findings.end(), '\n'), 1) << findings;
  }
}
TEST_F(EveryExperiment, NamesBadDataBeforeAnythingRuns) { check_all(check_bad_data); }
TEST_F(EveryExperiment, RefusesMethodsThatAreNone) { check_all(check_methods); }

/// An experiment without a line in the table fails here.
TEST_F(EveryExperiment, IsInTheTable) {
  const Said said = run_with({"eval", "nothing"});
  EXPECT_EQ(said.exit_code, 2);
  const std::size_t begin = said.err.find("known: ") + 7;
  std::string known = said.err.substr(begin, said.err.find(';', begin) - begin);
  std::set<std::string> there, tested;
  for (std::size_t at = 0; at != std::string::npos;) {
    const std::size_t comma = known.find(", ", at);
    there.insert(known.substr(at, comma == std::string::npos ? comma : comma - at));
    at = comma == std::string::npos ? comma : comma + 2;
  }
  for (const Case& c : every_case()) tested.insert(c.name);
  there.erase("paper");  // runs the others; EvalText has its test
  EXPECT_EQ(tested, there);
}

}  // namespace
}  // namespace ballast
