// ballast library: documents are kept, found by words, and asked together.
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "../model/reference_case.h"
#include "library/library.h"
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

  const ProgramResult text =
      library({"ask", "-m", kMini, "Who saw the ship?", "-n", "8", "--sections", "1"});
  EXPECT_THAT(text.out, HasSubstr("[sea.txt, line 1] It was a dark night"));

  EXPECT_EQ(library({"remove", "sea.txt"}).exit_code, 0);
  EXPECT_EQ(library({"list", "--json"}).json().at("documents").size(), 1U);
  const ProgramResult none = library({"remove", "sea.txt"});
  EXPECT_EQ(none.exit_code, 2);
  EXPECT_THAT(none.err, HasSubstr("no document 'sea.txt'"));
}

TEST_F(Library, EachFileOfAFolderIsADocument) {
  std::filesystem::create_directories(dir_ / "d/sub");
  write_text(dir_ / "d/a.txt", "The ferry leaves at seven.");
  write_text(dir_ / "d/sub/b.html", "<p>The mill was sold.");
  const nlohmann::json added =
      library({"add", "-m", kMini, (dir_ / "d").string(), "--json"}).json();
  ASSERT_EQ(added.at("added").size(), 2U);
  EXPECT_EQ(added["added"][0]["name"], "a.txt");
  EXPECT_EQ(added["added"][1]["name"], "sub/b.html");
  const ProgramResult text =
      library({"ask", "-m", kMini, "Was the mill sold?", "-n", "4", "--sections", "1"});
  EXPECT_THAT(text.out, HasSubstr("[sub/b.html] The mill was sold."));
}

TEST_F(Library, FollowsAFolder) {
  const std::string folder = (dir_ / "d").string();
  std::filesystem::create_directories(folder);
  write_text(dir_ / "d/a.txt", "The ferry leaves at seven.");
  write_text(dir_ / "d/b.txt", "The mill was sold.");
  write_text(dir_ / "d/c.txt", "The mill was sold.");
  EXPECT_EQ(library({"add", "-m", kMini, folder, "--json"}).json().at("added").size(), 2U);
  write_text(dir_ / "d/a.txt", "The ferry leaves at eight.");
  std::filesystem::remove(dir_ / "d/b.txt");
  std::filesystem::remove(dir_ / "d/c.txt");
  const nlohmann::json next = library({"add", "-m", kMini, folder, "--json"}).json();
  EXPECT_EQ(next.at("changed"), nlohmann::json::array({"a.txt"}));
  EXPECT_EQ(next.at("removed"), nlohmann::json::array({"b.txt"}));
  const nlohmann::json listed = library({"list", "--json"}).json().at("documents");
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].at("sections_read"), 1);
  std::size_t files = 0;
  for (const auto& one : std::filesystem::directory_iterator(dir_ / "library")) {
    files += one.path().filename().string().starts_with('.') ? 0u : 1u;
  }
  EXPECT_EQ(files, 2U);  // one document, one cache
}

/// A manual of several sections.
std::string manual() {
  std::string text = "The Manual\n\n";
  for (int part = 1; part <= 6; ++part) {
    text += fmt::format("{}. Part {}\n\n", part, part);
    for (int line = 0; line < 60; ++line) {
      text += fmt::format("The number of record {} is {}. ", 100 * part + line,
                          (100 * part + line) * 7919 % 9973);
    }
    text += "\n\n";
  }
  return text;
}

TEST_F(Library, GoesOnAfterItWasKilled) {
  write_text(dir_ / "manual.txt", manual());
  const std::string library_folder = (dir_ / "library").string();
  const std::vector<std::string> words = {
      "library", "add", "-m", kMini, "--library", library_folder, (dir_ / "manual.txt").string(),
      "--json"};
  const auto caches = [&] {
    std::size_t count = 0;
    std::error_code none;
    for (const auto& one : std::filesystem::directory_iterator(library_folder, none)) {
      count += one.path().extension() == ".cache" ? 1u : 0u;
    }
    return count;
  };
  Program first(words);
  for (int i = 0; i < 3000 && caches() == 0; ++i) ::usleep(10000);
  first.signal(SIGKILL);
  first.wait();
  EXPECT_GE(caches(), 1U);
  // Two go on at once: each section is read by one of them.
  Program second(words), third(words);
  EXPECT_EQ(second.wait().exit_code, 0);
  EXPECT_EQ(third.wait().exit_code, 0);
  const nlohmann::json listed = library({"list", "--json"}).json().at("documents");
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_GT(listed[0].at("sections"), 2);
  EXPECT_EQ(listed[0].at("sections_read"), listed[0].at("sections"));
  EXPECT_EQ(caches(), listed[0].at("sections").get<std::size_t>());

  const nlohmann::json asked =
      library({"ask", "-m", kMini, "What is the number of record 515?", "--json", "-n", "8"})
          .json();
  EXPECT_EQ(asked.at("documents")[0].at("title"), "The Manual: 5. Part 5");
  EXPECT_THAT(asked.at("documents")[0].at("passage").get<std::string>(),
              HasSubstr("record 515 is"));
}

