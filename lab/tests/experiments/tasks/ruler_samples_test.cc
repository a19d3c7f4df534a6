#include "experiments/tasks/ruler_samples.h"

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>

#include "experiments/data/benchmarks.h"
#include "support.h"
#include "temp_dir.h"
#include "text/test_vocabulary.h"

namespace ballast {
namespace {

using testing::HasSubstr;

const Tokenizer& tokenizer() {
  static const Tokenizer made(test::byte_vocabulary({}));
  return made;
}

/// Prose of two hundred different words.
class RulerSamples : public testing::Test {
 protected:
  RulerSamples() {
    std::ofstream text(folder_ / "book.txt");
    for (char a = 'a'; a <= 't'; ++a) {
      for (char b = 'a'; b <= 'j'; ++b) text << "The word " << a << b << "cd has no meaning. ";
    }
    text.close();
    hay_.emplace(tokenizer(), folder_ / "book.txt");
  }
  Json record_of(std::string_view task, std::size_t tokens, std::uint64_t seed) {
    return ruler_records(*hay_, task, tokens, 1, seed).at(0);
  }
  /// Read as `ballast eval ruler` reads it.
  Sample sample(std::string_view task, const Json& record) {
    const auto path = folder_ / (std::string(task) + ".jsonl");
    std::ofstream(path) << record.dump() << '\n';
    return read_ruler(path).at(0);
  }
  static double score(const Sample& sample, const std::string& text) {
    Answered answer;
    answer.text = text;
    return score_ruler(sample, answer);
  }

  TempDir folder_;
  std::optional<Haystack> hay_;
};

TEST_F(RulerSamples, GiveAPerfectAnswerAllAndAnEmptyOneNothing) {
  for (const std::string_view task : ruler_task_names()) {
    const Json record = record_of(task, 7000, 3);
    const Sample asked = sample(task, record);
    std::string all;
    for (const Json& output : record["outputs"]) {
      const std::string text = output;
      all += text + ", ";
      EXPECT_THAT(asked.context, HasSubstr(text)) << task;
      EXPECT_THAT(asked.question + asked.answer_start, testing::Not(HasSubstr(text))) << task;
    }
    EXPECT_EQ(score(asked, all), 1) << task;
    EXPECT_EQ(score(asked, ""), 0) << task;
    EXPECT_EQ(asked.group["task"], task);
  }
}

/// Answers of our tasks, from the text alone. It knows no more of them than their sentences.
class Oracle {
 public:
  explicit Oracle(const Sample& sample) : text_(sample.context), question_(sample.question) {}

  std::string answer() const {
    if (question_.starts_with("\nHow many crates")) {
      return std::to_string(crates(asked("does the (.*) hold in")));
    }
    if (question_.starts_with("\nHow many coins did")) {
      return std::to_string(paid(asked("did (.*) pay")));
    }
    if (question_.starts_with("\nWhat is ")) {
      const std::string function = asked("function (\\w+)");
      return found("def " + function + "\\(x\\):\n    " + asked("is (\\w+) in") + " = (\\d+)")[1];
    }
    return std::to_string(returned(asked("does (\\w+)"), std::stoi(asked("\\((\\d+)\\)"))));
  }

 private:
  std::smatch found(const std::string& pattern) const {
    std::smatch match;
    EXPECT_TRUE(std::regex_search(text_, match, std::regex(pattern))) << pattern << '\n' << text_;
    return match;
  }
  std::string asked(const std::string& pattern) const {
    std::smatch match;
    EXPECT_TRUE(std::regex_search(question_, match, std::regex(pattern))) << question_;
    return match[1];
  }
  int crates(const std::string& place) const {
    int held = std::stoi(found("At first the " + place + " holds (\\d+) crates\\.")[1]);
    const std::regex day("On day \\d+ the " + place + " receives (\\d+) crates\\.");
    for (std::sregex_iterator at(text_.begin(), text_.end(), day), end; at != end; ++at) {
      held += std::stoi((*at)[1]);
    }
    return held;
  }
  int paid(const std::string& person) const {
    const std::string bought = found(person + " bought ([^.]*)\\.")[1];
    const std::regex one("(\\d+)(?: tickets)? to the (\\w+ \\w+)");
    int sum = 0;
    for (std::sregex_iterator at(bought.begin(), bought.end(), one), end; at != end; ++at) {
      const std::string each = found("ticket to the " + (*at)[2].str() + " costs (\\d+) coins")[1];
      sum += std::stoi((*at)[1]) * std::stoi(each);
    }
    return sum;
  }
  int returned(const std::string& function, int x) const {
    const std::smatch at = found("def " + function +
                                 "\\(x\\):\n    \\w+ = (\\d+)\n    return \\w+ "
                                 "(?:\\+ (\\d+) \\* x|if x > (\\d+) else (\\d+))");
    const int constant = std::stoi(at[1]);
    if (at[2].matched) return constant + std::stoi(at[2]) * x;
    return x > std::stoi(at[3]) ? constant : std::stoi(at[4]);
  }

