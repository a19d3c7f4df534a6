// Asking a model with many methods, and what tables say of it.
#include "experiments/data/samples.h"

#include <gmock/gmock.h>

#include "ballast/engine/question_form.h"
#include "experiments/metrics/interval.h"
#include "model/reference_case.h"
#include "model/thread_ranks.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;

std::vector<Variant> variants(const std::vector<std::string>& methods, const Memory& memory,
                              std::size_t seeds = 1) {
  return make_variants(methods, memory, seeds, 5, StorageType::f32, StorageType::f32);
}

TEST(Variants, EveryMethodAtEveryMemoryAndSeedExactOnce) {
  const auto made = variants({"exact", "uniform", "h2o:sink=2"}, {.rates = {0.5, 0.25}}, 3);
  ASSERT_EQ(made.size(), 1u + 2 * 2 * 3);
  EXPECT_EQ(made[0].name(), "exact");
  EXPECT_EQ(made[1].name(), "uniform 0.5");
  EXPECT_EQ(made[3].seed, 7u);
  EXPECT_EQ(made[4].name(), "uniform 0.25");
  EXPECT_EQ(made[12].policy.to_string(), Policy::parse("h2o:sink=2,rate=0.25").to_string());
  EXPECT_EQ(variants({"uniform:budget=100"}, {})[0].name(), "uniform:budget=100");
  EXPECT_EQ(variants({"uniform"}, {.budgets = {100}})[0].name(), "uniform 100");
  EXPECT_EQ(variants({"uniform"}, {.caches = {"0.5"}})[0].name(), "uniform 0.5 of bytes");
  EXPECT_EQ(variants({"uniform"}, {.caches = {"1/8"}})[0].share, 0.125);
  EXPECT_EQ(variants({"uniform"}, {.caches = {"1/8"}})[0].policy.to_string(), "uniform:bytes=1/8");
  EXPECT_EQ(variants({"uniform"}, {.caches = {"40K/token"}})[0].name(), "uniform 40K/token");
  const Variant stored = variants({"exact:type=q4/q2"}, {.caches = {"1/8"}})[0];
  EXPECT_TRUE(stored.storage_only());
  EXPECT_EQ(stored.key_type, StorageType::q4);
  EXPECT_EQ(stored.value_type, StorageType::q2);
  EXPECT_EQ(stored.cache, "");
}

TEST(Variants, RefuseUnequalOrUnsaidMemory) {
  const auto refused = [](const std::vector<std::string>& methods, const Memory& memory,
                          std::size_t seeds = 1) {
    return error_of([&] { variants(methods, memory, seeds); });
  };
  EXPECT_THAT(refused({"h2o:rate=0.5"}, {.rates = {0.25}}),
              HasSubstr("remove its rate, budget or bytes"));
  EXPECT_THAT(refused({"h2o"}, {}), HasSubstr("needs a size"));
  EXPECT_THAT(refused({"h2o"}, {.rates = {0.5}, .budgets = {7}}), HasSubstr("exclude each other"));
  EXPECT_THAT(refused({"h2o"}, {.rates = {1.5}}), HasSubstr("--rates 1.5"));
  EXPECT_THAT(refused({"h2o"}, {.caches = {"1"}}), HasSubstr("'1' could be a share or bytes"));
  EXPECT_THAT(refused({"h2o"}, {.budgets = {7}, .caches = {"1/8"}}), HasSubstr("exclude"));
  EXPECT_THAT(refused({"h2o"}, {.budgets = {0}}), HasSubstr("--budgets must be at least 1"));
  EXPECT_THAT(refused({}, {.rates = {0.5}}), HasSubstr("no method"));
  EXPECT_THAT(refused({"h2o"}, {.rates = {0.5}}, 0), HasSubstr("--seeds must be at least 1"));
}

