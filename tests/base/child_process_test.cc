#include "base/os/process.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "ballast/error.h"
#include "base/interruption.h"
#include "temp_dir.h"

namespace ballast::test {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::optional<std::string> shell(const std::string& script, const ChildLimits& limits = {},
                                 std::string_view input = "") {
  return output_of({"sh", "-c", script}, "dash", input, "input", limits);
}

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// A PDF whose page draws a form that draws the next one twelve times, nine deep.
std::string pdf_bomb() {
  std::string out = "%PDF-1.4\n";
  std::vector<std::size_t> places;
  const auto object = [&](const std::string& body) {
    places.push_back(out.size());
    out += fmt::format("{} 0 obj\n{}\nendobj\n", places.size(), body);
  };
  const auto stream = [](const std::string& about, const std::string& text) {
    return fmt::format("<<{}/Length {}>>\nstream\n{}\nendstream", about, text.size(), text);
  };
  std::string calls;
  for (int i = 0; i < 12; ++i) calls += "/F Do ";
  object("<</Type/Catalog/Pages 2 0 R>>");
  object("<</Type/Pages/Kids[3 0 R]/Count 1>>");
  object(
      "<</Type/Page/Parent 2 0 R/MediaBox[0 0 100 100]/Contents 4 0 R"
      "/Resources<</XObject<</F 5 0 R>>>>>>");
  object(stream("", calls));
  for (int level = 0; level < 9; ++level) {
    const std::string next =
        level < 8 ? fmt::format("/Resources<</XObject<</F {} 0 R>>>>", 6 + level) : "";
    object(stream("/Type/XObject/Subtype/Form/BBox[0 0 100 100]" + next,
                  level < 8 ? calls : "0 0 m 1 1 l S"));
  }
  const std::size_t table = out.size();
  out += fmt::format("xref\n0 {}\n0000000000 65535 f \n", places.size() + 1);
  for (std::size_t place : places) out += fmt::format("{:010} 00000 n \n", place);
  return out + fmt::format("trailer<</Size {}/Root 1 0 R>>\nstartxref\n{}\n%%EOF\n",
                           places.size() + 1, table);
}

TEST(ChildProcess, TakesBytesAndGivesBytes) {
  const std::string input(std::size_t{3} << 20, 'x');
  EXPECT_EQ(output_of({"cat"}, "coreutils", input, "input"), input);
  EXPECT_EQ(shell("echo message >&2; exit 3"), std::nullopt);
  EXPECT_EQ(shell("exec cat /dev/zero", {.output = 1 << 20}), std::nullopt);
  EXPECT_THAT(error_of([] { output_of({"no-such-program"}, "some-package", "", "a.x"); }),
              HasSubstr("a.x: reading it takes the program no-such-program (Debian: apt-get "
                        "install some-package)"));
}

TEST(ChildProcess, HasLimits) {
  EXPECT_EQ(shell("ulimit -v"), "1048576\n");
  EXPECT_EQ(shell("ulimit -t"), "20\n");
  const std::string memory = "head -c 100000000 /dev/zero | tail -c 100000000 >/dev/null";
  EXPECT_TRUE(shell(memory));
  EXPECT_FALSE(shell(memory, {.memory = 32 << 20}));
  EXPECT_THAT(error_of([] { shell("while :; do :; done", {.processor = 1s}); }),
              HasSubstr("input: sh works longer than 1 s on it; make it a text first"));
  EXPECT_THAT(error_of([] { shell("exec sleep 100", {.time = 1s}); }),
              HasSubstr("input: sh takes longer than 1 s"));
  // One that closes its output and goes on has not ended.
  EXPECT_THAT(error_of([] { shell("exec >&-; exec sleep 100", {.time = 1s}); }),
              HasSubstr("takes longer than 1 s"));
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // none is left
}

TEST(ChildProcess, APdfOfFormsInFormsEnds) {
  if (std::system("pdftotext -v >/dev/null 2>&1") != 0) GTEST_SKIP() << "no pdftotext";
  EXPECT_THAT(
      error_of([] {
        output_of({"pdftotext", "-", "-"}, "poppler-utils", pdf_bomb(), "a.pdf", {.processor = 1s});
      }),
      HasSubstr("a.pdf: pdftotext works longer than 1 s on it"));
}

TEST(ChildProcess, EndsWhereNobodyWaitsForIt) {
  const auto begin = std::chrono::steady_clock::now();
  const Interruption interruption([&] { return std::chrono::steady_clock::now() - begin < 300ms; });
  EXPECT_THROW(shell("exec sleep 100"), Interrupted);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

TEST(ChildProcess, EndsWithTheProcessThatIsKilled) {
  const TempDir dir;
  const std::string file = (dir.path() / "id").string();
  const pid_t parent = ::fork();
  if (parent == 0) {
    shell("echo $$ > " + file + ".new; mv " + file + ".new " + file + "; exec sleep 1000");
    ::_exit(0);
  }
  while (!std::filesystem::exists(file)) std::this_thread::sleep_for(10ms);
  std::string id;
  std::ifstream(file) >> id;
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  // Whoever takes it over may leave it a zombie.
  const auto runs = [&] {
    std::string line;
    std::getline(std::ifstream("/proc/" + id + "/stat"), line);
    return !line.empty() && line.find(") Z") == std::string::npos;
  };
  for (int i = 0; i < 500 && runs(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_FALSE(runs());
}

}  // namespace
}  // namespace ballast::test
