// The experiments on a tiny model with random weights, as a user runs them.
#pragma once

#include <cstring>

#include "cli/model_run.h"
#include "model/reference_case.h"

namespace ballast::test {

/// The tiny model of `ballast run`'s tests, told that it has more positions.
inline void copy_with_positions(const std::filesystem::path& from, const std::filesystem::path& to,
                                std::uint32_t positions) {
  std::string bytes = read_text(from);
  const std::string key = "llama.context_length";
  const std::size_t at = bytes.find(key) + key.size() + 4;  // its type comes first
  ASSERT_LT(at + 4, bytes.size());
  std::memcpy(bytes.data() + at, &positions, sizeof positions);
  write_text(to, bytes);
}

/// A tiny model, files for it, and what the experiments say of them.
class EvalTiny : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    case_ = new ReferenceCase("llama");
    if (case_->made()) copy_with_positions(case_->gguf(), model(), 2048);
  }
  static void TearDownTestSuite() { delete case_; }
  void SetUp() override {
    if (!case_->made()) GTEST_SKIP() << "tests/model/reference.py needs python3 with numpy";
  }
  static std::string model() { return (case_->dir() / "long.gguf").string(); }

  std::string file(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories((dir_ / name).parent_path());
    write_text(dir_ / name, content);
    return (dir_ / name).string();
  }
  Said eval(const std::string& name, const Words& more) const {
    Words words = {"eval", name, "-m", model(), "-q"};
    words.insert(words.end(), more.begin(), more.end());
    return run_with(words);
  }
  /// The JSON of a run that succeeds, without what is measured or names this run.
  nlohmann::json result(const std::string& name, Words more) const {
    more.push_back("--json");
    const Said said = eval(name, more);
    EXPECT_EQ(said.exit_code, 0) << said.err;
    if (said.exit_code != 0) return {{"results", nlohmann::json::array()}};
    nlohmann::json all = said.json();
    EXPECT_THAT(all.at("command").get<std::string>(), testing::HasSubstr("eval " + name));
    for (nlohmann::json& row : all["results"]) {
      for (const char* key : {"entries", "cache_bytes", "ratio", "score"}) {
        EXPECT_TRUE(row.contains(key)) << key << " in " << row;
      }
      for (const char* key : {"read_seconds", "compress_seconds", "seconds_per_token"}) {
        EXPECT_TRUE(row.contains(key)) << key << " in " << row;
        row.erase(key);
      }
    }
    return all;
  }
  std::string path(const char* name) const { return (dir_ / name).string(); }

  static inline ReferenceCase* case_ = nullptr;
  TempDir dir_;
};
inline const Words kTwoMethods = {"--methods", "exact;local", "--rates", "0.5"};

/// Questions; the first choice of the first one is right.
inline std::string copa(int count) {
  std::string out;
  for (int i = 0; i < count; ++i) {
    out += nlohmann::json{{"premise", "It rained " + std::to_string(i) + "."},
                          {"choice1", "I got wet."},
                          {"choice2", "I sang."},
                          {"question", i % 2 == 0 ? "effect" : "cause"},
                          {"label", i % 2}}
               .dump() +
           "\n";
  }
  return out;
}

}  // namespace ballast::test
