#include "experiments/tasks/choice_tasks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "ballast/random.h"
#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using Texts = std::vector<std::string>;

class ChoiceTasks : public testing::Test {
 protected:
  fs::path file(const std::string& name, const std::string& content) const {
    write_text(dir_ / name, content);
    return dir_ / name;
  }
  std::vector<Sample> read(const std::string& name, const std::string& content,
                           std::size_t shots = 0) const {
    return read_choices(file(name, content), {.task = "", .shots = shots, .shots_file = {}});
  }
  std::string error(const std::string& name, const std::string& content,
                    std::size_t shots = 0) const {
    return test::error_of([&] { read(name, content, shots); });
  }
  static void expect(const Sample& s, const std::string& question, const Texts& choices,
                     std::size_t gold) {
    EXPECT_EQ(s.question, question);
    EXPECT_EQ(s.choices, choices);
    EXPECT_EQ(s.expected.at("gold").get<std::size_t>(), gold);
    EXPECT_EQ(s.context, "");
    EXPECT_TRUE(s.raw);
  }
  TempDir dir_;
};

TEST_F(ChoiceTasks, Copa) {
  const auto s = read(
      "copa.jsonl",
      R"({"premise": "The man fell. ", "choice1": "He slipped.", "choice2": "Été.", "question": "cause", "label": 0})"
      "\n"
      R"({"premise": "It rained.", "choice1": "A.", "choice2": "B.", "question": "effect", "label": "1"})");
  expect(s.at(0), "The man fell because", {" he slipped.", " été."}, 0);
  expect(s.at(1), "It rained therefore", {" a.", " b."}, 1);
  EXPECT_EQ(s[0].group, (Json{{"task", "copa"}}));
  EXPECT_FALSE(has_length_score("copa"));
}

TEST_F(ChoiceTasks, Piqa) {
  expect(
      read("piqa-valid.jsonl", R"({"goal": "To open", "sol1": "push", "sol2": "pull", "label": 1})")
          .at(0),
      "Question: To open\nAnswer:", {" push", " pull"}, 1);
  EXPECT_TRUE(has_length_score("piqa"));
}

TEST_F(ChoiceTasks, OpenBookQaInBothLayouts) {
  const auto s = read(
      "openbookqa.jsonl",
      R"({"question_stem": "The sun is", "choices": {"text": ["hot", "cold"], "label": ["A", "B"]}, "answerKey": "B "})"
      "\n"
      R"({"question": {"stem": "The sun is", "choices": [{"text": "hot", "label": "A"}, {"text": "cold", "label": "B"}]}, "answerKey": "A"})");
  expect(s.at(0), "The sun is", {" hot", " cold"}, 1);
  expect(s.at(1), "The sun is", {" hot", " cold"}, 0);
}

TEST_F(ChoiceTasks, MathQaSplitsItsOptions) {
  const auto s = read(
      "mathqa.jsonl",
      R"({"Problem": "2 + 2", "options": "a ) 1 , 000 , b ) rs . 27 , c ) 4 , d ) none , e ) e ) of, these", "correct": "c"})");
  // What the regular expression of the harness finds: it does not know where "1 , 000" ends.
  expect(s.at(0), "Question: 2 + 2\nAnswer:", {" 1", " rs . 27", " 4", " none", " e ) of, these"},
         2);
}

TEST_F(ChoiceTasks, RteInBothLayouts) {
  const auto s =
      read("rte.jsonl", R"({"sentence1": "A.", "sentence2": "B.", "label": 1})"
                        "\n"
                        R"({"premise": "A.", "hypothesis": "B.", "label": "entailment"})");
  expect(s.at(0), "A.\nQuestion: B. True or False?\nAnswer:", {" True", " False"}, 1);
  expect(s.at(1), "A.\nQuestion: B. True or False?\nAnswer:", {" True", " False"}, 0);
}

constexpr const char* kWino =
    R"({"sentence": "The cup hit the wall and _ broke .", "option1": "the cup", "option2": "the wall", "answer": "1"})";

TEST_F(ChoiceTasks, WinograndeScoresWhatFollowsTheBlank) {
  auto samples = read("winogrande.jsonl", std::string(kWino) + "\n" + kWino);
  ASSERT_EQ(samples.size(), 4u);
  expect(samples[0], "The cup hit the wall and the cup", {" broke ."}, 0);
  expect(samples[1], "The cup hit the wall and the wall", {" broke ."}, 0);
  EXPECT_NE(samples[0].id, samples[1].id);

  std::vector<std::vector<Answered>> answers(4, std::vector<Answered>(1));
  for (std::size_t i = 0; i < 4; ++i) {
    answers[i][0].choices = {i == 1 ? -1.0 : -2.0};
    answers[i][0].bytes = 10 * i;
    answers[i][0].read_seconds = 1;
  }
  answers[3][0].failure = "no value";
  unite_choices(samples, answers);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(answers[0][0].choices, (std::vector<double>{-2, -1}));
  EXPECT_EQ(answers[0][0].bytes, 10u);
  EXPECT_EQ(answers[1][0].bytes, 30u);
  EXPECT_DOUBLE_EQ(answers[1][0].read_seconds, 2);
  EXPECT_EQ(answers[0][0].failure, "");
  EXPECT_EQ(answers[1][0].failure, "no value");  // of one half is of the whole
  EXPECT_DOUBLE_EQ(score_choice(samples[0], answers[0][0]), 0.0);
  EXPECT_DOUBLE_EQ(score_choice(samples[1], answers[1][0]), 1.0);  // a tie goes to the first
}

