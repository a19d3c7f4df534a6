#include "model/drafts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ballast/engine/session.h"
#include "paths.h"

namespace ballast {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(PromptLookup, GivesWhatFollowedTheLastTokensWhereTheyStoodBefore) {
  PromptLookup lookup;
  lookup.add(std::vector<Token>{1, 2, 3, 4, 5, 6, 2, 3});
  EXPECT_THAT(lookup.next(2), ElementsAre(4, 5));
  EXPECT_THAT(lookup.next(9), ElementsAre(4, 5, 6, 2, 3));
  lookup.add(std::vector<Token>{9});
  EXPECT_THAT(lookup.next(9), IsEmpty());
}

TEST(PromptLookup, PrefersTheLongestRunAndThenTheLatest) {
  PromptLookup lookup;
  lookup.add(std::vector<Token>{1, 2, 3, 10, 7, 2, 3, 11, 8, 2, 3, 12, 1, 2, 3});
  EXPECT_THAT(lookup.next(1), ElementsAre(10));  // behind 1 2 3
  lookup.add(std::vector<Token>{20, 2, 3});
  EXPECT_THAT(lookup.next(1), ElementsAre(20));  // the latest 2 3
}

TEST(PromptLookup, SaysNothingOfOneToken) {
  PromptLookup lookup;
  EXPECT_THAT(lookup.next(4), IsEmpty());
  lookup.add(std::vector<Token>{1});
  EXPECT_THAT(lookup.next(4), IsEmpty());
  lookup.add(std::vector<Token>{5, 1});
  EXPECT_THAT(lookup.next(4), IsEmpty());
}

TEST(DraftLength, WaitsForTheTimeOfAPass) {
  DraftLength length;
  EXPECT_EQ(length.next(), 0u);
  length.plain(1.0);
  EXPECT_GT(length.next(), 0u);
}

TEST(DraftLength, GrowsWhileAllIsAcceptedAndShrinksAfter) {
  DraftLength length;
  length.plain(1.0);
  length.passed(3, 3, 1.5);
  EXPECT_EQ(length.next(), 6u);
  length.passed(6, 6, 1.5);
  length.passed(12, 12, 1.5);
  EXPECT_EQ(length.next(), DraftLength::kMost);
  length.passed(15, 2, 1.5);
  EXPECT_EQ(length.next(), 3u);
}

TEST(DraftLength, PausesLongerAndLongerWherePassesCostMoreThanTheyGain) {
  DraftLength length;
  length.plain(1.0);
  std::vector<std::size_t> pauses;
  for (int round = 0; round < 3; ++round) {
    while (length.next() > 0) length.passed(3, 0, 3.0);
    std::size_t tokens = 1;
    while (length.next() == 0) ++tokens;
    pauses.push_back(tokens);
  }
  EXPECT_THAT(pauses, ElementsAre(16, 32, 64));
}

TEST(DraftLength, GoesOnWhereMostIsAccepted) {
  DraftLength length;
  length.plain(1.0);
  for (int i = 0; i < 100; ++i) {
    ASSERT_GT(length.next(), 0u) << i;
    length.passed(3, i % 4 == 0 ? 0 : 3, 1.6);
  }
}

class Drafts : public testing::TestWithParam<const char*> {
 protected:
  // The model repeats what it read: drafts are accepted, and some are not.
  static constexpr const char* kText =
      "The harbour master wrote the names of the boats in a book. The harbour master wrote the "
      "names of the boats in a book. The harbour master wrote the names";

  static std::shared_ptr<const TextModel> model() {
    static const auto loaded =
        std::make_shared<const TextModel>(BALLAST_SOURCE_DIR "/models/ballast-mini.gguf");
    return loaded;
  }

  Session session() const {
    CacheOptions options;
    options.policy = Policy::parse(GetParam());
    Session out(model(), options);
    out.read(model()->tokenizer.encode(kText));
    out.finish_prompt();
    return out;
  }

  static GenerateOptions options(bool drafts) {
    GenerateOptions out;
    out.max_tokens = 120;
    out.ignore_end = true;
    out.drafts = drafts;
    return out;
  }

  static std::vector<Token> tokens(const Generated& made) {
    std::vector<Token> out;
    for (const GeneratedToken& token : made.tokens) out.push_back(token.chosen.token);
    return out;
  }
};

TEST_P(Drafts, ChangeNoBitOfAnAnswerNorOfWhatFollowsIt) {
  for (const float temperature : {0.0f, 0.7f}) {
    Session with = session(), without = session();
    GenerateOptions a = options(true), b = options(false);
    a.sampling.temperature = b.sampling.temperature = temperature;
    a.sampling.repetition_penalty = b.sampling.repetition_penalty = 1.0f + temperature / 10;
    Generation drafted = with.generate(a), plain = without.generate(b);
    drafted.run();
    plain.run();
    EXPECT_EQ(tokens(drafted.result()), tokens(plain.result()));
    EXPECT_EQ(drafted.result().text, plain.result().text);
    for (std::size_t i = 0; i < plain.result().tokens.size(); ++i) {
      EXPECT_EQ(drafted.result().tokens[i].chosen.log_probability,
                plain.result().tokens[i].chosen.log_probability)
          << i;
    }
    EXPECT_EQ(plain.result().passes, 119u);
    EXPECT_LE(drafted.result().passes, 119u);
    with.take_in(drafted);
    without.take_in(plain);
    EXPECT_EQ(with.tokens(), without.tokens());
    EXPECT_THAT(with.text(), testing::ElementsAreArray(without.text()));
    const std::vector<Token> more = model()->tokenizer.encode(" and then the boats");
    with.read(more);
    without.read(more);
    EXPECT_THAT(with.logits(), testing::ElementsAreArray(without.logits()));
  }
}

TEST_P(Drafts, LeaveNothingBehindWhereTheAnswerIsStopped) {
  for (std::size_t steps = 1; steps < 40; steps += 3) {
    Session with = session(), without = session();
    Generation drafted = with.generate(options(true)), plain = without.generate(options(false));
    std::string text;
    for (std::size_t i = 0; i < steps; ++i) {
      drafted.step(text);
      plain.step(text);
    }
    with.take_in(drafted);
    without.take_in(plain);
    with.read({});
    without.read({});
    EXPECT_EQ(with.tokens(), without.tokens());
    EXPECT_THAT(with.logits(), testing::ElementsAreArray(without.logits())) << steps;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, Drafts,
                         testing::Values("exact", "exact:type=q4", "balancekv:rate=0.5",
                                         "clustergen:rate=0.5", "h2o:rate=0.5",
                                         "streaming-llm:rate=0.5", "replay:bytes=1/2"),
                         [](const auto& info) { return "M" + std::to_string(info.index); });

class DraftsThatAreTaken : public Drafts {};

TEST_P(DraftsThatAreTaken, SavePasses) {
  Session text = session();
  EXPECT_LT(text.generate(options(true)).run().passes, 119u);
}

INSTANTIATE_TEST_SUITE_P(Methods, DraftsThatAreTaken,
                         testing::Values("exact", "exact:type=q4", "balancekv:rate=0.5",
                                         "replay:bytes=1/2"),
                         [](const auto& info) { return "M" + std::to_string(info.index); });

}  // namespace
}  // namespace ballast
