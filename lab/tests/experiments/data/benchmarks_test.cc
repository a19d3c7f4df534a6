#include "experiments/data/benchmarks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "experiments/data/benchmark_wording.h"
#include "paths.h"
#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

const fs::path kShared = BALLAST_SHARED_DATA;

Answered answer(std::string text) {
  Answered out;
  out.text = std::move(text);
  return out;
}

class Benchmarks : public testing::Test {
 protected:
  fs::path file(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((dir_ / name).parent_path());
    write_text(dir_ / name, content);
    return dir_ / name;
  }
  std::string longbench_error(const std::string& name, const std::string& content,
                              const LongBenchOptions& options = {}) const {
    const fs::path path = file(name, content);
    return test::error_of([&] { read_longbench(path, options); });
  }
  TempDir dir_;
};

constexpr const char* kHotpot =
    R"({"input": "Who? {context}", "context": "C {input}", "answers": ["the Cat", "dog"],)"
    R"( "length": 5000, "dataset": "hotpotqa", "language": "en", "all_classes": null})";

TEST(LongBenchTable, IsTheBenchmarks) {
  std::set<std::string_view> names;
  std::size_t in_e = 0, chat = 0;
  for (const LongBenchTask& task : longbench_tasks()) {
    names.insert(task.name);
    in_e += task.in_e;
    chat += task.chat;
    EXPECT_EQ(task.prompt.find("{context}"), task.prompt.rfind("{context}")) << task.name;
    EXPECT_NE(task.prompt.find("{context}"), std::string_view::npos) << task.name;
  }
  EXPECT_EQ(names.size(), 16u);
  EXPECT_EQ(in_e, 13u);  // as the papers' tables have them
  EXPECT_EQ(chat, 11u);
}

TEST_F(Benchmarks, LongBenchPromptsAreTheBenchmarks) {
  auto samples = read_longbench(file("x.jsonl", kHotpot), {});
  ASSERT_EQ(samples.size(), 1u);
  const Sample& s = samples[0];
  EXPECT_THAT(s.id, testing::EndsWith("x.jsonl:1"));
  EXPECT_EQ(s.group, (Json{{"task", "hotpotqa"}}));
  EXPECT_EQ(s.max_tokens, 32u);
  EXPECT_FALSE(s.raw);
  // The data's braces are no marks.
  EXPECT_THAT(s.context, testing::EndsWith("The following are given passages.\nC {input}"));
  EXPECT_THAT(s.question, testing::EndsWith("\n\nQuestion: Who? {context}\nAnswer:"));
  const std::string both = s.context + s.question;
  join_prompts(samples);
  EXPECT_EQ(samples[0].question, both);
  EXPECT_EQ(samples[0].context, "");
}

TEST_F(Benchmarks, LongBenchTakesTheBestOfTheAnswers) {
  const auto samples = read_longbench(file("x.jsonl", kHotpot), {});
  EXPECT_DOUBLE_EQ(score_longbench(samples[0], answer("A cat.")), 1.0);
  EXPECT_DOUBLE_EQ(score_longbench(samples[0], answer("dog cat")), 2.0 / 3);
  EXPECT_DOUBLE_EQ(score_longbench(samples[0], answer("")), 0.0);
}

TEST_F(Benchmarks, LongBenchFewShotTasksCountTheirFirstLine) {
  const auto samples = read_longbench(
      file(
          "trec.jsonl",
          R"({"input": "q", "context": "c", "answers": ["Food"], "all_classes": ["Food", "Sport"]})"
          "\n"),
      {});
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_TRUE(samples[0].raw);
  EXPECT_EQ(samples[0].context + samples[0].question,
            "Please determine the type of the question below. Here are some examples of "
            "questions.\n\nc\nq");
  EXPECT_DOUBLE_EQ(score_longbench(samples[0], answer("\nFood\nSport")), 1.0);
  EXPECT_DOUBLE_EQ(score_longbench(samples[0], answer("Food, Sport")), 0.5);
}

TEST_F(Benchmarks, EveryLongBenchTaskReadsAndScores) {
  for (const LongBenchTask& task : longbench_tasks()) {
    const std::string name(task.name);
    const auto samples = read_longbench(
        file(
            name + ".jsonl",
            R"({"input": "i", "context": "c", "answers": ["Paragraph 3"], "all_classes": ["Paragraph 3"], "dataset": ")" +
                name + "_e\"}"),
        {});
    const bool count = task.score == LongBenchScore::count;  // of numbers alone
    EXPECT_NEAR(score_longbench(samples.at(0), answer("Paragraph 3")), count ? 0.0 : 1.0, 2e-8)
        << name;
    EXPECT_NEAR(score_longbench(samples.at(0), answer("zzz")), 0.0, 2e-8) << name;
  }
}

