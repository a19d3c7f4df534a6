// What a disk that fails does to a file: fsync() is replaced for this program.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>
#include <vector>

#include "base/output_file.h"
#include "temp_dir.h"

namespace {

int fsync_error = 0;  ///< what it fails with; 0: nothing
bool watches = false;
std::vector<bool> synced_folders;  ///< for each call: whether it was of a folder

}  // namespace

extern "C" int fsync(int file) {
  struct stat status = {};
  if (watches && ::fstat(file, &status) == 0) synced_folders.push_back(S_ISDIR(status.st_mode));
  if (fsync_error == 0) return static_cast<int>(::syscall(SYS_fsync, file));
  errno = fsync_error;
  return -1;
}

namespace ballast {
namespace {

class Sync : public testing::Test {
 protected:
  void SetUp() override { synced_folders.clear(), watches = true; }
  void TearDown() override { fsync_error = 0, watches = false; }
};

std::size_t files_in(const std::filesystem::path& folder) {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

TEST_F(Sync, AFileIsOnTheDiskBeforeItsNameIs) {
  TempDir dir;
  write_file(dir / "a", "text");
  EXPECT_EQ(synced_folders, (std::vector<bool>{false, true}));
}

TEST_F(Sync, ADiskThatFailsLeavesTheOldFile) {
  TempDir dir;
  write_text(dir / "a", "old");
  for (int error : {EIO, ENOSPC, EDQUOT, EINVAL}) {
    fsync_error = error;
    EXPECT_THAT(error_of([&] { write_file(dir / "a", "new"); }),
                testing::AllOf(testing::HasSubstr("/a: cannot write: "),
                               testing::HasSubstr(std::strerror(error))));
    EXPECT_EQ(read_text(dir / "a"), "old");
    EXPECT_EQ(files_in(dir.path()), 1u) << "nothing else is left";
  }
}

TEST_F(Sync, ADeviceNeedsNone) {
  fsync_error = EINVAL;
  EXPECT_NO_THROW(write_file("/dev/null", "text"));
}

}  // namespace
}  // namespace ballast
