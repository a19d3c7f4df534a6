// Scores that are calibrated once a model: files, where they are found, and reading with them.
#include "ballast/engine/calibration.h"
#include "ballast/scoring.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <numeric>

#include "ballast/engine/generate.h"
#include "ballast/engine/question_form.h"
#include "ballast/error.h"
#include "ballast/threads.h"
#include "base/read_file.h"
#include "model/calibration_data.h"
#include "model/reference_case.h"
#include "model/weights.h"
#include "support.h"

namespace ballast {
namespace {

using test::ReferenceCase;

/// One with weights of no meaning.
std::shared_ptr<const Calibration> make(const Model& model, std::uint64_t seed) {
  const ModelConfig& c = model.config();
  std::vector<Calibration::Layer> layers(c.layers);
  for (Calibration::Layer& layer : layers) {
    layer.weights = test::random_matrix(c.kv_heads, c.width + 2 * c.kv_heads, seed++, 0.1f);
    layer.offsets.assign(c.kv_heads, -3.0f);
  }
  return std::make_shared<Calibration>(calibration_key(model), std::move(layers));
}

std::string error_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

TEST(Calibration, ScoresAreThoseOfTheFormula) {
  ReferenceCase reference("llama");
  BALLAST_NEED_REFERENCE(reference);
  const Model model(reference.hf());
  const ModelConfig& c = model.config();
  const auto made = make(model, 1);
  const std::size_t n = 5, heads = c.kv_heads;
  const Matrix inputs = test::random_matrix(n, c.width, 2),
               keys = test::random_matrix(n, heads * c.key_dim, 3),
               values = test::random_matrix(n, heads * c.value_dim, 4);
  Matrix scores(n, heads);
  made->score(1, inputs.view(), keys.view(), values.view(), scores.view());
  const Matrix weights = test::random_matrix(heads, c.width + 2 * heads, 2, 0.1f);  // of layer 1
  const auto norm = [](std::span<const float> row, std::size_t of, std::size_t h) {
    double sum = 0;
    const std::size_t dim = row.size() / of;
    for (std::size_t i = 0; i < dim; ++i) sum += double{row[h * dim + i]} * row[h * dim + i];
    return 0.5 * std::log(sum);
  };
  for (std::size_t t = 0; t < n; ++t) {
    for (std::size_t h = 0; h < heads; ++h) {
      double log_score = -3;
      for (std::size_t i = 0; i < c.width; ++i) log_score += double{weights[h][i]} * inputs[t][i];
      for (std::size_t k = 0; k < heads; ++k) {
        log_score += weights[h][c.width + k] * norm(keys[t], heads, k) +
                     weights[h][c.width + heads + k] * norm(values[t], heads, k);
      }
      EXPECT_NEAR(scores[t][h], std::exp(log_score), 1e-4 * std::exp(log_score));
    }
  }
}

TEST(Calibration, IsFoundBesideItsModelAndRefusedBesideAnother) {
  ReferenceCase reference("llama"), other("mistral");
  BALLAST_NEED_REFERENCE(reference);
  const Model model(reference.hf());
  EXPECT_EQ(model.calibration(), nullptr);
  EXPECT_EQ(model.policy_for("1/8").to_string(), "replay:bytes=1/8");
  make(model, 1)->save(reference.hf() / "ballast.scores");
  const Model again(reference.hf());
  ASSERT_NE(again.calibration(), nullptr);
  EXPECT_EQ(again.calibration()->key(), calibration_key(model));
  EXPECT_EQ(again.policy_for("1/8").to_string(), "calibrated:bytes=1/8,means=0.02");
  std::filesystem::copy_file(reference.hf() / "ballast.scores", other.hf() / "ballast.scores");
  EXPECT_THAT(
      error_of([&] { Model refused(other.hf()); }),
      testing::AllOf(testing::HasSubstr("ballast.scores"), testing::HasSubstr("remove the file")));
}

TEST(Calibration, AFileReadsBackToHalfPrecision) {
  ReferenceCase reference("llama");
  BALLAST_NEED_REFERENCE(reference);
  const Model model(reference.hf());
  const auto path = reference.dir() / "a.scores";
  const auto made = make(model, 1);
  made->save(path);
  const std::string bytes = read_file(path);
  const Calibration read = Calibration::parse(bytes_of(bytes), "a.scores", model);
  const ModelConfig& c = model.config();
  const Matrix inputs = test::random_matrix(4, c.width, 2),
               keys = test::random_matrix(4, c.kv_heads * c.key_dim, 3),
               values = test::random_matrix(4, c.kv_heads * c.value_dim, 4);
  Matrix a(4, c.kv_heads), b(4, c.kv_heads);
  made->score(0, inputs.view(), keys.view(), values.view(), a.view());
  read.score(0, inputs.view(), keys.view(), values.view(), b.view());
  for (std::size_t t = 0; t < 4; ++t) {
    for (std::size_t h = 0; h < c.kv_heads; ++h) EXPECT_NEAR(a[t][h], b[t][h], 0.01 * a[t][h]);
  }
  for (std::size_t length = 0; length < bytes.size(); length += 7) {
    EXPECT_NE(error_of([&] { Calibration::parse(bytes_of(bytes).first(length), "cut", model); }),
              "")
        << length;
  }
  std::string wrong = bytes;
  wrong[8] = 9;
  EXPECT_THAT(error_of([&] { Calibration::parse(bytes_of(wrong), "new", model); }),
              testing::HasSubstr("new: a calibration of version 9"));
}

TEST(Calibration, FilesOfOtherTypesOfAModelShareTheKey) {
  ReferenceCase reference("llama"), other("mistral");
  BALLAST_NEED_REFERENCE(reference);
  if (!reference.has_gguf()) GTEST_SKIP() << "no GGUF file of this model";
  EXPECT_EQ(calibration_key(Model(reference.hf())), calibration_key(Model(reference.gguf())));
  EXPECT_NE(calibration_key(Model(reference.hf())), calibration_key(Model(other.hf())));
}

std::vector<float> read_in_pieces(const Model& model, std::span<const Token> text,
                                  std::size_t chunk, Protocol protocol, int threads) {
  Engine engine(model, std::make_shared<ThreadPool>(threads));
  CacheOptions options;
  options.policy = Policy::parse("calibrated:bytes=1/4,chunk=16,window=2");
  options.protocol = protocol;
  options.key_type = options.value_type = StorageType::bf16;
  options.expected_tokens = text.size();
  Sequence sequence(model, options);
  PrefillOptions prefill;
  prefill.chunk = chunk;
  std::vector<float> logits = engine.prefill(sequence, text, prefill);
  for (Token token : {3, 5, 4}) engine.decode(sequence, token, logits);
  EXPECT_LT(sequence.cache().kept(0, 0).size(), text.size());
  return logits;
}

TEST(Calibration, ReadingDoesNotDependOnCallsOrThreads) {
  ReferenceCase reference("llama");
  BALLAST_NEED_REFERENCE(reference);
  Model model(reference.hf());
  model.set_calibration(make(model, 1));
  std::vector<Token> text;
  while (text.size() < 60) {
    text.insert(text.end(), reference.tokens.begin(), reference.tokens.end());
  }
  text.resize(60);
  for (Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    const auto expected = read_in_pieces(model, text, 60, protocol, 1);
    EXPECT_EQ(read_in_pieces(model, text, 7, protocol, 3), expected) << to_string(protocol);
    EXPECT_EQ(read_in_pieces(model, text, 1, protocol, 1), expected) << to_string(protocol);
  }
}

/// A stream of so many tokens with rolling positions, in pieces; the bytes of its cache at the end.
std::vector<std::byte> read_beyond(const Model& model, std::span<const Token> text,
                                   std::size_t chunk, int threads, std::vector<float>& logits) {
  Engine engine(model, std::make_shared<ThreadPool>(threads));
  CacheOptions options;
  options.policy = Policy::parse("calibrated:bytes=24K,chunk=16,window=2");
  options.protocol = Protocol::stream;
  options.positions = Positions::rolling;
  options.key_type = options.value_type = StorageType::bf16;
  Sequence sequence(model, options);
  PrefillOptions prefill;
  prefill.chunk = chunk;
  const std::size_t positions = model.config().max_positions;
  for (std::size_t t = 0; t < text.size(); t += 50) {
    logits = engine.prefill(sequence, text.subspan(t, std::min<std::size_t>(50, text.size() - t)),
                            prefill);
    prefill.finish_prompt = false;
    EXPECT_LE(sequence.positions_after(1), positions);
    EXPECT_LE(sequence.cache().bytes().used(), 32u << 10) << "at " << t;
  }
  EXPECT_EQ(sequence.cache().options().policy.integer("reach"), positions);
  Sequence loaded(model, Cache::parse(sequence.cache().to_bytes(), "a file"));
  std::vector<float> others(logits.size());
  for (Token token : {3, 5, 4}) {
    engine.decode(sequence, token, logits);
    engine.decode(loaded, token, others);
    EXPECT_EQ(others, logits);
  }
  EXPECT_EQ(sequence.tokens(), text.size() + 3);
  return sequence.cache().to_bytes();
}

TEST(Calibration, AStreamGoesOnBeyondTheModelsPositions) {
  ReferenceCase reference("llama");
  BALLAST_NEED_REFERENCE(reference);
  Model model(reference.hf());
  model.set_calibration(make(model, 1));
  std::vector<Token> text;
  const std::size_t positions = model.config().max_positions;
  while (text.size() < 3 * positions) {
    text.insert(text.end(), reference.tokens.begin(), reference.tokens.end());
  }
  std::vector<float> logits, others;
  const auto expected = read_beyond(model, text, 64, 1, logits);
  EXPECT_TRUE(read_beyond(model, text, 7, 3, others) == expected);
  EXPECT_EQ(others, logits);

  // Absolute positions end.
  Engine engine(model);
  CacheOptions options;
  options.policy = Policy::parse("calibrated:bytes=24K,chunk=16,window=2");
  options.protocol = Protocol::stream;
  Sequence absolute(model, options);
  EXPECT_THAT(error_of([&] { engine.prefill(absolute, text); }), testing::HasSubstr("positions"));
  // In prefill the text is held as it is.
  options.positions = Positions::rolling;
  options.protocol = Protocol::prefill;
  EXPECT_THAT(error_of([&] { Sequence(model, options); }),
              testing::HasSubstr("calibrated with --protocol stream"));
}

TEST(Calibration, TheMethodNamesTheCommandWhereThereIsNone) {
  ReferenceCase reference("llama");
  BALLAST_NEED_REFERENCE(reference);
  const Model model(reference.hf());
  Engine engine(model);
  CacheOptions options;
  options.policy = Policy::parse("calibrated:bytes=1/4");
  Sequence sequence(model, options);
  EXPECT_THAT(error_of([&] { engine.prefill(sequence, reference.tokens); }),
              testing::HasSubstr("make one with: ballast calibrate"));
}

/// The rank correlation, over the entries of all layers and heads, between the scores that `model`
/// predicts for a text and those of a replay pass.
double agreement(const Model& model, const Tokenizer& tokenizer, const std::string& text) {
  std::vector<Token> tokens = tokenizer.encode(text);
  tokens.resize(1500);
  Engine engine(model);
  CacheOptions options;
  options.key_type = options.value_type = StorageType::bf16;
  std::vector<Cache> read;
  for (const char* method : {"calibrated:bytes=1/8", "replay:bytes=1/8"}) {
    options.policy = Policy::parse(method);
    Sequence sequence(model, options);
    PrefillOptions prefill;
    prefill.finish_prompt = false;
    engine.prefill(sequence, tokens, prefill);
    if (scoring_of(sequence.cache()).needs_replay()) {
      engine.replay(sequence, {replay_wording(tokenizer, false)});
    }
    read.push_back(std::move(sequence.cache()));
  }
  std::vector<double> ranks[2];
  for (int i : {0, 1}) {
    std::vector<float> scores;
    for (std::size_t l = 0; l < model.config().layers; ++l) {
      for (std::size_t h = 0; h < model.config().kv_heads; ++h) {
        const std::span<const float> of = scoring_of(read[i]).scores(l, h).subspan(4);
        scores.insert(scores.end(), of.begin(), of.end());
      }
    }
    std::vector<std::size_t> order(scores.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::sort(order, {}, [&](std::size_t at) { return scores[at]; });
    ranks[i].resize(scores.size());
    for (std::size_t at = 0; at < order.size(); ++at) ranks[i][order[at]] = double(at);
  }
  const double n = double(ranks[0].size()), mean = (n - 1) / 2;
  double product = 0;
  for (std::size_t i = 0; i < ranks[0].size(); ++i) {
    product += (ranks[0][i] - mean) * (ranks[1][i] - mean);
  }
  return product / (n * (n * n - 1) / 12);
}

TEST(Calibration, PackingReadsTextsBetweenTheMarksOfTheChatTemplate) {
  const std::filesystem::path path = BALLAST_SOURCE_DIR "/models/ballast-mini.gguf";
  const Tokenizer tokenizer(read_vocabulary(path));
  const QuestionForm form = QuestionForm::from_template(tokenizer, "", "");
  const std::vector<Token> text = {30, 31, 32, 33, 34, 35, 36, 37};
  std::vector<Token> wanted = form.begin(tokenizer);
  EXPECT_FALSE(wanted.empty());
  wanted.insert(wanted.end(), text.begin(), text.begin() + 6);
  for (Token token : encode_more(tokenizer, form.after, true)) wanted.push_back(token);
  EXPECT_GT(wanted.size(), form.begin(tokenizer).size() + 6);
  wanted.insert(wanted.end(), text.begin() + 6, text.end());
  EXPECT_EQ(as_chat(tokenizer, text), wanted);
}

/// English that no calibration has seen.
std::string other_text() { return read_file(BALLAST_SOURCE_DIR "/docs/serve.md"); }

TEST(LongCalibration, IsFittedToASecondReading) {
  const std::filesystem::path path = BALLAST_SOURCE_DIR "/models/ballast-mini.gguf";
  Model model(path);
  const Tokenizer tokenizer(read_vocabulary(path));
  double last = 0;
  CalibrateOptions options;
  options.packing = false;
  options.progress = [&](double done) {
    EXPECT_GE(done, last);
    last = done;
    return true;
  };
  model.set_calibration(calibrate(model, tokenizer, options).scores);
  EXPECT_NEAR(last, 1, 0.01);
  // The small model is hard to foresee: 0.3, of real ones 0.9 (tests/real/small_caches.py).
  EXPECT_GT(agreement(model, tokenizer, other_text()), 0.2);
  options.progress = [](double done) { return done < 0.1; };
  EXPECT_EQ(calibrate(model, tokenizer, options).scores, nullptr);
}

}  // namespace
}  // namespace ballast
