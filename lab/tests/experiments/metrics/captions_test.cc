// Scores of captions, against the Python package pycocoevalcap (coco-caption).
#include "experiments/metrics/captions.h"

#include <gmock/gmock.h>

namespace ballast {
namespace {

const std::vector<std::string> kCaptions = {
    "A dog is running across a field near the fence.", "a cat sitting on the chair",
    "Three red circles over a blue blue square.", "A man riding on the beach",
    "lights in an empty city street at the night"};
const std::vector<std::vector<std::string>> kReferences = {
    {"A man's dog runs across the green field.", "Two dogs running on grass, happily!",
     "A brown dog runs through a field near a fence."},
    {"A black-and-white cat sits on a chair.", "The cat can't get off the chair.",
     "Cats are sitting on chairs"},
    {"Three red circles above a blue square", "A blue square below three red circles (in a row).",
     "red circles over a square; it is blue"},
    {"A woman is riding a horse on the beach at 3.5 mph", "a person rides a horse along the sea",
     "Someone rides on the beach."},
    {"An empty street with traffic lights at night", "traffic light in a street, night-time",
     "The street is empty."}};

std::vector<Words> captions() {
  std::vector<Words> out;
  for (const std::string& text : kCaptions) out.push_back(caption_words(text));
  return out;
}
std::vector<std::vector<Words>> references() {
  std::vector<std::vector<Words>> out;
  for (const auto& texts : kReferences) {
    out.emplace_back();
    for (const std::string& text : texts) out.back().push_back(caption_words(text));
  }
  return out;
}

std::string joined(std::string_view text) {
  std::string out;
  for (const std::string& word : caption_words(text)) out += (out.empty() ? "" : " ") + word;
  return out;
}

TEST(CaptionWords, AreTheTreebanks) {
  EXPECT_EQ(joined("A man's dog, happily!"), "a man 's dog happily");
  EXPECT_EQ(joined("The cat can't get off the chair."), "the cat ca n't get off the chair");
  EXPECT_EQ(joined("A black-and-white \"cat\" -- at 3.5 mph..."),
            "a black-and-white cat at 3.5 mph");
  EXPECT_EQ(joined("circles (in a row)."), "circles -lrb- in a row -rrb-");
  EXPECT_EQ(joined("a square; it is blue"), "a square it is blue");
  EXPECT_EQ(joined(" .,; "), "");
}

TEST(CaptionScores, AreThoseOfCocoCaption) {
  const auto bleu = caption_bleu(captions(), references());
  const double expected_bleu[] = {0.8974358974128863, 0.5857791861128818, 0.3896547364376671,
                                  0.22282153376321276};
  for (std::size_t n = 0; n < 4; ++n) EXPECT_NEAR(bleu[n], expected_bleu[n], 1e-9);
  const double rouge[] = {0.6, 0.60696517, 0.80973451, 0.67777778, 0.59454191};
  const double cider[] = {1.29664645, 1.42164016, 3.34471613, 1.3569735, 1.23359882};
  const Cider scores(references());
  for (std::size_t p = 0; p < kCaptions.size(); ++p) {
    EXPECT_NEAR(caption_rouge_l(captions()[p], references()[p]), rouge[p], 1e-8);
    EXPECT_NEAR(scores.score(captions()[p], references()[p]), cider[p], 1e-8);
  }
}

// Those of METEOR's own program, told to match equal words and stems alone (-m "exact stem").
TEST(CaptionScores, OfMeteorAreThoseOfEqualWordsAndStems) {
  const double meteor[] = {0.2926987162072786, 0.2955121926901567, 0.4028539318260577,
                           0.33255051159809756, 0.3251120091668282};
  Meteor all;
  for (std::size_t p = 0; p < kCaptions.size(); ++p) {
    const Meteor one = Meteor::of(captions()[p], references()[p]);
    EXPECT_NEAR(one.score(), meteor[p], 1e-9) << p;
    all += one;
  }
  EXPECT_NEAR(all.score(), 0.32651388238357076, 1e-9);
}

TEST(CaptionScores, OfNothingAreNothing) {
  const std::vector<Words> reference = {{"a", "cat"}};
  EXPECT_EQ(caption_rouge_l({}, reference), 0);
  EXPECT_EQ(Meteor::of({}, reference).score(), 0);
  EXPECT_EQ(Cider(std::vector<std::vector<Words>>{reference}).score({}, reference), 0);
  EXPECT_LT(caption_bleu(std::vector<Words>{{}}, std::vector<std::vector<Words>>{reference})[0],
            1e-6);
  EXPECT_EQ(Meteor::of({"a", "cat"}, reference).score(), 1);
}

}  // namespace
}  // namespace ballast