/// Two groups of two samples; seeds of one method averaged before the error is taken.
TEST(Scores, RowsAreMeansOverSeedsThenSamplesThenGroups) {
  const auto cases = variants({"exact", "uniform"}, {.rates = {0.5}}, 2);
  std::vector<Sample> samples(4);
  std::vector<std::vector<Answered>> answers(4, std::vector<Answered>(3));
  const double scores[4][3] = {{1, 1, 0}, {1, 0, 0}, {0, 1, 1}, {1, 0, 1}};
  for (std::size_t i = 0; i < 4; ++i) {
    samples[i].id = std::to_string(i);
    samples[i].group = {{"task", i < 2 ? "a" : "b"}};
    for (std::size_t v = 0; v < 3; ++v) {
      answers[i][v].text = scores[i][v] > 0 ? "right" : "";
      answers[i][v].bytes = v == 0 ? 100 : 50;
      answers[i][v].exact_bytes = 100;
      answers[i][v].made = 2;
      answers[i][v].answer_seconds = 3;
    }
  }
  const auto rows = score_rows(
      samples, cases, answers,
      [](const Sample&, const Answered& a) { return a.text.empty() ? 0.0 : 1.0; }, true);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0]["task"], "a");
  EXPECT_EQ(rows[0]["method"], "exact");
  EXPECT_FALSE(rows[0].contains("rate"));
  EXPECT_EQ(rows[0]["score"], 1.0);
  EXPECT_EQ(rows[0]["samples"], 2);
  EXPECT_EQ(rows[1]["rate"], 0.5);
  EXPECT_EQ(rows[1]["score"], 0.25);  // (0.5 + 0) / 2
  EXPECT_THAT(rows[1]["score_error"].get<double>(), DoubleNear(0.25, 1e-12));
  EXPECT_EQ(rows[1]["ratio"], 2.0);
  EXPECT_EQ(rows[1]["seconds_per_token"], 1.5);
  EXPECT_EQ(rows[1]["scores"], (Json{0.5, 0.0}));
  EXPECT_EQ(rows[0]["answers"], (Json{"right", "right"}));
  EXPECT_EQ(rows[1]["answers"], (Json{"right", ""}));  // of the first seed
  EXPECT_EQ(rows[3]["score"], 0.75);                   // (1 + 0.5) / 2
  EXPECT_EQ(rows[4]["task"], "all");
  EXPECT_EQ(rows[4]["score"], 0.75);  // (1 + 0.5) / 2
  EXPECT_EQ(rows[5]["score"], 0.5);
  EXPECT_THAT(rows[5]["score_error"].get<double>(), DoubleNear(0.25 / std::sqrt(2.0), 1e-12));
}

/// A method whose sample misses what counts has no answer, which is wrong whatever the scorer says.
TEST(Scores, WhatHasNoAnswerIsWrongAndCounted) {
  const auto cases = variants({"exact", "clustergen"}, {.rates = {0.5}});
  std::vector<Sample> samples(2);
  std::vector<std::vector<Answered>> answers(2, std::vector<Answered>(2));
  for (std::size_t i = 0; i < 2; ++i) {
    samples[i].id = std::to_string(i);
    for (Answered& a : answers[i]) a.attention_error = 0.25;
  }
  answers[1][1].failure = "the normaliser is 0";
  answers[1][1].attention_error = std::numeric_limits<double>::quiet_NaN();
  const auto always = [](const Sample&, const Answered&) { return 1.0; };
  auto rows = score_rows(samples, cases, answers, always);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["score"], 1.0);
  EXPECT_FALSE(rows[0].contains("failures"));
  EXPECT_EQ(rows[1]["score"], 0.5);
  EXPECT_EQ(rows[1]["failures"], 1);
  EXPECT_EQ(rows[1]["attention_error"], 0.25);  // of the one that has a value
  answers[0][1] = answers[1][1];
  rows = score_rows(samples, cases, answers, always);
  EXPECT_EQ(rows[1]["score"], 0.0);
  EXPECT_EQ(rows[1]["failures"], 2);
  EXPECT_TRUE(rows[1]["attention_error"].is_null());
}

