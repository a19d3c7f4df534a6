// ballast calibrate, and what --cache makes of its file.
#include <filesystem>

#include "ballast/engine/model.h"
#include "ballast/engine/packing.h"
#include "ballast/error.h"
#include "ballast/pack.h"
#include "cli/program.h"
#include "paths.h"
#include "report/json.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

class Calibrate : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::copy_file(BALLAST_SOURCE_DIR "/models/ballast-mini.gguf", model_);
  }
  /// The method that `--cache 1/8` takes.
  std::string method() const {
    const ProgramResult result =
        run({"perplexity", "-m", model_, text_, "--cache", "1/8", "-q", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Json::parse(result.out)["method"];
  }
  ProgramResult calibrate(const std::string& text, const std::string& out) const {
    return run({"calibrate", "-m", model_, "-f", text, "-o", out, "-q"});
  }

  TempDir dir_;
  const std::string model_ = (dir_ / "model.gguf").string();
  const std::string text_ = BALLAST_SOURCE_DIR "/docs/methods.md";
};

TEST_F(Calibrate, SparesTheSecondReading) {
  EXPECT_EQ(method(), "replay:bytes=1/8");
  const ProgramResult made = calibrate(text_, model_ + ".scores");
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, testing::HasSubstr("model.gguf.scores\n"));
  EXPECT_THAT(made.out, testing::HasSubstr("model.gguf.pack: for packing: calibrated in"));
  EXPECT_EQ(method(), "calibrated:bytes=1/8,means=0.02");
  const Model model{std::filesystem::path(model_)};
  const auto basis = find_pack_basis(model);
  ASSERT_NE(basis, nullptr);
  ASSERT_EQ(basis->presets.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {  // less space, coarser steps
    EXPECT_EQ(basis->presets[i].divisor, 16u << i);
    EXPECT_GT(basis->presets[i].step, i == 0 ? 0.0f : basis->presets[i - 1].step);
    EXPECT_GT(basis->presets[i].loss, i == 0 ? 0.0f : basis->presets[i - 1].loss);
  }
}

TEST_F(Calibrate, MakesThePackFileAloneAndRefusesThatOfAnotherModel) {
  const ProgramResult made = run({"calibrate", "-m", model_, "-f", text_, "-o", model_ + ".scores",
                                  "--packing", "-q", "--json"});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  const Json json = Json::parse(made.out);
  EXPECT_EQ(json["pack_file"], model_ + ".pack");
  EXPECT_EQ(json["pack_bytes"], std::filesystem::file_size(model_ + ".pack"));
  EXPECT_FALSE(json.contains("file"));
  EXPECT_FALSE(std::filesystem::exists(model_ + ".scores"));
  PackBasis other = *find_pack_basis(Model(std::filesystem::path(model_)));
  other.model = "another";
  other.save(model_ + ".pack");
  EXPECT_THAT([&] { find_pack_basis(Model(std::filesystem::path(model_))); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("another, the model is")));
}

TEST_F(Calibrate, RefusesWhatItCannotReadOrWriteBeforeItReads) {
  expect_refusal(calibrate((dir_ / "none.txt").string(), model_ + ".scores"), "none.txt");
  expect_refusal(calibrate(text_, (dir_ / "model.gguf" / "a.scores").string()), "model.gguf");
  write_text(dir_ / "short.txt", "Too short to be fitted to.");
  expect_refusal(calibrate((dir_ / "short.txt").string(), model_ + ".scores"),
                 "no text of 192 tokens");
  expect_refusal(calibrate(BALLAST_SOURCE_DIR "/examples/story.txt", model_ + ".scores"),
                 "packing wants a text of 3072 tokens");
  EXPECT_FALSE(std::filesystem::exists(model_ + ".scores"));
}

}  // namespace
}  // namespace ballast::test