TEST_F(Library, SaysWhatIsNotInIt) {
  write_text(dir_ / "a.txt", "The ferry leaves at seven.");
  EXPECT_EQ(add((dir_ / "a.txt").string()).exit_code, 0);
  const ProgramResult asked = library({"ask", "-m", kMini, "Xyzzy?"});
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_EQ(asked.out, "Not in the library.\n");
  EXPECT_EQ(library({"ask", "-m", kMini, "Xyzzy?", "--json"}).json().at("supported"), false);
}

/// Waits until the library has these documents, all read.
bool has_documents(const std::filesystem::path& folder,
                   const std::map<std::string, std::string>& texts) {
  ballast::Library library(folder);
  for (int i = 0; i < 6000; ++i) {
    std::map<std::string, std::string> now;
    for (const auto& one : library.content()->documents) {
      if (std::ranges::all_of(one->sections, [&](const auto& s) { return library.is_read(s); })) {
        now[one->name] = one->text;
      }
    }
    if (now == texts) return true;
    ::usleep(10000);
  }
  return false;
}

TEST_F(Library, WatchesAFolder) {
  std::filesystem::create_directories(dir_ / "d");
  write_text(dir_ / "d/a.txt", "The ferry leaves at seven.");
  write_text(dir_ / "d/b.txt", "The mill was sold.");
  const std::filesystem::path folder = dir_ / "library";
  Program watch({"library", "add", "-m", kMini, "--library", folder.string(), "--watch",
                 (dir_ / "d").string()});
  EXPECT_TRUE(has_documents(
      folder, {{"a.txt", "The ferry leaves at seven."}, {"b.txt", "The mill was sold."}}));
  write_text(dir_ / "d/c.txt", "Ilka paints boats.");
  EXPECT_TRUE(has_documents(folder, {{"a.txt", "The ferry leaves at seven."},
                                     {"b.txt", "The mill was sold."},
                                     {"c.txt", "Ilka paints boats."}}));
  write_text(dir_ / "d/a.txt", "The ferry leaves at eight in winter.");
  std::filesystem::remove(dir_ / "d/b.txt");
  EXPECT_TRUE(has_documents(folder, {{"a.txt", "The ferry leaves at eight in winter."},
                                     {"c.txt", "Ilka paints boats."}}));
  watch.signal(SIGINT);
  const ProgramResult ended = watch.wait();
  EXPECT_THAT(ended.err, HasSubstr("1 folders and files are watched; Ctrl+C ends it"));
  EXPECT_THAT(ended.out, HasSubstr("b.txt: gone, and taken out"));
}

TEST_F(Library, AnswersInRunAndChat) {
  const std::string records = BALLAST_SOURCE_DIR "/examples/record.txt", folder = dir_ / "library";
  EXPECT_EQ(add(records).exit_code, 0);
  const std::string question = "What is the register content of line gaudy-dove?";
  const ProgramResult once =
      run({"run", "-m", kMini, "--library", folder, question, "--temperature", "0", "--json"});
  EXPECT_EQ(once.exit_code, 0) << once.err;
  EXPECT_THAT(once.json().at("answer").get<std::string>(), HasSubstr("37211"));
  const ProgramResult said =
      Program({"chat", "-m", kMini, "--library", folder, "--temperature", "0"},
              question + "\n\nXyzzy qwertz?\n/quit\nnever asked\n")
          .wait();
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_THAT(said.out, HasSubstr("37211"));
  EXPECT_THAT(said.out, HasSubstr("[record.txt, line "));
  expect_refusal(run({"run", "-m", kMini, "--library", folder, question, "--cache", "1/8"}),
                 "--cache");
  expect_refusal(run({"chat", "-m", kMini, "--library", folder, "--context", records}),
                 "--context");
  expect_refusal(run({"chat", "-m", kMini, "--library", (dir_ / "none").string()}),
                 "no documents; ballast library add brings some");
}

