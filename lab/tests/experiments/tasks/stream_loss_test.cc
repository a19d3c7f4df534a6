#include "experiments/tasks/stream_loss.h"

#include <gmock/gmock.h>

#include <cmath>

#include "model/reference_case.h"

namespace ballast {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;

CacheOptions options_of(const std::string& method, Positions positions) {
  CacheOptions options;
  options.policy = Policy::parse(method);
  options.protocol = Protocol::stream;
  options.positions = positions;
  return options;
}

/// A model of 128 positions.
class StreamLossModel : public testing::Test {
 protected:
  StreamLossModel() : case_("llama") {}
  void SetUp() override {
    if (!case_.made()) GTEST_SKIP() << "tests/model/reference.py needs python3 with numpy";
    model_.emplace(case_.gguf());
  }
  std::vector<Token> tokens(std::size_t count) const {
    std::vector<Token> out;
    for (std::size_t i = 0; i < count; ++i) out.push_back(static_cast<Token>(3 + i * i % 40));
    return out;
  }
  test::ReferenceCase case_;
  std::optional<Model> model_;
};

TEST_F(StreamLossModel, IsTheLossOfATokenAtATime) {
  Engine engine(*model_);
  const std::vector<Token> text = tokens(100);
  for (const char* method : {"exact", "h2o:budget=24", "streaming-llm:budget=20"}) {
    const CacheOptions options = options_of(method, Positions::rolling);
    Sequence sequence(*model_, options);
    std::vector<float> logits(engine.vocabulary());
    std::vector<double> nats;
    for (std::size_t t = 0; t + 1 < text.size(); ++t) {
      engine.decode(sequence, text[t], logits);
      double sum = 0;
      for (float x : logits) sum += std::exp(static_cast<double>(x));
      nats.push_back(std::log(sum) - logits[static_cast<std::size_t>(text[t + 1])]);
    }
    const StreamLoss loss = measure_stream_loss(engine, options, text, 30);
    EXPECT_TRUE(loss.whole);
    EXPECT_EQ(loss.tokens, 99u);
    ASSERT_EQ(loss.nats.size(), 4u);
    for (std::size_t part = 0; part < 4; ++part) {
      double mean = 0;
      const std::size_t end = std::min<std::size_t>(99, 30 * (part + 1));
      for (std::size_t t = 30 * part; t < end; ++t) {
        mean += nats[t] / static_cast<double>(end - 30 * part);
      }
      EXPECT_THAT(loss.nats[part], DoubleNear(mean, 1e-4)) << method << ", part " << part;
    }
  }
}

TEST_F(StreamLossModel, GoesBeyondTheModelsPositionsWhenTheyRoll) {
  Engine engine(*model_);
  const std::vector<Token> text = tokens(700);
  const StreamLoss bounded = measure_stream_loss(
      engine, options_of("streaming-llm:budget=40", Positions::rolling), text, 100);
  EXPECT_TRUE(bounded.whole);
  EXPECT_EQ(bounded.tokens, 699u);
  EXPECT_LE(bounded.entries, 40u);
  const StreamLoss exact =
      measure_stream_loss(engine, options_of("exact", Positions::rolling), text, 100);
  EXPECT_FALSE(exact.whole);
  EXPECT_LE(exact.tokens, 128u);
  EXPECT_GE(exact.tokens, 100u);
}

TEST_F(StreamLossModel, RefusesWhatIsNoStream) {
  Engine engine(*model_);
  const CacheOptions options = options_of("exact", Positions::rolling);
  EXPECT_THAT(error_of([&] { measure_stream_loss(engine, options, tokens(1), 5); }),
              HasSubstr("at least 2"));
  EXPECT_THAT(error_of([&] { measure_stream_loss(engine, options, tokens(9), 0); }),
              HasSubstr("a part needs at least 1 token"));
}

}  // namespace
}  // namespace ballast
