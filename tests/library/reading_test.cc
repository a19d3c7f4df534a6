#include "library/reading.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "file_limit.h"
#include "library/asking.h"
#include "paths.h"
#include "support.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class AddDocuments : public testing::Test {
 protected:
  LibraryUpdate add(const AddingProgress& progress = {}) {
    const std::vector<std::string> paths = {(dir_ / "d").string()};
    return add_documents(library_, model_, storage_, paths, progress);
  }
  std::size_t files(const char* extension) const {
    std::size_t out = 0;
    for (const auto& one : std::filesystem::directory_iterator(library_.folder())) {
      out += one.path().extension() == extension ? 1u : 0u;
    }
    return out;
  }
  void SetUp() override {
    std::filesystem::create_directories(dir_ / "d");
    write_text(dir_ / "d/a.txt", "The ferry leaves at seven.");
    write_text(dir_ / "d/b.txt", "The mill was sold.");
  }

  TempDir dir_;
  std::shared_ptr<const TextModel> model_ =
      std::make_shared<const TextModel>(BALLAST_SOURCE_DIR "/models/ballast-mini.gguf");
  SectionStorage storage_{model_->model, "1/2", ""};
  Library library_{dir_ / "library"};
};

TEST_F(AddDocuments, AFullDiskLosesNothing) {
  const std::string said = error_of([&] {
    const FileLimit limit(2000);  // room for an ID.json, not for a cache
    add();
  });
  EXPECT_THAT(said, HasSubstr(".cache: cannot write: "));
  EXPECT_EQ(library_.content()->documents.size(), 2u);
  EXPECT_EQ(files(".cache"), 0u);
  EXPECT_EQ(files(".partial"), 0u);
  std::vector<std::string> read;
  AddingProgress progress;
  progress.read = [&](const LibraryDocument& one) { read.push_back(one.name); };
  EXPECT_THAT(add(progress).added, IsEmpty());
  EXPECT_THAT(read, ElementsAre("a.txt", "b.txt"));
  EXPECT_EQ(files(".cache"), 2u);
  // Nor where there is no room for what a document is.
  write_text(dir_ / "d/c.txt", "Ilka paints boats.");
  EXPECT_THAT(error_of([&] {
                const FileLimit limit(10);
                add();
              }),
              HasSubstr(".json: cannot write: "));
  EXPECT_EQ(library_.content()->documents.size(), 2u);
  EXPECT_THAT(add().added, ElementsAre("c.txt"));
}

TEST_F(AddDocuments, GoesOnWhereItWasStopped) {
  std::size_t told = 0;
  AddingProgress progress;
  progress.tokens = [&](std::size_t done, std::size_t all, std::size_t sections) {
    EXPECT_LE(done, all);
    EXPECT_EQ(sections, 2u);
    return ++told < 1;
  };
  add(progress);
  EXPECT_LE(files(".cache"), 1u);
  add();
  EXPECT_EQ(files(".cache"), 2u);
  LibraryAsker asker(library_, model_);
  EXPECT_EQ(asker.ask("When does the ferry leave?", {}).asked.front().found.document->name,
            "a.txt");
  // A changed text is found by its words, the old one no more.
  write_text(dir_ / "d/a.txt", "The tram is green.");
  EXPECT_THAT(add().changed, ElementsAre("a.txt"));
  EXPECT_THAT(library_.find("ferry", 3), IsEmpty());
  EXPECT_EQ(library_.find("tram", 3).size(), 1u);
  library_.remove_named({"a.txt"});
  EXPECT_THAT(library_.find("tram", 3), IsEmpty());
  EXPECT_THAT(error_of([&] { library_.remove_named({"a.txt"}); }),
              HasSubstr("no document 'a.txt'"));
}

}  // namespace
}  // namespace ballast::test
