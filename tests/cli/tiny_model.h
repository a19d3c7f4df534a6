// A tiny model with random weights, and the program that runs it.
#pragma once

#include <algorithm>
#include <string>

#include "../model/reference_case.h"
#include "ballast/engine/gguf.h"
#include "model_run.h"

namespace ballast::test {

using nlohmann::json;

inline const std::string kContext = "It was dark. The box was near the door.";

/// A model of 128 positions whose vocabulary is bytes and some words: a token a character, nearly.
class TinyModel : public testing::Test {
 protected:
  static void SetUpTestSuite() { case_ = new ReferenceCase("llama"); }
  static void TearDownTestSuite() { delete case_; }
  void SetUp() override {
    if (!case_->made()) GTEST_SKIP() << "tests/model/reference.py needs python3 with numpy";
    write_text(dir_ / "context", kContext);
  }

  std::string path(const char* name) const { return (dir_ / name).string(); }
  static std::string model() { return case_->gguf().string(); }
  static std::size_t count(const std::string& text, bool special = false) {
    const Tokenizer tokenizer(read_vocabulary(case_->gguf()));
    return tokenizer.encode(text, {.add_special = !special, .parse_special = special}).size();
  }
  Said run(const Words& more, const std::string& input = "") const {
    const bool sized = std::ranges::find(more, "-n") != more.end();
    const Words length = sized ? Words{} : Words{"-n", "9"};
    return run_with(Words{"run", "-m", model()} + length + more, input);
  }
  /// The answers of a run with log-probabilities, less what is measured.
  json answers(const Words& more) const {
    const Said said = run(more + Words{"--json", "--logprobs", "2"});
    EXPECT_EQ(said.exit_code, 0) << said.err;
    if (said.exit_code != 0) return {};
    json all = said.json().at("answers");
    for (json& answer : all) answer.erase("cache");
    return all;
  }

  static inline ReferenceCase* case_ = nullptr;
  TempDir dir_;
};

}  // namespace ballast::test
