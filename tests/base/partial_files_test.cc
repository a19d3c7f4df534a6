#include "base/partial_files.h"

#include <gtest/gtest.h>

#include "base/output_file.h"
#include "partial_count.h"
#include "temp_dir.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

TEST(PartialFiles, AreRemovedUnlessForgotten) {
  TempDir dir;
  for (const char* name : {"a", "b", "c"}) write_text(dir / name, "x");
  note_partial_file(dir / "a");
  forget_partial_file(note_partial_file(dir / "b"));
  forget_partial_file(-1);
  remove_partial_files();
  EXPECT_FALSE(fs::exists(dir / "a"));
  EXPECT_TRUE(fs::exists(dir / "b"));
  write_text(dir / "a", "x");
  remove_partial_files();  // once is enough
  EXPECT_TRUE(fs::exists(dir / "a"));
}

TEST(PartialFiles, MoreThanThereIsRoomForAreLeftAlone) {
  TempDir dir;
  std::vector<int> notes;
  while (notes.size() < 1000 && (notes.empty() || notes.back() >= 0)) {
    notes.push_back(note_partial_file(dir / "none"));
  }
  EXPECT_GT(notes.size(), 8u);
  EXPECT_EQ(notes.back(), -1);
  for (int note : notes) forget_partial_file(note);
  const int again = note_partial_file(dir / "none");
  EXPECT_GE(again, 0);
  forget_partial_file(again);
}

TEST(PartialFiles, OutputFilesAreNotedWhileUnfinished) {
  TempDir dir;
  OutputFile file(dir / "f");
  OutputFile moved = std::move(file);
  EXPECT_EQ(partial_files_in(dir.path()), 1);
  remove_partial_files();
  EXPECT_EQ(partial_files_in(dir.path()), 0);

  OutputFile done(dir / "g");
  done.write("text");
  done.commit();
  write_text(dir / "g.partial", "someone else's");
  remove_partial_files();
  EXPECT_TRUE(fs::exists(dir / "g"));
  EXPECT_TRUE(fs::exists(dir / "g.partial"));
}

}  // namespace
}  // namespace ballast
