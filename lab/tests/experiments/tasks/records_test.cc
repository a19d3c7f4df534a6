#include "experiments/tasks/records.h"

#include <gmock/gmock.h>

#include <set>

#include "temp_dir.h"
#include "text/test_vocabulary.h"

namespace ballast {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Tokenizer& tokenizer() {
  static const Tokenizer made(test::byte_vocabulary({}));
  return made;
}

TEST(Records, HaveEveryKeyOnceAndAskSeveral) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    for (const bool chat : {false, true}) {
      const auto samples = records_samples(tokenizer(), 900, 4, seed, chat, true);
      ASSERT_EQ(samples.size(), 4u);
      std::set<std::string> ids, questions;
      for (const Sample& s : samples) {
        ids.insert(s.id);
        questions.insert(s.question);
        EXPECT_EQ(s.context, samples[0].context);
        EXPECT_THAT(s.context, StartsWith("Extract the value corresponding to the specified key"));
        const std::size_t begin = s.question.find("Key: \"") + 6;
        const std::string key = s.question.substr(begin, s.question.find('"', begin) - begin);
        const std::string field = "\"" + key + "\": \"" + s.expected.get<std::string>() + "\",\n";
        const std::size_t at = s.context.find(field);
        ASSERT_NE(at, std::string::npos) << field;
        EXPECT_EQ(s.context.find("\"" + key + "\": "), at);
        EXPECT_EQ(s.context.find("\"" + key + "\": ", at + 1), std::string::npos);
        EXPECT_EQ(s.question.find("Corresponding value") == std::string::npos, chat);
        const std::size_t size = tokenizer().encode(s.context + s.question).size();
        EXPECT_LE(size + s.expected.get<std::string>().size(), 902u);
        EXPECT_GT(size, 800u);
      }
      EXPECT_EQ(ids.size(), 4u);
      EXPECT_EQ(questions.size(), 4u);
      EXPECT_EQ(records_samples(tokenizer(), 900, 4, seed, chat, true)[3].question,
                samples[3].question);
    }
  }
  EXPECT_NE(records_samples(tokenizer(), 900, 1, 1, true, true)[0].context,
            records_samples(tokenizer(), 900, 1, 2, true, true)[0].context);
  EXPECT_THAT(error_of([] { records_samples(tokenizer(), 200, 50, 1, true, true); }),
              HasSubstr("fewer than 50 questions"));
}

TEST(Records, AnAnswerIsTheValueAlone) {
  Sample sample;
  sample.expected = "blue-sky";
  const auto score = [&](const char* text) {
    Answered answer;
    answer.text = text;
    return score_record(sample, answer);
  };
  for (const char* right : {"blue-sky", " blue-sky\n", "\"blue-sky\"", "blue-sky\", more"}) {
    EXPECT_EQ(score(right), 1) << right;
  }
  for (const char* wrong : {"", "\"", "blue", "blue-skye", "a blue-sky", "red"}) {
    EXPECT_EQ(score(wrong), 0) << wrong;
  }
}

}  // namespace
}  // namespace ballast