TEST_F(Benchmarks, LongBenchReadsAFolderInItsOrder) {
  const std::string record = R"({"input": "", "context": "c", "answers": ["x"], "length": 9000})";
  for (const char* name : {"qasper", "gov_report", "qasper_e", "vcsum"}) {
    file(std::string(name) + ".jsonl", record);
  }
  auto samples = read_longbench(dir_.path(), {});
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].group["task"], "qasper");
  EXPECT_EQ(samples[1].group["task"], "gov_report");
  samples = read_longbench(dir_.path(), {.e = true, .by_length = true});
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].group, (Json{{"task", "qasper"}, {"length", "8k+"}}));
  const auto error = [&](const LongBenchOptions& options) {
    return test::error_of([&] { read_longbench(dir_.path(), options); });
  };
  EXPECT_THAT(error({.tasks = {"lcc"}}), HasSubstr("lcc.jsonl: no such file; task lcc needs it"));
  EXPECT_THAT(error({.tasks = {"vcsum"}}), HasSubstr("Chinese"));
  EXPECT_THAT(error({.tasks = {"nothing"}}), HasSubstr("no task \"nothing\"; known: narrativeqa"));
  EXPECT_THAT(error({.tasks = {"qmsum"}, .e = true}), HasSubstr("not part of LongBench-E"));
}

TEST_F(Benchmarks, LongBenchNamesWhatIsWrong) {
  EXPECT_THAT(longbench_error("a.jsonl", R"({"dataset": "qasper", "context": "c"})"),
              HasSubstr("a.jsonl:1: the field \"input\" is missing"));
  EXPECT_THAT(longbench_error("b.jsonl", "{}"),
              HasSubstr("b.jsonl:1: LongBench has no task \"b\""));
  EXPECT_THAT(longbench_error("dureader.jsonl", "{}"), HasSubstr("Chinese"));
  EXPECT_THAT(
      longbench_error("trec.jsonl",
                      R"({"input": "", "context": "", "answers": ["x"], "all_classes": null})"),
      HasSubstr("\"all_classes\" is missing"));
  EXPECT_THAT(longbench_error("qasper.jsonl", R"({"input": "", "context": "", "answers": [")" +
                                                  std::string(1 << 20, 'x') + "\"]}"),
              HasSubstr("\"answers\" are too long; 1 MiB are read"));
  std::string classes = "\"a\"";
  for (int i = 0; i < 1000; ++i) classes += ",\"a\"";
  EXPECT_THAT(longbench_error("trec.jsonl",
                              R"({"input": "", "context": "", "answers": ["x"], "all_classes": [)" +
                                  classes + "]}"),
              HasSubstr("has 1001 names; at most 1000 are read"));
  EXPECT_THAT(longbench_error("passage_retrieval_en.jsonl",
                              R"({"input": "", "context": "", "answers": ["third"]})"),
              HasSubstr("paragraph retrieval"));
  EXPECT_THAT(longbench_error("qasper.jsonl", kHotpot, {.tasks = {"qasper"}}),
              HasSubstr("no sample of qasper"));
}

TEST_F(Benchmarks, RulerTellsItsTaskByName) {
  const std::string record =
      R"({"index": 0, "input": "Text.\nWhat is x?", "outputs": ["One", "two"], "length": 9, "answer_prefix": " It is"})";
  std::string line = record;
  std::erase(line, '\n');
  auto samples = read_ruler(file("niah_multivalue/validation.jsonl", line));
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].group["task"], "niah_multivalue");
  EXPECT_EQ(samples[0].context, "Text.");
  EXPECT_EQ(samples[0].question, "\nWhat is x?");
  EXPECT_EQ(samples[0].answer_start, " It is");
  EXPECT_FALSE(samples[0].raw);
  EXPECT_EQ(samples[0].max_tokens, 128u);
  EXPECT_DOUBLE_EQ(score_ruler(samples[0], answer(" ONE and three")), 0.5);
  samples = read_ruler(file("qa_1_4096.jsonl", line));
  EXPECT_DOUBLE_EQ(score_ruler(samples[0], answer("one")), 1.0);
  EXPECT_EQ(samples[0].max_tokens, 32u);
  EXPECT_THAT(test::error_of([&] { read_ruler(file("other.jsonl", line)); }),
              HasSubstr("tells no task; expected it to begin with one of niah, vt"));
}

TEST_F(Benchmarks, LinesCompareNumbers) {
  const auto samples = read_lines(file(
      "l.jsonl", R"({"prompt": "Header\nline a: <12>\n\nWhat is it? ", "expected_number": 12})"));
  EXPECT_EQ(samples[0].group, (Json{{"lines", 3}}));
  EXPECT_EQ(samples[0].question, "\nWhat is it? ");
  EXPECT_DOUBLE_EQ(score_lines(samples[0], answer("<12>.")), 1.0);
  EXPECT_DOUBLE_EQ(score_lines(samples[0], answer("12 or 13")), 0.0);
  Sample made;
  made.expected = 12;
  EXPECT_DOUBLE_EQ(score_lines(made, answer("0012")), 1.0);
  EXPECT_THAT(test::error_of([&] {
                read_lines(file("m.jsonl", R"({"prompt": "x", "expected_number": "x"})"));
              }),
              HasSubstr("m.jsonl:1: the field \"expected_number\""));
}

