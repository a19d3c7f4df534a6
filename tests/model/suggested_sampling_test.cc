#include "model/suggested_sampling.h"

#include <gtest/gtest.h>

#include "ballast/engine/gguf.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

const SamplingOptions kStandard{.temperature = 0.7f};

TEST(SuggestedSampling, IsThatOfTheFolder) {
  const TempDir dir;
  TokenizerSource files;
  files.folder = dir.path();
  const auto made = [&](const std::string& text) {
    write_text(dir / "generation_config.json", text);
    return suggested_sampling(files, kStandard);
  };
  EXPECT_EQ(suggested_sampling(files, kStandard).temperature, 0.7f);
  SamplingOptions got =
      made(R"({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.1,
               "repetition_penalty": 1.1})");
  EXPECT_EQ(got.temperature, 0.6f);
  EXPECT_EQ(got.top_k, 20u);
  EXPECT_EQ(got.top_p, 0.95f);
  EXPECT_EQ(got.min_p, 0.1f);
  EXPECT_EQ(got.repetition_penalty, 1.0f);  // greedy answers stay those of `run`
  EXPECT_EQ(made(R"({"do_sample": false, "temperature": 0.6})").temperature, 0);
  got = made(R"({"temperature": null, "top_p": 0, "top_k": -1, "min_p": "x"})");
  EXPECT_EQ(got.temperature, 0.7f);
  EXPECT_EQ(got.top_p, 1.0f);
  EXPECT_EQ(got.top_k, 0u);
  EXPECT_EQ(made("[]").temperature, 0.7f);
  EXPECT_THROW(made("{"), Error);
}

TEST(SuggestedSampling, IsThatOfGguf) {
  const TempDir dir;
  GgufWriter writer(dir / "m.gguf");
  writer.add("general.architecture", "llama");
  writer.add("general.sampling.temp", 0.25f);
  writer.add("general.sampling.top_k", std::int32_t{40});
  writer.commit();
  const Gguf gguf(dir / "m.gguf");
  TokenizerSource files;
  files.gguf = &gguf;
  files.folder = dir.path();
  const SamplingOptions got = suggested_sampling(files, kStandard);
  EXPECT_EQ(got.temperature, 0.25f);
  EXPECT_EQ(got.top_k, 40u);
  EXPECT_EQ(got.top_p, 1.0f);
}

}  // namespace
}  // namespace ballast::test