TEST_F(ChoiceTasks, ScoresWithAndWithoutLength) {
  const auto s =
      read("piqa.jsonl", R"({"goal": "g", "sol1": "ab", "sol2": "abcdefgh", "label": 1})");
  Answered a;
  a.choices = {-2, -4};
  EXPECT_DOUBLE_EQ(score_choice(s[0], a), 0.0);
  EXPECT_DOUBLE_EQ(score_choice_by_length(s[0], a), 1.0);
}

std::string piqa(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += fmt::format(
        R"({{"goal": "goal {0}", "sol1": "left {0}", "sol2": "right {0}", "label": {1}}})"
        "\n",
        i, i % 2);
  }
  return out;
}

TEST_F(ChoiceTasks, ShotsAreOtherQuestionsWithTheirAnswers) {
  const auto samples = read("piqa.jsonl", piqa(8), 3);
  std::set<std::string> examples_seen;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::string text = samples[i].question;
    const std::string own = fmt::format("Question: goal {}\nAnswer:", i);
    ASSERT_TRUE(text.ends_with("\n\n" + own));
    text.resize(text.size() - own.size());
    EXPECT_EQ(text.find(own), std::string::npos) << "the question is among its examples";
    std::size_t shots = 0;
    for (std::size_t j = 0; j < 8; ++j) {
      const std::string shot =
          fmt::format("Question: goal {0}\nAnswer: {1} {0}\n\n", j, j % 2 ? "right" : "left");
      const std::size_t at = text.find(shot);
      if (at == std::string::npos) continue;
      text.erase(at, shot.size());
      ++shots;
      examples_seen.insert(shot);
    }
    EXPECT_EQ(shots, 3u);
    EXPECT_EQ(text, "");
  }
  EXPECT_GT(examples_seen.size(), 4u);
  EXPECT_EQ(read("piqa.jsonl", piqa(8), 3)[5].question, samples[5].question);
}

// Against a shuffle of the whole pool.
TEST_F(ChoiceTasks, ShotsAreTheFirstOfAShuffle) {
  const std::size_t count = 9;
  for (const std::size_t shots : {1, 5, 8}) {
    const auto samples = read("piqa.jsonl", piqa(count), shots);
    for (std::size_t number = 0; number < count; ++number) {
      std::vector<std::size_t> order;
      for (std::size_t i = 0; i < count; ++i) {
        if (i != number) order.push_back(i);
      }
      std::string expected;
      for (std::size_t i = 0; i < shots; ++i) {
        const double u = random_unit({}, number, 0, static_cast<std::uint32_t>(i));
        std::swap(order[i],
                  order[i + static_cast<std::size_t>(u * static_cast<double>(order.size() - i))]);
        expected += fmt::format("Question: goal {0}\nAnswer: {1} {0}\n\n", order[i],
                                order[i] % 2 ? "right" : "left");
      }
      EXPECT_TRUE(samples[number].question.starts_with(expected)) << samples[number].question;
    }
  }
}

TEST_F(ChoiceTasks, ShotsComeFromAnotherFileIfGiven) {
  const fs::path asked = file("piqa.jsonl", piqa(2));
  std::string train = piqa(9);
  const auto samples = read_choices(
      asked, {.task = "piqa", .shots = 5, .shots_file = file("train.jsonl", train), .seed = 1});
  ASSERT_EQ(samples.size(), 2u);
  const auto other = read_choices(
      asked, {.task = "piqa", .shots = 5, .shots_file = dir_ / "train.jsonl", .seed = 2});
  EXPECT_NE(samples[0].question, other[0].question);
}

TEST_F(ChoiceTasks, NamesWhatIsWrong) {
  EXPECT_THAT(error("what.jsonl", "{}"),
              HasSubstr("does not begin with a task; name it with --task: copa, mathqa"));
  EXPECT_THAT(test::error_of([&] {
                read_choices(file("a.jsonl", "{}"), {.task = "boolq", .shots_file = {}});
              }),
              HasSubstr("--task boolq: unknown; known: copa"));
  EXPECT_THAT(error("piqa.jsonl", R"({"goal": "g", "sol1": "a", "sol2": "b", "label": 2})"),
              HasSubstr("piqa.jsonl:1: the right choice is number 2, but there are 2"));
  EXPECT_THAT(error("piqa.jsonl", R"({"goal": "g", "sol1": "", "sol2": "b", "label": 0})"),
              HasSubstr("an empty choice"));
  EXPECT_THAT(error("piqa.jsonl", piqa(3), 3),
              HasSubstr("--shots 3 needs as many examples; the file has 2"));
  EXPECT_THAT(error("winogrande.jsonl",
                    R"({"sentence": "none", "option1": "a", "option2": "b", "answer": "1"})"),
              HasSubstr("no blank"));
  EXPECT_THAT(
      error("copa.jsonl", R"({"premise": "x", "question": "why", "choice1": "a", "choice2": "b"})"),
      HasSubstr("expected \"cause\" or \"effect\""));
  EXPECT_THAT(error("mathqa.jsonl", R"({"Problem": "p", "options": "a ) 1", "correct": "b"})"),
              HasSubstr("there are 0"));
  EXPECT_THAT(error("mathqa.jsonl", R"({"Problem": "p", "options": "e ) 1", "correct": "bb"})"),
              HasSubstr("expected a letter from a"));
  EXPECT_THAT(error("rte.jsonl", R"({"sentence1": "a", "sentence2": "b", "label": "maybe"})"),
              HasSubstr("not_entailment"));
  EXPECT_THAT(error("rte.jsonl", R"({"sentence1": "a", "sentence2": "b"})"),
              HasSubstr("\"label\" is missing"));
  EXPECT_THAT(error("openbookqa.jsonl", R"({"question": {"stem": "s"}, "answerKey": "A"})"),
              HasSubstr("\"choices\""));
}

}  // namespace
}  // namespace ballast