/// Sums over pairs by hand; the intervals' own tests are in interval_test.cc.
TEST(Scores, LossIsOfTheSameQuestions) {
  const auto cases = variants({"exact", "exact:type=q4", "uniform"}, {.rates = {0.5}});
  constexpr std::size_t kCount = 12;
  std::vector<Sample> samples(kCount);
  std::vector<std::vector<Answered>> answers(kCount, std::vector<Answered>(3));
  for (std::size_t i = 0; i < kCount; ++i) {
    samples[i].id = std::to_string(i);
    samples[i].group = {{"task", i < 6 ? "a" : "b"}};
    answers[i][0].text = i < 9 ? "1" : "0";
    answers[i][1].text = i == 0 || i == 11 ? "1" : "0";
    answers[i][2].text = i % 2 == 0 ? "1" : "0.5";
  }
  const auto score = [](const Sample&, const Answered& a) { return std::stod(a.text); };
  const auto rows = score_rows(samples, cases, answers, score, true);
  ASSERT_EQ(rows.size(), 9u);
  EXPECT_FALSE(rows[6].contains("loss"));  // of the exact cache
  EXPECT_EQ(rows[7]["storage_only"], true);
  EXPECT_FALSE(rows[8].contains("storage_only"));
  // Exact has 9 right, the other 2, of which one is right with both.
  EXPECT_NEAR(rows[7]["loss"].get<double>(), 7.0 / 12, 1e-12);
  const Interval pairs = tango(8, 1, 12);
  EXPECT_EQ(rows[7]["loss_low"], pairs.low);
  EXPECT_EQ(rows[7]["loss_high"], pairs.high);
  // Group a: 0, 0.5, 0, 0.5, 0, 0.5 lost.
  EXPECT_NEAR(rows[2]["loss"].get<double>(), 0.25, 1e-12);
  const double error = std::sqrt(6 * 0.0625 / 5 / 6);
  EXPECT_NEAR(rows[2]["loss_low"].get<double>(), 0.25 - 1.959963984540054 * error, 1e-12);
  EXPECT_NEAR(rows[2]["loss_high"].get<double>(), 0.25 + 1.959963984540054 * error, 1e-12);
}

TEST(Scores, WhatDoesNotFitHasNoScore) {
  const auto cases = variants({"exact", "uniform"}, {.caches = {"1/64"}});
  std::vector<Sample> samples(2);
  std::vector<std::vector<Answered>> answers(2, std::vector<Answered>(2));
  for (std::size_t i = 0; i < 2; ++i) {
    samples[i].id = std::to_string(i);
    samples[i].group = {{"task", i == 0 ? "a" : "b"}};
  }
  answers[0][1].fits = false;
  answers[0][1].failure = "too small";
  const auto rows = score_rows(
      samples, cases, answers, [](const Sample&, const Answered&) { return 1.0; }, true);
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[1]["fits"], false);
  EXPECT_TRUE(rows[1]["score"].is_null());
  EXPECT_TRUE(rows[1]["cache_bytes"].is_null());
  EXPECT_EQ(rows[1]["share"], 1.0 / 64);
  EXPECT_EQ(rows[3]["score"], 1.0);
  EXPECT_FALSE(rows[3].contains("fits"));
  EXPECT_TRUE(rows[5]["score"].is_null());  // a mean of what is not there
  const Answered back = Answered::from_json(answers[0][1].to_json());
  EXPECT_FALSE(back.fits);
  EXPECT_TRUE(Answered::from_json(answers[0][0].to_json()).fits);
}

TEST(Answers, ComeBackFromJsonWithTheirFailures) {
  Answered a;
  a.text = "7 ";
  a.entries = 5;
  a.choices = {-1e300, -2.5};
  a.failure = "no value";
  Answered b = Answered::from_json(Json::parse(a.to_json().dump()));
  EXPECT_EQ(b.failure, "no value");
  EXPECT_EQ(b.choices, a.choices);
  EXPECT_TRUE(std::isnan(b.attention_error));
  a.attention_error = 0.125;
  a.failure.clear();
  b = Answered::from_json(Json::parse(a.to_json().dump()));
  EXPECT_EQ(b.attention_error, 0.125);
  EXPECT_EQ(b.failure, "");
  EXPECT_EQ(b.to_json(), a.to_json());
}

