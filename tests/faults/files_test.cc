// Disks that fill up and renames that fail: a result is the old file or the new one whole, and
// nothing else is left in its folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "ballast/cache.h"
#include "ballast/engine/gguf.h"
#include "ballast/error.h"
#include "base/os/files.h"
#include "base/output_file.h"
#include "experiments/data/random_model.h"
#include "file_limit.h"
#include "temp_dir.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

void save_cache(const fs::path& path) {
  CacheShape shape;
  shape.key_dim = shape.value_dim = 64;
  shape.logits.scale = 0.1f;
  Cache cache(shape, {});
  const Matrix rows(700, 64);
  Matrix out(700, 64);
  cache.forward(0, rows.view(), rows.view(), rows.view(), out.view());
  cache.save(path);
}

void save_model(const fs::path& path) {
  RandomModel tiny;
  tiny.layers = 1, tiny.width = 64, tiny.heads = 2, tiny.kv = 1, tiny.head = 32, tiny.hidden = 64;
  tiny.vocabulary = 2000, tiny.positions = 512;
  write_random_model(tiny, path);
}

void save_text(const fs::path& path) { write_file(path, std::string(300000, 'x')); }

struct Kind {
  const char* name;
  void (*save)(const fs::path&);
};

class SavedFile : public testing::TestWithParam<Kind> {
 protected:
  void expect_old_file() const {
    EXPECT_EQ(read_text(dir_ / "file"), "old");
    EXPECT_EQ(std::distance(fs::directory_iterator(dir_.path()), {}), 1);
  }
  TempDir dir_;
};

TEST_P(SavedFile, ADiskThatFillsUpLeavesTheOldOne) {
  const fs::path path = dir_ / "file";
  GetParam().save(dir_ / "whole");
  const std::size_t size = fs::file_size(dir_ / "whole");
  ASSERT_GT(size, 100000U);  // more than one buffer
  fs::remove(dir_ / "whole");
  write_text(path, "old");
  for (const std::size_t room : {std::size_t{0}, std::size_t{1}, size / 3, size - 4097, size - 1}) {
    const std::string said = error_of([&] {
      const FileLimit limit(room);
      GetParam().save(path);
    });
    EXPECT_THAT(said, HasSubstr(path.string() + ": cannot write: ")) << room;
    expect_old_file();
  }
  {
    const FileLimit limit(size);
    GetParam().save(path);
  }
  EXPECT_EQ(fs::file_size(path), size);
}

TEST_P(SavedFile, ARenameThatFailsLeavesTheOldOne) {
  write_text(dir_ / "file", "old");
  const FileCalls calls = file_calls();
  for (const int error : {EIO, ENOSPC, EACCES}) {
    static int number = 0;
    number = error;
    file_calls().rename = [](const char*, const char*) {
      errno = number;
      return -1;
    };
    EXPECT_THAT(error_of([&] { GetParam().save(dir_ / "file"); }),
                HasSubstr(std::string("/file: cannot create: ") + std::strerror(error)));
    file_calls() = calls;
    expect_old_file();
  }
}

INSTANTIATE_TEST_SUITE_P(All, SavedFile,
                         testing::Values(Kind{"cache", save_cache}, Kind{"model", save_model},
                                         Kind{"text", save_text}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace ballast
