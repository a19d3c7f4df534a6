// Models larger than memory: the same logits, and no more memory than was said.
#include "model/layer_pages.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "ballast/engine/model.h"
#include "base/mapped_file.h"
#include "experiments/data/random_model.h"
#include "temp_dir.h"

namespace ballast {
namespace {

/// Bytes of a file that are in memory.
std::size_t resident_bytes(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::size_t page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> pages((file.bytes().size() + page - 1) / page);
  EXPECT_EQ(
      ::mincore(const_cast<std::byte*>(file.bytes().data()), file.bytes().size(), pages.data()), 0);
  return page * static_cast<std::size_t>(
                    std::ranges::count_if(pages, [](unsigned char in) { return (in & 1) != 0; }));
}

bool is_in_memory_only(const std::filesystem::path& path) {
  struct statfs of = {};
  return ::statfs(path.c_str(), &of) == 0 && of.f_type == TMPFS_MAGIC;
}

class LayerPagesTest : public testing::Test {
 protected:
  void SetUp() override {
    // Ten layers of 2.8 MB.
    write_random_model(
        parse_random_model("layers=10,width=256,heads=4,kv=2,head=64,hidden=1536,vocabulary=512,"
                           "positions=4096,type=f16"),
        path());
    const int file = ::open(path().c_str(), O_RDONLY);
    ASSERT_EQ(::fsync(file), 0);  // pages not written yet cannot be dropped
    ::close(file);
  }
  std::filesystem::path path() const { return dir_ / "model.gguf"; }

  /// The logits of a prompt in two parts and of a token after it; `most`: bytes of weights held
  /// between them.
  static std::vector<float> logits(const Model& model, std::size_t& most) {
    Engine engine(model);
    Sequence sequence(model, CacheOptions{});
    std::vector<Token> tokens(40);
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>(7 * i % 500);
    PrefillOptions options;
    options.chunk = 32;
    options.progress = [&](std::size_t, std::size_t) {
      most = std::max(most, resident_bytes(model.file().path()));
      return true;
    };
    std::vector<float> out = engine.prefill(sequence, tokens, options);
    engine.decode(sequence, 3, out);
    most = std::max(most, resident_bytes(model.file().path()));
    return out;
  }

  TempDir dir_;
};

TEST_F(LayerPagesTest, OfALargerModelAFewLayersAreInMemory) {
  std::size_t most = 0;
  const std::vector<float> expected = logits(Model(path()), most);
  const std::size_t whole = std::filesystem::file_size(path());
  EXPECT_GT(most, whole / 10 * 9) << "nothing is dropped without a limit";
  for (const std::size_t limit : {std::size_t{0}, whole / 2}) {
    Model model(path());
    model.limit_weights(limit);
    const std::size_t said = model.estimate({}, 41).weights;
    EXPECT_LE(said, std::max(limit, whole / 3 + (1 << 20))) << "three layers, what is no layer's";
    EXPECT_EQ(logits(model, most), expected);  // and what the file's writing left is dropped
    most = 0;
    EXPECT_EQ(logits(model, most), expected) << limit;
    if (is_in_memory_only(path())) continue;
    EXPECT_LE(most, said + (1 << 20)) << limit;
    for (int i = 0; i < 1000 && most < said / 2; ++i) {  // the disk may not have brought them yet
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      most = resident_bytes(path());
    }
    EXPECT_GE(most, said / 2) << "two layers are read ahead";
  }
}

TEST_F(LayerPagesTest, ALimitThatHoldsTheModelIsNone) {
  Model model(path());
  const std::size_t whole = model.estimate({}, 41).weights;
  model.limit_weights(0);
  EXPECT_LT(model.estimate({}, 41).weights, whole / 2);
  model.limit_weights(2 * whole);
  EXPECT_EQ(model.pages(), nullptr);
  EXPECT_EQ(model.estimate({}, 41).weights, whole);
}

}  // namespace
}  // namespace ballast
