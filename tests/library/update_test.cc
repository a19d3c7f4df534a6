#include "library/update.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "temp_dir.h"

namespace ballast::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Updates : public testing::Test {
 protected:
  Updates() { std::filesystem::create_directories(dir_ / "d"); }

  LibraryUpdate update(const std::vector<std::string>& paths) {
    return ballast::update(library_, paths,
                           {.tokens = [](std::string_view text) { return text.size() / 4; },
                            .model = "m",
                            .fingerprint = "f",
                            .progress = {}});
  }
  LibraryUpdate update() { return update({(dir_ / "d").string()}); }
  void write(const std::string& name, const std::string& text) {
    write_text(dir_ / "d" / name, text);
  }
  std::vector<std::string> names() {
    std::vector<std::string> out;
    for (const auto& one : library_.content()->documents) out.push_back(one->name);
    return out;
  }
  /// Pretends that all sections are read.
  void read_all() {
    for (const auto& one : library_.content()->documents) {
      for (const LibrarySection& section : one->sections) {
        write_text(library_.cache_of(section), "cache");
      }
    }
  }

  TempDir dir_;
  Library library_{(std::filesystem::create_directories(dir_ / "library"), dir_ / "library")};
};

TEST_F(Updates, ANameTakesOutEveryDocumentOfIt) {
  std::filesystem::create_directories(dir_ / "e");
  write("a.txt", "The ferry leaves at seven.");
  write_text(dir_ / "e" / "a.txt", "The mill was sold.");
  update();
  update({(dir_ / "e").string()});
  EXPECT_THAT(names(), ElementsAre("a.txt", "a.txt"));
  library_.remove_named({"a.txt"});
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Updates, TakeInWhatIsNewAndTakeOutWhatIsGone) {
  write("a.txt", "The ferry leaves at seven.");
  write("b.txt", "The mill was sold.");
  EXPECT_THAT(update().added, ElementsAre("a.txt", "b.txt"));
  read_all();
  const LibraryUpdate same = update();
  EXPECT_THAT(same.added, IsEmpty());
  EXPECT_THAT(same.removed, IsEmpty());

  write("b.txt", "The mill was not sold.");
  std::filesystem::remove(dir_ / "d/a.txt");
  const LibraryUpdate next = update();
  EXPECT_THAT(next.changed, ElementsAre("b.txt"));
  EXPECT_THAT(next.removed, ElementsAre("a.txt"));
  EXPECT_THAT(names(), ElementsAre("b.txt"));
  EXPECT_EQ(library_.content()->documents[0]->text, "The mill was not sold.");
  for (const auto& file : std::filesystem::directory_iterator(dir_ / "library")) {
    EXPECT_NE(file.path().extension(), ".cache") << file.path();
  }
}

TEST_F(Updates, KeepATextOnce) {
  write("a.txt", "The ferry leaves at seven.");
  write("copy.txt", "The ferry leaves at seven.");
  const LibraryUpdate first = update();
  EXPECT_THAT(first.added, ElementsAre("a.txt"));
  EXPECT_THAT(first.same, ElementsAre("copy.txt has the text of a.txt"));
  // It stays as long as one file has it.
  std::filesystem::remove(dir_ / "d/a.txt");
  EXPECT_THAT(update().removed, IsEmpty());
  EXPECT_THAT(names(), ElementsAre("copy.txt"));
  // A file that is moved is not read again.
  std::filesystem::create_directories(dir_ / "d/sub");
  std::filesystem::rename(dir_ / "d/copy.txt", dir_ / "d/sub/moved.txt");
  EXPECT_THAT(update().removed, IsEmpty());
  EXPECT_THAT(names(), ElementsAre("sub/moved.txt"));
}

TEST_F(Updates, LeaveWhatIsElsewhere) {
  write("a.txt", "The ferry leaves at seven.");
  update();
  write_text(dir_ / "b.txt", "The mill was sold.");
  update({(dir_ / "b.txt").string()});
  EXPECT_THAT(names(), ElementsAre("a.txt", "b.txt"));
  // An empty folder may be a disk that is not there.
  std::filesystem::remove(dir_ / "d/a.txt");
  EXPECT_THROW(update(), Error);
  EXPECT_THAT(names(), ElementsAre("a.txt", "b.txt"));
}

TEST_F(Updates, SectionsOfEqualTextShareACache) {
  const auto manual = [](const std::string& last) {
    std::string text = "Manual\n\n";
    for (int i = 0; i < 4; ++i) {
      text += fmt::format("{}. Part\n\n", i);
      for (int j = 0; j < 120; ++j)
        text += fmt::format("Sentence {} of part {} stands here. ", j, i);
      text += "\n\n";
    }
    return text + last;
  };
  write("a.txt", manual("The end.\n"));
  update();
  read_all();
  write("a.txt", manual("Another end.\n"));
  update();
  const auto content = library_.content();
  ASSERT_EQ(content->documents.size(), 1u);
  const LibraryDocument& document = *content->documents[0];
  ASSERT_GE(document.sections.size(), 2u);
  EXPECT_TRUE(library_.is_read(document.sections.front()));
  EXPECT_FALSE(library_.is_read(document.sections.back()));
  // Found is what is read, with its place in the whole text.
  const auto found = library_.find("sentence 7 of part 0", 3);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(document.text.substr(found[0].begin, 10), "Sentence 7");
  EXPECT_EQ(document.place_of(document.sections[1], 0).document, "a.txt");
}

TEST_F(Updates, RemoveWhatWasNotFinishedLongAgo) {
  write("a.txt", "The ferry leaves at seven.");
  const auto old = dir_ / "library/1.cache.7.partial", fresh = dir_ / "library/2.cache.8.partial";
  write_text(old, "x");
  write_text(fresh, "x");
  std::filesystem::last_write_time(
      old, std::filesystem::file_time_type::clock::now() - std::chrono::hours(2));
  update();
  EXPECT_FALSE(std::filesystem::exists(old));
  EXPECT_TRUE(std::filesystem::exists(fresh));
}

TEST_F(Updates, ADamagedDocumentIsNamed) {
  write("a.txt", "The ferry leaves at seven.");
  update();
  for (const char* damaged : {"[]", "{}", "{\"name\": 1, \"text\": \"x\"}",
                              R"({"name": "x", "text": "x", "sections": [{"key": "../x"}]})",
                              R"({"name": "x", "text": "x", "sections": [1]})"}) {
    write_text(dir_ / "library/0.json", damaged);
    EXPECT_EQ(library_.content()->damaged.size(), 1u) << damaged;
    EXPECT_THAT(names(), ElementsAre("a.txt"));
  }
}

}  // namespace
}  // namespace ballast::test
