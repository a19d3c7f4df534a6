#include "base/mapped_file.h"

#include <gtest/gtest.h>

#include <utility>

#include "temp_dir.h"

namespace ballast {
namespace {

TEST(MappedFile, AnAddressTellsTheFile) {
  TempDir dir;
  write_text(dir / "a", "aaa");
  write_text(dir / "b", "bb");
  const std::string a = (dir / "a").string(), b = (dir / "b").string();
  const char outside = 'x';
  MappedFile first(dir / "a");
  const std::byte* at = first.bytes().data();
  {
    const MappedFile second(dir / "b");
    EXPECT_EQ(mapped_path(at), a);
    EXPECT_EQ(mapped_path(at + 2), a);
    EXPECT_EQ(mapped_path(second.bytes().data() + 1), b);
    EXPECT_EQ(mapped_path(at + 3), nullptr);
    EXPECT_EQ(mapped_path(&outside), nullptr);
    EXPECT_EQ(mapped_path(nullptr), nullptr);
  }
  MappedFile moved = std::move(first);
  EXPECT_EQ(mapped_path(at), a);
  moved = MappedFile();
  EXPECT_EQ(mapped_path(at), nullptr);
}

TEST(MappedFile, FilesBeyondTheTableAreMappedToo) {
  TempDir dir;
  write_text(dir / "a", "aaa");
  std::vector<MappedFile> many;
  for (int i = 0; i < 300; ++i) many.emplace_back(dir / "a");
  EXPECT_EQ(many.back().bytes().size(), 3U);
  many.clear();
  const MappedFile after(dir / "a");
  EXPECT_EQ(mapped_path(after.bytes().data()), (dir / "a").string());
}

}  // namespace
}  // namespace ballast
