// ballast calibrate, and what --cache makes of its file.
#include <filesystem>

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
  const std::string text_ = BALLAST_SOURCE_DIR "/examples/story.txt";
};

TEST_F(Calibrate, SparesTheSecondReading) {
  EXPECT_EQ(method(), "replay:bytes=1/8");
  const ProgramResult made = calibrate(text_, model_ + ".scores");
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, testing::HasSubstr("model.gguf.scores: calibrated in"));
  EXPECT_EQ(method(), "calibrated:bytes=1/8");
}

TEST_F(Calibrate, RefusesWhatItCannotReadOrWriteBeforeItReads) {
  expect_refusal(calibrate((dir_ / "none.txt").string(), model_ + ".scores"), "none.txt");
  expect_refusal(calibrate(text_, (dir_ / "model.gguf" / "a.scores").string()), "model.gguf");
  write_text(dir_ / "short.txt", "Too short to be fitted to.");
  expect_refusal(calibrate((dir_ / "short.txt").string(), model_ + ".scores"),
                 "no text of 192 tokens");
  EXPECT_FALSE(std::filesystem::exists(model_ + ".scores"));
}

}  // namespace
}  // namespace ballast::test
