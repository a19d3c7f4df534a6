// ballast library: documents are kept, found by words, and asked together.
#include <filesystem>

#include "paths.h"
#include "program.h"

namespace ballast::test {
namespace {

using testing::HasSubstr;

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
  EXPECT_THAT(text.out, HasSubstr("sea.txt, line 1: It was a dark night"));

  EXPECT_EQ(library({"remove", "sea.txt"}).exit_code, 0);
  EXPECT_EQ(library({"list", "--json"}).json().at("documents").size(), 1U);
  const ProgramResult none = library({"remove", "sea.txt"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("no document 'sea.txt'"));
}

}  // namespace
}  // namespace ballast::test
