#include "base/read_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "support.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using test::error_of;
using testing::HasSubstr;

TEST(ReadFile, HasALimit) {
  const TempDir dir;
  write_text(dir / "a", std::string(100'000, 'x'));
  EXPECT_EQ(read_file(dir / "a", {.most = 100'000}), std::string(100'000, 'x'));
  EXPECT_THAT(error_of([&] { read_file(dir / "a", {.most = 99'999}); }),
              HasSubstr("a: too large; at most 99999 bytes are read here"));
}

TEST(ReadFile, ReadsNoDevice) {
  EXPECT_EQ(read_file("/dev/null"), "");
  EXPECT_EQ(error_of([] { read_file("/dev/zero"); }),
            "/dev/zero: cannot read: it is a device; name a file");
  EXPECT_THAT(error_of([] { read_file("/dev/null", {.pipes = false}); }), HasSubstr("no regular"));
}

TEST(ReadFile, SaysWhereReadingFails) {
  if (!std::filesystem::exists("/proc/self/mem")) GTEST_SKIP() << "no /proc/self/mem here";
  EXPECT_EQ(error_of([] { read_file("/proc/self/mem"); }),  // whose first page nothing is mapped to
            "/proc/self/mem: cannot read: Input/output error");
}

TEST(ReadFile, ReadsPipesWhereTheyMayBe) {
  const TempDir dir;
  const std::filesystem::path pipe = dir / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { read_file(pipe, {.pipes = false}); }), HasSubstr("no regular file"));
  std::thread writer([&] { write_text(pipe, "abc"); });
  EXPECT_EQ(read_file(pipe), "abc");
  writer.join();
}

}  // namespace
}  // namespace ballast
