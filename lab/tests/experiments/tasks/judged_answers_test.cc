#include "experiments/tasks/judged_answers.h"

#include <gmock/gmock.h>

#include "ballast/error.h"
#include "temp_dir.h"

namespace ballast {
namespace {

TEST(JudgedAnswers, AlpacaEvalIsAnArrayOfOutputs) {
  const TempDir dir;
  write_text(dir / "a.json",
             R"( [{"instruction": "Say \"a\".", "dataset": "koala"}, {"instruction": "b"}])");
  JudgedFormat format{};
  const auto questions = read_judged(dir / "a.json", format);
  ASSERT_EQ(format, JudgedFormat::alpaca_eval);
  ASSERT_EQ(questions.size(), 2u);
  const Json out = Json::parse(judged_file(format, questions, {{"a"}, {"B\n"}}, "h2o 0.2"));
  EXPECT_EQ(out,
            Json::parse(R"([{"instruction": "Say \"a\".", "output": "a", "generator": "h2o 0.2",
    "dataset": "koala"}, {"instruction": "b", "output": "B\n", "generator": "h2o 0.2"}])"));
}

TEST(JudgedAnswers, MtBenchIsALineAQuestionWithAllTurns) {
  const TempDir dir;
  write_text(dir / "q.jsonl",
             "{\"question_id\": 81, \"category\": \"x\", \"turns\": [\"one\", \"two\"]}\n"
             "{\"question_id\": 82, \"turns\": [\"three\"]}\n");
  JudgedFormat format{};
  const auto questions = read_judged(dir / "q.jsonl", format);
  ASSERT_EQ(format, JudgedFormat::mt_bench);
  ASSERT_EQ(questions.size(), 2u);
  EXPECT_EQ(questions[0].turns, (std::vector<std::string>{"one", "two"}));
  const std::string out = judged_file(format, questions, {{"1", "2"}, {"3"}}, "exact");
  const Json first = Json::parse(out.substr(0, out.find('\n')));
  EXPECT_EQ(first["question_id"], 81);
  EXPECT_EQ(first["model_id"], "exact");
  EXPECT_EQ(first["choices"], Json::parse(R"([{"index": 0, "turns": ["1", "2"]}])"));
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 2);
}

TEST(JudgedAnswers, WrongFilesAreNamed) {
  const TempDir dir;
  JudgedFormat format{};
  for (const char* text : {"[]", "[{\"instruction\": 1}]", "{\"question_id\": 1}\n", "", "[{"}) {
    write_text(dir / "x", text);
    try {
      read_judged(dir / "x", format);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr((dir / "x").string()));
    }
  }
}

}  // namespace
}  // namespace ballast
