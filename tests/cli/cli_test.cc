// Usage, methods and inspect, through the program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "ballast/cache.h"
#include "ballast/method.h"
#include "program.h"

namespace ballast {
namespace {

using nlohmann::json;
using test::expect_refusal;
using test::Program;
using test::ProgramResult;
using test::run;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kSource = BALLAST_SOURCE_DIR;

const std::vector<std::vector<std::string>> kCommands = {
    {"run"}, {"chat"}, {"serve"}, {"perplexity"}, {"tokenize"}, {"methods"}, {"inspect"}};

class Cli : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { delete dir_; }
  static std::string path(const char* name) { return (*dir_ / name).string(); }
  /// A saved cache of BalanceKV.
  static std::string saved() {
    if (!std::filesystem::exists(path("saved"))) {
      const auto made = run({"run", "-m", kSource + "/models/ballast-mini.gguf", "--raw",
                             "--context", kSource + "/examples/record.txt", "--method",
                             "balancekv:rate=0.25,block=16", "--save-cache", path("saved")});
      EXPECT_EQ(made.exit_code, 0) << made.err;
    }
    return path("saved");
  }
  static inline TempDir* dir_ = new TempDir;
};

TEST_F(Cli, Version) {
  const auto result = run({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, ::testing::MatchesRegex("ballast [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST_F(Cli, EveryHelpEndsWithAnExample) {
  std::vector<std::vector<std::string>> commands = kCommands;
  commands.push_back({});
  for (auto command : commands) {
    std::string name = "ballast";
    for (const std::string& word : command) name += " " + word;
    command.push_back("--help");
    const auto result = run(command);
    EXPECT_EQ(result.exit_code, 0) << name;
    EXPECT_THAT(result.out, HasSubstr("Usage: " + name + " ")) << name;
    const std::size_t example = result.out.find("\nExample:\n  ballast ");
    ASSERT_NE(example, std::string::npos) << name;
    // Nothing stands after it; a second one may.
    EXPECT_LE(std::count(result.out.begin() + static_cast<long>(example), result.out.end(), '\n'),
              5);
    EXPECT_THAT(result.err, IsEmpty());
  }
}

TEST_F(Cli, WrongUsageIsExit2) {
  expect_refusal(run({}), "ballast needs a command; known: run, chat, serve, ", 2);
  expect_refusal(run({"frobnicate"}), "unknown command 'frobnicate'; known: run, chat, ", 2);
  expect_refusal(run({"--frobnicate"}), "unknown option --frobnicate; see ballast --help", 2);
  expect_refusal(run({"inspect", "a", "b"}), "unexpected argument 'b'", 2);
  expect_refusal(run({"methods", "--threads", "0"}), "--threads", 2);
  for (auto command : kCommands) {
    command.push_back("--frobnicate");
    EXPECT_EQ(run(command).exit_code, 2);
  }
}

TEST_F(Cli, ListsMethods) {
  const auto result = run({"methods"});
  EXPECT_EQ(result.exit_code, 0);
  const auto listed = json::parse(run({"methods", "--json"}).out).at("methods");
  ASSERT_EQ(listed.size(), methods().size());
  for (std::size_t i = 0; i < listed.size(); ++i) {
    EXPECT_EQ(listed[i].at("name"), methods()[i]->name);
    EXPECT_THAT(result.out, HasSubstr("\n" + std::string(methods()[i]->name) + " "));
    EXPECT_THAT(result.out, HasSubstr(std::string(methods()[i]->paper)));
  }
}

TEST_F(Cli, DescribesAMethod) {
  const auto result = run({"methods", "balancekv"});
  EXPECT_THAT(result.out, HasSubstr("tokens that are balanced together"));
  EXPECT_THAT(result.out, HasSubstr("practical | theory"));
  const auto described = json::parse(run({"methods", "balancekv", "--json"}).out);
  EXPECT_EQ(described.at("merges"), true);
  EXPECT_EQ(described.at("parameters")[0].at("default"), "256");
  expect_refusal(run({"methods", "nonsense"}), "unknown method 'nonsense'; known: exact");
}

TEST_F(Cli, InspectsASavedCache) {
  const auto text = run({"inspect", saved()});
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("balancekv:rate=0.25,block=16"));
  const auto parsed = json::parse(run({"inspect", saved(), "--json"}).out);
  const Cache cache = Cache::load(saved());
  EXPECT_EQ(parsed.at("kind"), "cache");
  EXPECT_EQ(parsed.at("tokens"), cache.tokens());
  EXPECT_EQ(parsed.at("bytes").at("total"), cache.bytes().total());
}

TEST_F(Cli, RefusesDamagedCaches) {
  std::string bytes = read_text(saved());
  bytes[bytes.size() / 2] ^= 1;
  write_text(path("damaged"), bytes);
  expect_refusal(run({"inspect", path("damaged")}), path("damaged") + ": damaged");
}

TEST_F(Cli, InspectsACacheWithAnyNote) {
  const Cache cache = Cache::load(saved());
  const auto inspected = [&](const std::string& note) {
    cache.save(path("noted"), note);
    const ProgramResult result = run({"inspect", path("noted")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_THAT(inspected(R"({"tokens": 7, "form": "chat"})"),
              AllOf(HasSubstr("tokens of the text"), HasSubstr("chat")));
  EXPECT_THAT(inspected("a line"), HasSubstr("a line"));
  // Beyond the limits of JSON it is a text.
  const std::string deep(1'000'000, '[');
  EXPECT_THAT(inspected("{\"a\":" + deep + std::string(deep.size(), ']') + "}"),
              HasSubstr("{\"a\":[[["));
  std::string fields = "{\"k0\":0";
  for (int i = 1; i < 1025; ++i) fields += ",\"k" + std::to_string(i) + "\":0";
  EXPECT_THAT(inspected(fields + "}"), HasSubstr("{\"k0\":0,"));
}

TEST_F(Cli, FullDisk) {
  const int full = ::open("/dev/full", O_WRONLY);
  const ProgramResult out = Program({"methods"}, "", full).wait();
  ::close(full);
  EXPECT_EQ(out.exit_code, 1);
  EXPECT_EQ(out.err, "ballast: cannot write to standard output: No space left on device\n");
  EXPECT_EQ(run({"methods", "--json=/dev/full"}).exit_code, 1);
}

TEST_F(Cli, AReaderThatLeavesIsNoError) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  const ProgramResult result = Program({"methods"}, "", ends[1]).wait();
  ::close(ends[1]);
  EXPECT_EQ(result.exit_code, 128 + SIGPIPE);
  EXPECT_THAT(result.err, IsEmpty());
}

}  // namespace
}  // namespace ballast