  std::string text_, question_;
};

TEST_F(RulerSamples, GiveTheirOwnTasksOracleAllAndAnEmptyOrWrongAnswerNothing) {
  const auto own = made_task_names().subspan(ruler_task_names().size());
  EXPECT_EQ(own.size(), 8u);
  for (const std::string_view task : own) {
    const std::vector<Json> records = ruler_records(*hay_, task, 7000, 4, 3);
    ASSERT_EQ(records.size(), 4u) << task;
    const std::string context = sample(task, records[0]).context;
    for (const Json& record : records) {
      const Sample asked = sample(task, record);
      EXPECT_EQ(asked.context, context) << task;
      EXPECT_EQ(score(asked, Oracle(asked).answer()), 1) << task << record["outputs"];
      EXPECT_EQ(score(asked, ""), 0) << task;
      EXPECT_EQ(score(asked, R"({"name": "rent_car", "arguments": {"town": "Rome"}} 0)"), 0)
          << task;
    }
  }
}

TEST_F(RulerSamples, ACallIsRightWhateverStandsAroundIt) {
  const Sample asked = sample(
      "tools", {{"input", "Text\n\nWrite the call."},
                {"answer_prefix", ""},
                {"outputs", {R"({"name":"rent_car","arguments":{"town":"Rome","days":2}})"}}});
  const std::string call = R"({"arguments": {"days": 2, "town": "Rome"}, "name": "rent_car"})";
  EXPECT_EQ(score(asked, "in Rome.\nCall: " + call + " Done."), 1);
  EXPECT_EQ(score(asked, ""), 0);
  EXPECT_EQ(score(asked, R"({"name": "rent_car", "arguments": {"town": "Rome"}} 0)"), 0);
}

TEST_F(RulerSamples, AreAsLongAsWantedWithTheirAnswers) {
  for (const std::string_view task : made_task_names()) {
    const std::size_t tokens = 9000;
    const Json record = record_of(task, tokens, 1);
    const Sample asked = sample(task, record);
    const std::size_t used =
        tokenizer().encode(asked.context + asked.question + asked.answer_start).size() +
        asked.max_tokens;
    EXPECT_EQ(record["length"], used) << task;
    EXPECT_LE(used, tokens) << task;
    // cwe has no more words than the text.
    if (task != "cwe") {
      EXPECT_GT(used, tokens - 300) << task;
    }
    EXPECT_THAT(test::error_of([&] { record_of(task, 200, 1); }),
                HasSubstr("200 tokens are too few for " + std::string(task)));
  }
}

TEST_F(RulerSamples, AreTheSameForTheSameSeedAndOthersForAnother) {
  for (const std::string_view task : made_task_names()) {
    const Json one = record_of(task, 6000, 1);
    EXPECT_EQ(one, record_of(task, 6000, 1)) << task;
    EXPECT_NE(one["outputs"], record_of(task, 6000, 2)["outputs"]) << task;
  }
}

TEST_F(RulerSamples, CountWhatTheyAskFor) {
  const auto times = [](const std::string& text, const std::string& what) {
    std::size_t count = 0;
    for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++count;
    return count;
  };
  const Json common = record_of("cwe", 8000, 4);
  for (const Json& word : common["outputs"]) {
    EXPECT_EQ(times(common["input"], " " + word.get<std::string>()), 30u);
  }
  const Json frequent = record_of("fwe", 8000, 4);
  const std::string text = frequent["input"];
  std::size_t before = text.size();
  for (const Json& word : frequent["outputs"]) {
    const std::size_t now = times(text, " " + word.get<std::string>());
    EXPECT_LE(now, before);
    EXPECT_GT(now, 10u);
    before = now;
  }
}

TEST_F(RulerSamples, AskSeveralQuestionsAboutOneText) {
  for (const std::string_view task : {"niah_multikey_1", "niah_multikey_2", "qa_1", "qa_2"}) {
    const std::vector<Json> records = ruler_records(*hay_, task, 5000, 4, 2);
    ASSERT_EQ(records.size(), 4u) << task;
    std::set<std::string> contexts, questions, outputs;
    for (const Json& record : records) {
      const Sample asked = sample(task, record);
      contexts.insert(asked.context);
      questions.insert(asked.question);
      outputs.insert(record["outputs"].dump());
      EXPECT_THAT(asked.context, HasSubstr(record["outputs"][0].get<std::string>()));
      EXPECT_LE(record["length"], 5000u);
    }
    EXPECT_EQ(contexts.size(), 1u) << task;
    EXPECT_EQ(questions.size(), 4u) << task;
    EXPECT_EQ(outputs.size(), 4u) << task;
  }
  EXPECT_EQ(ruler_records(*hay_, "vt", 5000, 4, 2).size(), 1u);
}

TEST_F(RulerSamples, NameTheTasks) {
  EXPECT_THAT(test::error_of([&] { record_of("niah_singel_1", 6000, 1); }),
              HasSubstr("did you mean niah_single_1?; there are niah_single_1, niah_single_2"));
}

}  // namespace
}  // namespace ballast
