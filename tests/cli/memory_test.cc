// The memory that a run takes, measured from outside, is what it said beforehand.
#include <sys/resource.h>
#include <sys/wait.h>

#include "experiments/data/random_model.h"
#include "model_run.h"
#include "paths.h"
#include "sanitized.h"

namespace ballast {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

using test::kSanitized;

Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class RunMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (kSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
    // Little work, but weights of 34 MB: most of them are in the vocabulary.
    write_random_model(
        parse_random_model("layers=4,width=256,heads=4,kv=2,head=64,hidden=256,vocabulary=65536,"
                           "positions=16384,type=f16"),
        dir_ / "model.gguf");
    std::string text;
    while (text.size() < 5000) text += "It was a dark night, and nobody saw the ship. ";
    write_text(dir_ / "context", text);
  }
  std::string path(const char* name) const { return (dir_ / name).string(); }

  /// Runs the program and compares.
  void expect_estimated(const Words& more) const {
    const Words words =
        Words{BALLAST_PROGRAM,           "run", "-m", path("model.gguf"), "-n", "8", "-q",
              "--json=" + path("report")} +
        more;
    std::vector<char*> argv;
    for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    int status = 0;
    struct rusage usage = {};
    ASSERT_EQ(::wait4(child, &status, 0, &usage), child);
    ASSERT_EQ(status, 0);
    const json s = json::parse(read_text(path("report"))).at("statistics");
    const double held = 1024.0 * static_cast<double>(usage.ru_maxrss);
    const double estimated = s.at("estimate").at("total");
    std::string name;
    for (const std::string& word : more) name += word + " ";
    EXPECT_NEAR(s.at("peak_memory").get<double>(), held, 0.01 * held) << name;
    EXPECT_NEAR(estimated, held, 0.1 * held) << name << s.at("estimate");
  }

  TempDir dir_;
};

TEST_F(RunMemory, IsWithinATenthOfTheEstimate) {
  const Words ask = {"--context", path("context"), "--question", "Who?"};
  for (const char* threads : {"1", "2"}) {
    const Words base = ask + Words{"--threads", threads};
    expect_estimated(base + Words{"--cache-type", "f32"});
    expect_estimated(base + Words{"--method", "balancekv:rate=0.25", "--cache-type", "int4"});
    expect_estimated(base + Words{"--method", "h2o:rate=0.25"});
    expect_estimated(base + Words{"--method", "balancekv:budget=512", "--protocol", "stream"});
  }
  expect_estimated(ask + Words{"--question", "Where?", "--cache-type", "f32"});
  expect_estimated({"Who?"});
}

TEST_F(RunMemory, OfASavedCacheToo) {
  for (const char* method : {"exact", "snapkv:rate=0.25"}) {
    expect_estimated({"--context", path("context"), "--method", method, "--save-cache",
                      path("cache"), "--cache-type", "f32"});
    expect_estimated({"--load-cache", path("cache"), "--question", "Who?"});
    expect_estimated(
        {"--load-cache", path("cache"), "--load-cache", path("cache"), "--question", "Who?"});
  }
}

}  // namespace
}  // namespace ballast
