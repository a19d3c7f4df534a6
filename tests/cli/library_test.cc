// ballast library: documents are kept, found by words, and asked together.
#include <cmath>
#include <filesystem>

#include "cli/passages.h"
#include "paths.h"
#include "program.h"

namespace ballast::test {
namespace {

using cli::find_passages;
using cli::Found;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Passages, TheTextWithTheRarestWordsIsFirst) {
  const std::vector<std::string> texts = {
      "The house is old. The garden of the house is wild.",
      "Rent is due on the first day. The lease ENDS in March, and the deposit comes back.",
      "The river is wide."};
  const std::vector<Found> found = find_passages(texts, "When does the lease end? ends, the lease");
  ASSERT_EQ(found.size(), 3U);  // all have "the"
  EXPECT_EQ(found[0].text, 1U);
  EXPECT_GT(found[0].score, 2 * found[1].score);
  EXPECT_THAT(found[0].passage, HasSubstr("The lease ENDS in March"));
  EXPECT_THAT(find_passages(texts, "Größe?"), testing::IsEmpty());
}

TEST(Passages, OfALongTextTheBestPassageCounts) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += "word ";
  text += "the needle is here";
  for (int i = 0; i < 500; ++i) text += " word";
  const std::vector<Found> found = find_passages({&text, 1}, "needle");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_THAT(found[0].passage, HasSubstr("needle"));
  EXPECT_LT(found[0].passage.size(), 700U);
}

/// Okapi BM25 by hand: two passages of four words, a word that one of them has twice.
TEST(Passages, ScoresAreThoseOfBm25) {
  const std::vector<std::string> texts = {"fox and fox run", "dog and cat run"};
  const std::vector<Found> found = find_passages(texts, "fox");
  ASSERT_EQ(found.size(), 1U);
  EXPECT_NEAR(found[0].score, std::log(1 + 1.5 / 1.5) * 2 * 2.2 / (2 + 1.2), 1e-12);
}

class Library : public testing::Test {
 protected:
  ProgramResult library(std::vector<std::string> words) const {
    words.insert(words.begin(), "library");
    words.insert(words.end(), {"--library", (dir_ / "library").string(), "-q"});
    return run(words);
  }
  ProgramResult add(const std::string& file) const { return library({"add", "-m", kMini, file}); }
  static constexpr const char* kMini = BALLAST_SOURCE_DIR "/models/ballast-mini.gguf";

  TempDir dir_;
};

TEST_F(Library, AnswersFromTheDocumentsThatHaveTheWords) {
  EXPECT_EQ(library({"ask", "-m", kMini, "Who?"}).exit_code, 2);
  const std::string records = BALLAST_SOURCE_DIR "/examples/record.txt";
  write_text(dir_ / "sea.txt", "It was a dark night, and nobody saw the ship. The captain slept.");
  EXPECT_THAT(add((dir_ / "sea.txt").string()).out, HasSubstr("sea.txt: "));
  EXPECT_EQ(add(records).exit_code, 0);
  const ProgramResult again = library({"add", "-m", kMini, records, "--json"});
  EXPECT_EQ(again.json().at("added").size(), 0U);

  const nlohmann::json listed = library({"list", "--json"}).json();
  ASSERT_EQ(listed.at("documents").size(), 2U);
  EXPECT_EQ(listed["documents"][0]["name"], "record.txt");

  const ProgramResult asked =
      library({"ask", "-m", kMini, "What is the register content of line gaudy-dove?",
               "--temperature", "0", "--json"});
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_THAT(asked.json().at("answer").get<std::string>(), HasSubstr("37211"));
  EXPECT_EQ(asked.json().at("documents")[0]["name"], "record.txt");

  const ProgramResult text = library({"ask", "-m", kMini, "Who saw the ship?", "-n", "8"});
  EXPECT_THAT(text.out, HasSubstr("sea.txt: It was a dark night"));

  EXPECT_EQ(library({"remove", "sea.txt"}).exit_code, 0);
  EXPECT_EQ(library({"list", "--json"}).json().at("documents").size(), 1U);
  const ProgramResult none = library({"remove", "sea.txt"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("no document 'sea.txt'"));
}

}  // namespace
}  // namespace ballast::test
