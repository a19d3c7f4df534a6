#include "base/output_file.h"
#include "base/os/files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ballast/error.h"
#include "base/mapped_file.h"
#include "base/read_file.h"
#include "partial_count.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int files_open() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST(OutputFile, AppearsOnlyWhenCommitted) {
  TempDir dir;
  OutputFile file(dir / "a");
  file.write("some");
  file.write(" text");
  EXPECT_EQ(file.size(), 9u);
  EXPECT_FALSE(std::filesystem::exists(dir / "a"));
  EXPECT_EQ(partial_files_in(dir.path()), 1);
  file.commit();
  EXPECT_EQ(read_text(dir / "a"), "some text");
  EXPECT_EQ(partial_files_in(dir.path()), 0);
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
  EXPECT_EQ(partial_files_in(dir.path()), 0);
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

TEST(OutputFile, TwoWritersDisturbOneAnotherNot) {
  TempDir dir;
  OutputFile first(dir / "a"), second(dir / "a");
  first.write("first");
  second.write("the second");
  {
    OutputFile third(dir / "a");
    third.write("refused");
  }
  second.commit();
  EXPECT_EQ(read_text(dir / "a"), "the second");
  first.commit();
  EXPECT_EQ(read_text(dir / "a"), "first");
  EXPECT_EQ(partial_files_in(dir.path()), 0);
}

TEST(OutputFile, ReplacesWithTheModeOfTheOldFile) {
  TempDir dir;
  write_text(dir / "a", "old");
  for (mode_t mode : {0600u, 0640u, 0755u}) {
    ASSERT_EQ(::chmod((dir / "a").c_str(), mode), 0);
    OutputFile file(dir / "a");
    for (const auto& entry : std::filesystem::directory_iterator(dir.path())) {
      struct stat status = {};
      ASSERT_EQ(::stat(entry.path().c_str(), &status), 0);
      EXPECT_EQ(status.st_mode & 07777, mode) << entry.path();
    }
    file.commit();
    struct stat status = {};
    ASSERT_EQ(::stat((dir / "a").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, mode);
  }
  if (::geteuid() != 0) return;  // others cannot give files away
  ASSERT_EQ(::chown((dir / "a").c_str(), 1234, 4321), 0);
  write_file(dir / "a", "new");
  struct stat status = {};
  ASSERT_EQ(::stat((dir / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_uid, 1234u);
  EXPECT_EQ(status.st_gid, 4321u);
}

TEST(OutputFile, TakesNamesOfAnyLength) {
  TempDir dir;
  const std::string longest(255, 'n');
  write_file(dir / longest, "text");
  EXPECT_EQ(read_text(dir / longest), "text");
}

/// Faults in place of the system's calls; the system's again in the end.
class Faults {
 public:
  Faults() : before_(file_calls()) {}
  ~Faults() { file_calls() = before_; }
  Faults(const Faults&) = delete;
  Faults& operator=(const Faults&) = delete;

  static inline int left = 0;  ///< calls that succeed before one fails
  static inline int error = 0;
  /// Whether this call is the one that fails.
  static bool fails() {
    if (left-- != 0) return false;
    errno = error;
    return true;
  }

 private:
  FileCalls before_;
};

/// Whether writing `text` over an old file failed; whichever it was, what it left is whole.
bool fails_cleanly(const std::string& text, const char* reason) {
  TempDir dir;
  write_text(dir / "a", "old");
  const int open = files_open();
  std::string message;
  try {
    OutputFile file(dir / "a");
    file.write(std::string_view(text).substr(0, 10));
    for (std::size_t at = 10; at < text.size(); at += 99'998)
      file.write(std::string_view(text).substr(at, 99'998));
    file.commit();
  } catch (const Error& error) {
    message = error.what();
    EXPECT_THAT(message, AllOf(HasSubstr("/a: cannot "), HasSubstr(reason)));
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0);
  }
  const bool failed = !message.empty();
  EXPECT_TRUE(read_text(dir / "a") == (failed ? "old" : text));
  EXPECT_EQ(partial_files_in(dir.path()), 0);
  EXPECT_EQ(files_open(), open);
  return failed;
}

TEST(OutputFile, AFaultOfACallLeavesTheOldFile) {
  const std::string text(900'000, 'n');
  for (int error : {ENOSPC, EIO, EDQUOT}) {
    Faults guard;
    Faults::error = error;
    file_calls().sync = [](int f) { return Faults::fails() ? -1 : ::fsync(f); };
    Faults::left = 0;
    EXPECT_TRUE(fails_cleanly(text, std::strerror(error)));
    Faults::left = 1;  // the folder's, which comes after the rename and cannot undo it
    EXPECT_FALSE(fails_cleanly(text, std::strerror(error)));
    file_calls().rename = [](const char* a, const char* b) {
      return Faults::fails() ? -1 : ::rename(a, b);
    };
    file_calls().sync = ::fsync;
    Faults::left = 0;
    EXPECT_TRUE(fails_cleanly(text, std::strerror(error)));
  }
}

// The system writes up to the limit, then fails: a short write, as on a disk that fills up.
TEST(OutputFile, AShortWriteLeavesTheOldFile) {
  const std::string text(900'000, 'n');
  struct rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  for (rlim_t limit : {3, 9, 10, 4096, 262'143, 262'144, 262'145, 600'001, 899'999, 900'000}) {
    struct rlimit small = before;
    small.rlim_cur = limit;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_EQ(fails_cleanly(text, "File too large"), limit < text.size()) << limit;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  }
  ::signal(SIGXFSZ, handler);
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
  EXPECT_EQ(partial_files_in(dir.path()), 0);
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