TEST_F(Library, JoinsTwoSectionsWhereNeitherAnswersAlone) {
  write_text(dir_ / "a.txt", "The ferry leaves at seven.");
  write_text(dir_ / "b.txt", "The ferry is blue.");
  EXPECT_EQ(add((dir_ / "a.txt").string()).exit_code, 0);
  EXPECT_EQ(add((dir_ / "b.txt").string()).exit_code, 0);
  const ProgramResult asked = library(
      {"ask", "-m", kMini, "Does the ferry zebra have quantum jukebox?", "-n", "8", "--json"});
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_EQ(asked.json().at("documents").size(), 2U);
  EXPECT_NE(asked.json().at("from").size(), 1U) << asked.out;  // else nothing was joined
}

TEST_F(Library, BeforeAnythingIsReadThatIsSaid) {
  write_text(dir_ / "a.txt", "The ferry leaves at seven.");
  EXPECT_EQ(add((dir_ / "a.txt").string()).exit_code, 0);
  for (const auto& file : std::filesystem::directory_iterator(dir_ / "library")) {
    if (file.path().extension() == ".cache") std::filesystem::remove(file);
  }
  expect_refusal(library({"ask", "-m", kMini, "When does the ferry leave?"}),
                 "nothing of it is read yet; ballast library add goes on with it");
}

TEST_F(Library, IsOfOneModel) {
  write_text(dir_ / "a.txt", "The ferry leaves at seven.");
  EXPECT_EQ(add((dir_ / "a.txt").string()).exit_code, 0);
  const ReferenceCase made("llama");
  if (!made.made()) GTEST_SKIP() << "tests/model/reference.py needs python3 with numpy";
  const std::string other = made.gguf().string();
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"add", "-m", other, (dir_ / "a.txt").string()},
        std::vector<std::string>{"ask", "-m", other, "When does the ferry leave?"}}) {
    expect_refusal(library(words), "the library's documents were read with the model");
  }
}

TEST_F(Library, ADamagedFileLeavesTheOthers) {
  write_text(dir_ / "a.txt", "The ferry leaves at seven.");
  write_text(dir_ / "b.txt", "The ferry is blue.");
  EXPECT_EQ(add((dir_ / "a.txt").string()).exit_code, 0);
  const std::filesystem::path folder = dir_ / "library";
  for (const char* damaged : {"{\"name\": \"x\"", "[]", "{\"name\": 1, \"text\": \"x\"}", "\xff",
                              "{\"name\": \"x\", \"text\": \"ferry\", \"tokens\": \"many\"}"}) {
    write_text(folder / "0.json", damaged);
    const ProgramResult listed = run({"library", "list", "--library", folder.string(), "--json"});
    EXPECT_EQ(listed.exit_code, 0) << damaged << listed.err;
    EXPECT_EQ(listed.json().at("documents").size(), 1U) << damaged;
    EXPECT_THAT(listed.err, HasSubstr("0.json: ")) << damaged;
    EXPECT_THAT(listed.err, HasSubstr("it is left out: remove the file")) << damaged;
    EXPECT_EQ(library({"ask", "-m", kMini, "When does the ferry leave?", "-n", "4"}).exit_code, 0)
        << damaged;
  }
  // A cache, too.
  EXPECT_EQ(add((dir_ / "b.txt").string()).exit_code, 0);
  const nlohmann::json both = library({"list", "--json"}).json();
  ASSERT_EQ(both.at("documents").size(), 2U);
  for (const auto& one : std::filesystem::directory_iterator(folder)) {
    const std::string text = one.path().extension() == ".json" ? read_text(one.path()) : "";
    if (text.find("b.txt") == std::string::npos) continue;
    std::filesystem::path cache = one.path();
    write_text(cache.replace_extension(".cache"), "damaged");
  }
  const ProgramResult asked =
      run({"library", "ask", "-m", kMini, "--library", folder.string(),
           "What is blue, and when does the ferry leave?", "-n", "4", "--json"});
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_EQ(asked.json().at("documents").size(), 1U);
  EXPECT_THAT(asked.err, HasSubstr("note: b.txt is left out: "));
}

TEST_F(Library, NamesTheFolderThatCannotBeWritten) {
  write_text(dir_ / "a.txt", "The ferry leaves at seven.");
  write_text(dir_ / "file", "");
  for (const std::string& folder :
       {(dir_ / "file/library").string(), std::string("/proc/library")}) {
    expect_refusal(
        run({"library", "add", "-m", kMini, (dir_ / "a.txt").string(), "--library", folder}),
        folder + ": cannot write into the folder: ", 1);
  }
}

}  // namespace
}  // namespace ballast::test