/// A model of 128 positions; a token a character, nearly.
class AskModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    case_ = new test::ReferenceCase("llama");
    if (!case_->made()) return;
    model_ = new Model(case_->gguf());
    tokenizer_ = new Tokenizer(read_vocabulary(case_->gguf()));
  }
  static void TearDownTestSuite() {
    delete tokenizer_;
    delete model_;
    delete case_;
  }
  void SetUp() override {
    if (!case_->made()) GTEST_SKIP() << "tests/model/reference.py needs python3 with numpy";
  }
  static Sample sample(std::size_t length = 60) {
    Sample s;
    s.id = "s" + std::to_string(length);
    for (std::size_t i = 0; i < length; ++i) s.context += static_cast<char>('a' + i * i % 23);
    s.question = " why?";
    s.max_tokens = 6;
    s.raw = true;
    return s;
  }

  static test::ReferenceCase* case_;
  static Model* model_;
  static Tokenizer* tokenizer_;
};
test::ReferenceCase* AskModel::case_ = nullptr;
Model* AskModel::model_ = nullptr;
Tokenizer* AskModel::tokenizer_ = nullptr;

/// The answer as the engine makes it when it reads the prompt for this method alone.
std::string plainly(const Model& model, const Tokenizer& tokenizer, const Sample& sample,
                    const Variant& variant, bool question_later) {
  Engine engine(model);
  engine.set_replay_wording(replay_wording(tokenizer, false));
  CacheOptions options;
  options.policy = variant.policy;
  options.key_type = variant.key_type;
  options.value_type = variant.value_type;
  options.seed = variant.seed;
  Sequence sequence(model, options);
  std::vector<Token> before = tokenizer.encode(sample.context);
  const std::vector<Token> after = encode_more(tokenizer, sample.question, false);
  std::vector<float> logits;
  if (question_later) {
    engine.prefill(sequence, before);
    logits = engine.prefill(sequence, after, {.finish_prompt = false});
  } else {
    before.insert(before.end(), after.begin(), after.end());
    logits = engine.prefill(sequence, before);
  }
  GenerateOptions generate_options;
  generate_options.sampling.temperature = 0;
  generate_options.max_tokens = sample.max_tokens;
  generate_options.text_start = false;
  return generate(engine, sequence, tokenizer, logits, generate_options).text;
}

TEST_F(AskModel, OneReadingGivesEveryMethodItsOwnAnswer) {
  Engine engine(*model_);
  const std::vector<std::string> methods = {"exact",
                                            "uniform:budget=20,sink=2,window=4",
                                            "h2o:budget=16",
                                            "snapkv:budget=40,window=8",
                                            "streaming-llm:budget=12",
                                            "replay:bytes=0.6",
                                            "kvzip:bytes=0.6"};
  for (bool later : {false, true}) {
    PromptRunner runner(engine, *tokenizer_, {.question_later = later});
    auto cases = variants(methods, {});
    for (const char* few_bits : {"exact", "h2o:budget=16"}) {
      cases.push_back(variants({few_bits}, {})[0]);
      cases.back().key_type = cases.back().value_type = StorageType::q4;
    }
    const auto answers = runner.ask(sample(), cases);
    for (std::size_t v = 0; v < cases.size(); ++v) {
      EXPECT_EQ(answers[v].text, plainly(*model_, *tokenizer_, sample(), cases[v], later))
          << cases[v].name() << (later ? ", question later" : "");
      EXPECT_EQ(answers[v].tokens, answers[0].tokens);
      EXPECT_GT(answers[v].made, 0u);
    }
    EXPECT_EQ(answers[0].attention_error, 0);
    EXPECT_GT(answers[4].attention_error, 0.01);
    EXPECT_LT(answers[4].attention_error, 2);
    EXPECT_LT(answers[4].bytes, answers[0].bytes);
    EXPECT_LE(answers[4].entries, 12 + (later ? 6u : 0u));
  }
}