TEST_F(Benchmarks, SummariesTakeTheirOwnLimits) {
  const auto samples = read_summaries(file(
      "cnn.jsonl",
      R"({"article": "###\nArticle: A cat sat.\n\nSummarize.\n", "summary_gt": "Cats sit.", "max_tokens": 7, "stop": ["###", ""]})"
      "\n"
      R"({"article": "x", "summary_gt": "y"})"));
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].group, (Json{{"data", "cnn"}}));
  EXPECT_EQ(samples[0].context, "###\nArticle: A cat sat.\n");
  EXPECT_EQ(samples[0].question, "\nSummarize.\n");
  EXPECT_EQ(samples[0].max_tokens, 7u);
  EXPECT_EQ(samples[0].stop, std::vector<std::string>{"###"});
  EXPECT_EQ(samples[1].max_tokens, 64u);
  EXPECT_NEAR(score_summary(samples[0], answer("cat sitting"), true).rouge_1, 1.0, 1e-12);
  EXPECT_NEAR(score_summary(samples[0], answer("cat sitting"), false).rouge_1, 0.0, 1e-12);
  EXPECT_THAT(
      test::error_of([&] {
        read_summaries(file("s.jsonl", R"({"article": "x", "summary_gt": "y", "max_tokens": 0})"));
      }),
      HasSubstr("max_tokens is 0"));
}

TEST(BenchmarkFiles, RealOnesLoadUnchanged) {
  if (!fs::exists(kShared / "longbench")) GTEST_SKIP() << "no shared data";
  const auto news = read_longbench(kShared / "longbench" / "multi_news.jsonl", {});
  ASSERT_EQ(news.size(), 25u);
  EXPECT_THAT(news[0].context, StartsWith("You are given several news passages. Write a one-page "
                                          "summary of all news. \n\nNews:\nPassage 1:\n"));
  EXPECT_EQ(news[0].max_tokens, 512u);
  const auto truth = news[0].expected.at("answers").at(0).get<std::string>();
  EXPECT_NEAR(score_longbench(news[0], answer(truth)), 1.0, 1e-7);

  const auto xsum = read_summaries(kShared / "longbench" / "xsum_0shot.jsonl");
  ASSERT_EQ(xsum.size(), 25u);
  EXPECT_EQ(xsum[0].question, "\nSummarize the above article in 1 sentence.\n");
  EXPECT_NEAR(score_summary(xsum[0], answer(xsum[0].expected.get<std::string>()), true).rouge_2, 1,
              1e-12);

  const auto lines = read_lines(kShared / "longeval");
  ASSERT_EQ(lines.size(), 100u);
  EXPECT_EQ(lines[0].group, (Json{{"lines", 200}}));
  EXPECT_DOUBLE_EQ(score_lines(lines[0], answer("<2416>")), 1.0);
  EXPECT_THAT(lines[0].question, StartsWith("\nNow the record is over."));

  const auto ruler = read_ruler(kShared / "ruler");
  ASSERT_EQ(ruler.size(), 25u);
  EXPECT_EQ(ruler[0].group["task"], "niah_multikey_3_4096");
  EXPECT_DOUBLE_EQ(score_ruler(ruler[0], answer("1EE34DC4-3b04-4a8b-805b-fdc94e7ed827")), 1.0);
  EXPECT_THAT(ruler[0].question, StartsWith("\nWhat is the special magic uuid for"));
}

TEST(LongBenchCategories, AreMeansOfTheirTasks) {
  std::vector<Json> rows;
  for (const char* method : {"a", "b"}) {
    for (const auto& [task, score] :
         {std::pair{"qasper", 0.2}, {"narrativeqa", 0.4}, {"lcc", 0.7}}) {
      rows.push_back({{"task", task},
                      {"method", method},
                      {"rate", 0.25},
                      {"score", *method == 'a' ? score : score / 2},
                      {"score_error", 0.01},
                      {"entries", 10}});
    }
  }
  rows.push_back({{"task", "all"}, {"method", "a"}, {"score", 0.5}});
  add_category_rows(rows);
  ASSERT_EQ(rows.size(), 9u);
  EXPECT_EQ(rows[6]["task"], "single-document QA");
  EXPECT_NEAR(rows[6]["score"].get<double>(), 0.3, 1e-12);
  EXPECT_NEAR(rows[7]["score"].get<double>(), 0.15, 1e-12);
  EXPECT_EQ(rows[7]["method"], "b");
  EXPECT_EQ(rows[6]["entries"], 10.0);
  EXPECT_FALSE(rows[6].contains("score_error"));
  EXPECT_EQ(rows[8]["task"], "all") << "one task is no category";
  std::vector<Json> none;
  add_category_rows(none);
  EXPECT_TRUE(none.empty());
}

}  // namespace
}  // namespace ballast
