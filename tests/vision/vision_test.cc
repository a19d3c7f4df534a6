// Models that see pictures, against transformers.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "ballast/engine/session.h"
#include "ballast/engine/vision.h"
#include "model/weights.h"
#include "vision/towers.h"

namespace ballast {
namespace {

using test::kPicture;
using test::kText;
using test::numbers_of;
using test::towers_json;

struct Case {
  const char* model;
  const char* mmproj;
  const char* family;
};

const test::Towers& towers() {
  static const test::Towers made;
  return made;
}

std::shared_ptr<const TextModel> load(const char* name) {
  return std::make_shared<const TextModel>(towers().dir / name);
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    most = std::max(most, std::abs(double{a[i]} - double{b[i]}));
  }
  return most;
}

CacheOptions room(std::size_t tokens = 64, const char* method = "exact") {
  CacheOptions out;
  out.policy = Policy::parse(method);
  out.expected_tokens = tokens;
  return out;
}

GenerateOptions tokens_made(std::size_t count) {
  GenerateOptions out;
  out.max_tokens = count;
  out.ignore_end = true;
  return out;
}

/// A whole text with a picture, and the state after it.
std::vector<float> logits_of(Session& session, const VisionModel& vision, std::size_t chunk = 256,
                             const Picture& picture = kPicture) {
  const PictureTokens seen = vision.read(picture);
  PrefillOptions options;
  options.chunk = chunk;
  session.read(vision.place(kText, {&seen, 1}), options);
  return {session.logits().begin(), session.logits().end()};
}

/// More than 200 tokens: 5 times a text with 6 tiles and the thumbnail.
void read_often(Session& session, const VisionModel& vision) {
  const PictureTokens seen = vision.read(test::picture_of(300, 200));
  for (int i = 0; i < 5; ++i) session.read(vision.place(kText, {&seen, 1}));
}

class Vision : public testing::TestWithParam<Case> {};

TEST_P(Vision, SeesWhatTransformersSees) {
  BALLAST_NEED_TOWERS(towers());
  const auto [name, mmproj, family] = GetParam();
  const auto model = load(name);
  const VisionModel vision(model->model, model->tokenizer,
                           *mmproj == 0 ? std::filesystem::path() : towers().dir / mmproj);
  EXPECT_EQ(VisionModel::is_in(model->model), *mmproj == 0);
  const auto& expected = towers_json()[family];
  const PictureTokens seen = vision.read(kPicture);
  ASSERT_EQ(seen.tokens.size(), 12u);
  EXPECT_EQ(seen.layout.tokens(), 12u);
  EXPECT_EQ(vision.layout(1000, 100).columns, 6u);  // as many tiles as the model says
  const auto held = model->model.weights().pictures->holder(seen.tokens[0]);
  ASSERT_NE(held, nullptr);
  EXPECT_LT(largest_difference({held->rows.data(), 12 * held->rows.cols()},
                               numbers_of(expected["features"])),
            1e-4);

  Session session(model, room());
  std::vector<float> last;
  const std::size_t vocabulary = model->model.config().vocabulary;
  PrefillOptions options;
  options.all_logits = [&](std::size_t, ConstMatrix rows) {
    for (std::size_t i = 0; i < rows.rows; ++i) {
      last.insert(last.end(), rows[i].begin(), rows[i].end());
    }
  };
  session.read(vision.place(kText, {&seen, 1}), options);
  last.erase(last.begin(), last.end() - static_cast<std::ptrdiff_t>(3 * vocabulary));
  EXPECT_LT(largest_difference(last, numbers_of(expected["logits"])), 1e-4);

  Generation answer = session.generate(tokens_made(8));
  std::vector<Token> tokens;
  for (const GeneratedToken& token : answer.run().tokens) tokens.push_back(token.chosen.token);
  EXPECT_THAT(tokens, testing::ElementsAreArray(expected["answer"].get<std::vector<Token>>()));
}

INSTANTIATE_TEST_SUITE_P(, Vision,
                         testing::Values(Case{"qwen2", "", "qwen2"}, Case{"qwen2-own", "", "qwen2"},
                                         Case{"qwen2.gguf", "mmproj.gguf", "qwen2"},
                                         Case{"internlm2", "", "internlm2"}));

TEST(PicturesInTexts, HaveIdsThatFollowFromTheirPixels) {
  BALLAST_NEED_TOWERS(towers());
  const auto model = load("qwen2");
  std::vector<Token> first;
  {
    const VisionModel vision(model->model, model->tokenizer);
    first = vision.read(kPicture).tokens;
    EXPECT_EQ(vision.read(kPicture).tokens, first);
    Picture other = kPicture;
    other.pixels[5] ^= 1;
    EXPECT_NE(vision.read(other).tokens, first);
  }
  EXPECT_TRUE(std::ranges::all_of(first, [](Token token) { return token < kNoToken; }));
  const auto again = load("qwen2");
  EXPECT_EQ(VisionModel(again->model, again->tokenizer).read(kPicture).tokens, first);
}

TEST(PicturesInTexts, ThatNoOneHoldsAreRefused) {
  BALLAST_NEED_TOWERS(towers());
  const auto model = load("qwen2");
  std::vector<Token> text;
  {
    const VisionModel vision(model->model, model->tokenizer);
    const PictureTokens seen = vision.read(kPicture);
    text = vision.place(kText, {&seen, 1});
  }
  Session session(model, room());
  EXPECT_THROW(session.read(text), Error);
}

TEST(PicturesInTexts, NeedAPlaceEach) {
  BALLAST_NEED_TOWERS(towers());
  const auto model = load("qwen2");
  const VisionModel vision(model->model, model->tokenizer);
  const PictureTokens seen = vision.read(kPicture);
  EXPECT_THROW(vision.place(kText, {}), Error);
  EXPECT_THROW(vision.place(std::vector<Token>{1, 2}, {&seen, 1}), Error);
  EXPECT_EQ(model->tokenizer.encode(vision.place_holder(), {.parse_special = true}),
            (std::vector<Token>{258, 10}));
}

TEST(PicturesInTexts, ChangeNoBitWithTheChunk) {
  BALLAST_NEED_TOWERS(towers());
  const auto model = load("qwen2");
  const VisionModel vision(model->model, model->tokenizer);
  Session whole(model, room()), cut(model, room());
  EXPECT_EQ(logits_of(whole, vision), logits_of(cut, vision, 5));
}

class MethodsWithPictures : public testing::TestWithParam<const char*> {};

TEST_P(MethodsWithPictures, KeepTheirBudget) {
  BALLAST_NEED_TOWERS(towers());
  const auto model = load("qwen2");
  const VisionModel vision(model->model, model->tokenizer);
  for (const Protocol protocol : {Protocol::prefill, Protocol::stream}) {
    CacheOptions options = room(205, GetParam());
    options.protocol = protocol;
    Session session(model, options);
    read_often(session, vision);
    session.finish_prompt();
    EXPECT_GT(session.tokens(), 200u);
    EXPECT_LE(session.cache().entries(), 96u);
    const Generated made = session.generate(tokens_made(4)).run();
    EXPECT_EQ(made.tokens.size(), 4u);
  }
}

INSTANTIATE_TEST_SUITE_P(, MethodsWithPictures,
                         testing::Values("snapkv:budget=96", "balancekv:budget=96",
                                         "uniform:budget=96", "h2o:budget=96",
                                         "streaming-llm:budget=96", "clustergen:budget=96"));

TEST(PicturesInTexts, AreReadAgainByReplay) {
  BALLAST_NEED_TOWERS(towers());
  const auto model = load("qwen2");
  const VisionModel vision(model->model, model->tokenizer);
  Session session(model, room(205, "replay:bytes=1/4"));
  read_often(session, vision);
  session.finish_prompt();
  EXPECT_LT(session.cache().bytes().used(), model->model.exact_bytes(session.cache()));
  EXPECT_EQ(session.generate(tokens_made(4)).run().tokens.size(), 4u);
}

TEST(PicturesInTexts, AreNotPenalisedAsRepetitions) {
  BALLAST_NEED_TOWERS(towers());
  const auto model = load("qwen2");
  const VisionModel vision(model->model, model->tokenizer);
  Session session(model, room());
  logits_of(session, vision);
  GenerateOptions options = tokens_made(4);
  options.sampling.repetition_penalty = 1.5f;
  EXPECT_EQ(session.generate(options).run().tokens.size(), 4u);
  EXPECT_THROW(session.score(vision.read(kPicture).tokens), Error);
}

TEST(ModelsWithoutATower, SayWhatIsMissing) {
  BALLAST_NEED_TOWERS(towers());
  const auto model = load("qwen2.gguf");
  try {
    const VisionModel vision(model->model, model->tokenizer);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--mmproj"));
  }
}

}  // namespace
}  // namespace ballast