TEST_F(AskModel, SharesOfBytesAreKept) {
  Engine engine(*model_);
  PromptRunner runner(engine, *tokenizer_, {});
  auto cases =
      variants({"uniform:sink=1,window=2", "streaming-llm:sink=1", "replay"}, {.caches = {"0.8"}});
  for (Variant& variant : cases) variant.key_type = variant.value_type = StorageType::bf16;
  const auto answers = runner.ask(sample(90), cases);
  for (const Answered& answer : answers) {
    EXPECT_LE(static_cast<double>(answer.bytes), 0.8 * static_cast<double>(answer.exact_bytes));
    EXPECT_GT(static_cast<double>(answer.bytes), 0.7 * static_cast<double>(answer.exact_bytes));
  }
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    PromptRunner small(engine, *tokenizer_, {.protocol = protocol});
    const auto tiny = small.ask(sample(90), variants({"uniform", "replay"}, {.caches = {"0.01"}}));
    for (const Answered& answer : tiny) {
      EXPECT_FALSE(answer.fits);
      EXPECT_THAT(answer.failure, HasSubstr("bytes"));
      EXPECT_EQ(answer.text, "");
    }
  }
}

TEST_F(AskModel, SharesAreKeptInStreamToo) {
  Engine engine(*model_);
  PromptRunner runner(engine, *tokenizer_, {.protocol = Protocol::stream});
  auto cases = variants({"streaming-llm:sink=1", "local"}, {.caches = {"0.5"}});
  for (Variant& variant : cases) variant.key_type = variant.value_type = StorageType::bf16;
  for (const Answered& answer : runner.ask(sample(90), cases)) {
    EXPECT_LE(static_cast<double>(answer.bytes), 0.5 * static_cast<double>(answer.exact_bytes));
    EXPECT_GT(static_cast<double>(answer.bytes), 0.4 * static_cast<double>(answer.exact_bytes));
  }
}

/// Questions that share a summary get the answers that they get alone.
TEST_F(AskModel, QuestionsOnOneContextGetTheirOwnAnswers) {
  Engine engine(*model_);
  const char* questions[] = {" why?", " who was it?", " x", " where", " when?", " how"};
  std::vector<Sample> samples(std::size(questions), sample());
  for (std::size_t i = 0; i < samples.size(); ++i) {
    samples[i].id = std::to_string(i);
    samples[i].question = questions[i];
  }
  auto cases = variants({"exact", "exact:type=int8", "uniform:budget=20,sink=2,window=4",
                         "h2o:budget=16", "replay:bytes=0.6", "replay:bytes=0.4,chunk=32",
                         "kvzip:bytes=0.6", "streaming-llm:budget=12"},
                        {});
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    const AskOptions options{.protocol = protocol, .question_later = true};
    PromptRunner runner(engine, *tokenizer_, options);
    EXPECT_TRUE(runner.share_context(samples[0], samples[1]));
    EXPECT_FALSE(runner.share_context(samples[0], sample(50)));
    const auto together = runner.ask(std::span<const Sample>(samples), cases);
    for (std::size_t i = 0; i < samples.size(); ++i) {
      PromptRunner alone(engine, *tokenizer_, options);
      const auto expected = alone.ask(samples[i], cases);
      for (std::size_t v = 0; v < cases.size(); ++v) {
        EXPECT_EQ(together[i][v].text, expected[v].text) << cases[v].name();
        EXPECT_EQ(together[i][v].bytes, expected[v].bytes);
        EXPECT_EQ(together[i][v].entries, expected[v].entries);
      }
    }
  }
  PromptRunner runner(engine, *tokenizer_, {});
  EXPECT_FALSE(runner.share_context(samples[0], samples[1]));  // the question is summarised, too
}

