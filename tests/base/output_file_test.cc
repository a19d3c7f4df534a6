#include "base/output_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "ballast/error.h"
#include "base/mapped_file.h"
#include "base/read_file.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(OutputFile, AppearsOnlyWhenCommitted) {
  TempDir dir;
  OutputFile file(dir / "a");
  file.write("some");
  file.write(" text");
  EXPECT_EQ(file.size(), 9u);
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
  EXPECT_TRUE(std::filesystem::exists(dir / "a.partial"));
  file.commit();
  EXPECT_EQ(read_text(dir / "a"), "some text");
  EXPECT_FALSE(std::filesystem::exists(dir / "a.partial"));
  EXPECT_THROW(file.write("more"), Error);
  EXPECT_THROW(file.commit(), Error);
}

TEST(OutputFile, LeavesTheOldFileWhenAbandoned) {
  TempDir dir;
  write_text(dir / "a", "old");
  {
    OutputFile file(dir / "a");
    file.write("new");
    OutputFile moved = std::move(file);
    moved.write("er");
  }
  EXPECT_EQ(read_text(dir / "a"), "old");
  EXPECT_FALSE(std::filesystem::exists(dir / "a.partial"));
  write_file(dir / "a", "new");
  EXPECT_EQ(read_text(dir / "a"), "new");
}

TEST(OutputFile, WritesThroughSymbolicLinks) {
  TempDir dir;
  write_text(dir / "real", "old");
  std::filesystem::create_symlink("real", dir / "link");
  write_file(dir / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(dir / "link"));
  EXPECT_EQ(read_text(dir / "real"), "new");
}

TEST(OutputFile, SaysWhyItCannotCreate) {
  TempDir dir;
  EXPECT_THAT(error_of([&] { OutputFile(dir / "no/such/a"); }),
              AllOf(HasSubstr("no/such/a"), HasSubstr("No such file or directory")));
  EXPECT_THAT(error_of([&] { OutputFile file(dir.path()); }), HasSubstr("it is a folder"));
  EXPECT_THAT(error_of([&] { OutputFile file(""); }), HasSubstr("the path is empty"));
  if (::geteuid() != 0) {  // root may write anywhere
    std::filesystem::permissions(dir.path(), std::filesystem::perms::owner_read);
    EXPECT_THAT(error_of([&] { OutputFile(dir / "a"); }), HasSubstr("Permission denied"));
    std::filesystem::permissions(dir.path(), std::filesystem::perms::owner_all);
  }
}

TEST(OutputFile, ReportsAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  EXPECT_THAT(error_of([] { write_file("/dev/full", "text"); }),
              AllOf(HasSubstr("/dev/full"), HasSubstr("No space left on device")));
  EXPECT_THAT(error_of([] {
                OutputFile file("/dev/full");
                std::string much(1 << 20, 'x');
                for (int i = 0; i < 3; ++i) file.write(much);
              }),
              HasSubstr("No space left on device"));
  EXPECT_TRUE(std::filesystem::exists("/dev/full"));
}

TEST(OutputFile, RemovesThePartialFileWhenAWriteFails) {
  TempDir dir;
  OutputFile file(dir / "a");
  file.write("text");
  // The folder takes the file's name, so the rename must fail.
  std::filesystem::create_directory(dir / "a");
  write_text(dir / "a/b", "");
  EXPECT_THAT(error_of([&] { file.commit(); }), HasSubstr("cannot create"));
  EXPECT_FALSE(std::filesystem::exists(dir / "a.partial"));
}

TEST(MappedFile, ShowsTheContent) {
  TempDir dir;
  write_text(dir / "a", "content");
  MappedFile file(dir / "a");
  MappedFile moved = std::move(file);
  EXPECT_TRUE(file.bytes().empty());
  EXPECT_EQ(moved.path(), dir / "a");
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.bytes().data()), moved.bytes().size()),
            "content");
  write_text(dir / "empty", "");
  EXPECT_TRUE(MappedFile(dir / "empty").bytes().empty());
}

TEST(ReadFile, ReadsAllOrSaysWhyNotAndWhatToDo) {
  TempDir dir;
  write_text(dir / "a", std::string("one\0two\n", 8));
  EXPECT_EQ(read_file(dir / "a"), std::string("one\0two\n", 8));
  write_text(dir / "empty", "");
  EXPECT_EQ(read_file(dir / "empty"), "");
  EXPECT_EQ(error_of([&] { read_file(dir / "b"); }),
            (dir / "b").string() + ": cannot open: No such file or directory; check the path");
  EXPECT_EQ(error_of([] { read_file("not/here"); }),
            "not/here: cannot open: No such file or directory; check the path, which starts from " +
                std::filesystem::current_path().string());
  EXPECT_THAT(error_of([&] { read_file(dir / "a" / "b"); }), HasSubstr("; check the path"));
  EXPECT_EQ(error_of([] { fail_to_open("a", EACCES); }),
            "a: cannot open: Permission denied; make it readable for you");
  EXPECT_EQ(error_of([&] { read_file(dir.path()); }),
            dir.path().string() + ": cannot read: it is a folder");
}

TEST(MappedFile, SaysWhyItCannotRead) {
  TempDir dir;
  EXPECT_THAT(error_of([&] { MappedFile(dir / "a"); }),
              AllOf(HasSubstr("/a: cannot open"), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { MappedFile file(dir.path()); }), HasSubstr("it is a folder"));
  EXPECT_THAT(error_of([&] { MappedFile file("/dev/null"); }), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace ballast