TEST_F(AskModel, TheBeginningOfTheAnswerFollowsTheTemplate) {
  Engine engine(*model_);
  Vocabulary vocabulary = read_vocabulary(case_->gguf());
  vocabulary.chat_template = "{% for m in messages %}[{{ m['content'] }}]{% endfor %}:";
  const Tokenizer chat(std::move(vocabulary));
  Sample asked = sample(30);
  asked.raw = false;
  asked.answer_start = " it is";
  std::vector<Token> tokens =
      chat.encode("[" + asked.context + "\n\n", {.add_special = false, .parse_special = true});
  for (const std::string& text : {asked.question + "]:", std::string("it is")}) {
    const std::vector<Token> more = encode_more(chat, text, false);
    tokens.insert(tokens.end(), more.begin(), more.end());
  }
  CacheOptions options;
  Sequence sequence(*model_, options);
  GenerateOptions generate_options;
  generate_options.sampling.temperature = 0;
  generate_options.max_tokens = asked.max_tokens;
  generate_options.text_start = false;
  const std::vector<float> logits = engine.prefill(sequence, tokens);
  const std::string expected = generate(engine, sequence, chat, logits, generate_options).text;
  PromptRunner runner(engine, chat, {.question_later = true});
  const auto answers = runner.ask(asked, variants({"exact"}, {}));
  EXPECT_EQ(answers[0].tokens, tokens.size());
  EXPECT_EQ(answers[0].text, expected);
}

TEST_F(AskModel, ChoicesAreScoredByTheLogProbabilityOfTheirTokens) {
  Engine engine(*model_);
  Sample s = sample(30);
  s.choices = {" a", " box of", "zzz"};
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    PromptRunner runner(engine, *tokenizer_, {.protocol = protocol});
    const Answered answer = runner.ask(s, variants({"exact"}, {}))[0];
    ASSERT_EQ(answer.choices.size(), 3u);
    for (std::size_t c = 0; c < 3; ++c) {
      // All in one go, exactly.
      std::vector<Token> all = tokenizer_->encode(s.context);
      const auto question = encode_more(*tokenizer_, s.question, false);
      all.insert(all.end(), question.begin(), question.end());
      const std::size_t from = all.size();
      const auto choice = encode_more(*tokenizer_, s.choices[c], false);
      all.insert(all.end(), choice.begin(), choice.end());
      double expected = 0;
      CacheOptions options;
      options.key_type = options.value_type = StorageType::f32;
      Sequence sequence(*model_, options);
      PrefillOptions reading;
      reading.all_logits = [&](std::size_t first, ConstMatrix rows) {
        for (std::size_t i = 0; i < rows.rows; ++i) {
          const std::size_t next = first + i + 1;
          if (next < from || next >= all.size()) continue;
          double sum = 0;
          for (float x : rows[i]) sum += std::exp(static_cast<double>(x));
          expected += rows[i][static_cast<std::size_t>(all[next])] - std::log(sum);
        }
      };
      engine.prefill(sequence, all, reading);
      EXPECT_THAT(answer.choices[c], DoubleNear(expected, 1e-4)) << s.choices[c];
    }
  }
}

TEST_F(AskModel, LongPromptsLoseTheirMiddleOrAreRefused) {
  Engine engine(*model_);
  PromptRunner cuts(engine, *tokenizer_, {});
  const Answered answer = cuts.ask(sample(400), variants({"exact"}, {}))[0];
  EXPECT_TRUE(answer.cut);
  EXPECT_EQ(answer.tokens, 128u - 6);
  PromptRunner refuses(engine, *tokenizer_, {.refuse_long = true});
  EXPECT_THAT(error_of([&] { refuses.ask(sample(400), variants({"exact"}, {})); }),
              HasSubstr("sample s400"));
  Sample no_room = sample(400);
  no_room.max_tokens = 127;
  EXPECT_THAT(error_of([&] { cuts.ask(no_room, variants({"exact"}, {})); }),
              HasSubstr("leave no room"));
}

TEST_F(AskModel, WhatTheLogHoldsIsNotAskedAgain) {
  const TempDir dir;
  Engine engine(*model_);
  PromptRunner runner(engine, *tokenizer_, {});
  const auto cases = variants({"exact", "h2o"}, {.budgets = {20}});
  const std::vector<Sample> samples = {sample(50), sample(60)};
  std::vector<std::vector<Answered>> first;
  {
    ResultLog log(dir / "p", {{"x", 1}});
    first = ask_all(runner, {samples[0]}, cases, log);
  }
  // Another answer in the log, to see that it is what comes back.
  std::string text = read_text(dir / "p");
  const std::string was = first[0][1].to_json()["text"].dump();
  const std::size_t at = text.rfind("\"text\":" + was);
  ASSERT_NE(at, std::string::npos);
  text.replace(at + 7, was.size(), "\"kept\"");
  write_text(dir / "p", text);
  ResultLog log(dir / "p", {{"x", 1}});
  const auto all = ask_all(runner, samples, cases, log);
  EXPECT_EQ(all[0][0].text, first[0][0].text);
  EXPECT_EQ(all[0][1].text, "kept");
  EXPECT_GT(all[1][1].made, 0u);
  std::vector<Sample> twice = {samples[0], samples[0]};
  EXPECT_THAT(error_of([&] { ask_all(runner, twice, cases, log); }),
              HasSubstr("two samples have the id"));
}

TEST_F(AskModel, AnInterruptedTextKeepsTheAnswersOfTheMethodsBefore) {
  const TempDir dir;
  Engine engine(*model_);
  PromptRunner runner(engine, *tokenizer_, {});
  const auto cases = variants({"exact", "h2o"}, {.budgets = {20}});
  struct Stop {};
  {
    ResultLog log(dir / "p", {{"x", 1}});
    EXPECT_THROW(ask_all(runner, {sample(50)}, cases, log, [](double) { throw Stop{}; }), Stop);
  }
  EXPECT_EQ(ResultLog(dir / "p", {{"x", 1}}).found(), 1u);
}

TEST_F(AskModel, RanksDivideTheTexts) {
  const TempDir dir;
  const auto cases = variants({"exact", "h2o"}, {.budgets = {20}});
  const std::vector<Sample> samples = {sample(50), sample(60), sample(70)};
  const auto texts = [](const std::vector<std::vector<Answered>>& answers) {
    std::vector<std::string> out;
    for (const auto& of_sample : answers) {
      for (const Answered& answer : of_sample) out.push_back(answer.text);
    }
    return out;
  };
  Engine engine(*model_);
  PromptRunner alone(engine, *tokenizer_, {});
  ResultLog none;
  const std::vector<std::string> expected = texts(ask_all(alone, samples, cases, none));
  const auto log_of = [&](std::size_t rank) { return dir / std::to_string(rank); };
  const auto run = [&] {
    test::Exchange exchange(2);
    std::vector<std::vector<std::string>> got(2);
    std::vector<std::thread> threads;
    for (std::size_t r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        test::ThreadRanks ranks(exchange, r);
        Engine own(*model_);
        PromptRunner runner(own, *tokenizer_, {});
        ResultLog log(log_of(r), {{"x", 1}});
        got[r] = texts(ask_all(runner, samples, cases, log, {}, &ranks));
      });
    }
    for (std::thread& thread : threads) thread.join();
    return got;
  };
  EXPECT_EQ(run(), (std::vector{expected, expected}));
  const auto lines = [&](std::size_t rank) {
    const std::string text = read_text(log_of(rank));
    return std::ranges::count(text, '\n');
  };
  EXPECT_EQ(lines(0), 5);  // two texts, each with both methods
  EXPECT_EQ(lines(1), 3);
  // A rank that lost its findings gets its text in the next run; those of the others stay.
  std::filesystem::remove(log_of(1));
  EXPECT_EQ(run(), (std::vector{expected, expected}));
  EXPECT_EQ(lines(0), 7);
}

}  // namespace
}  // namespace ballast
