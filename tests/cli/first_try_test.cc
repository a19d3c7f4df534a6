// What a newcomer runs first: short prompts with a small cache, texts that are too long, the wrong
// file.
#include <fmt/format.h>

#include <filesystem>

#include "cli/model_run.h"
#include "paths.h"
#include "sanitized.h"
#include "temp_dir.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using test::expect_refusal;
using test::Program;
using test::run;
using test::Said;
using test::Words;
using test::operator+;
using testing::HasSubstr;

const std::string kSource = BALLAST_SOURCE_DIR;
const std::string kShipped = kSource + "/models/ballast-mini.gguf";
const std::string kStory = kSource + "/examples/story.txt";

class FirstTry : public testing::Test {
 protected:
  std::string path(const char* name) const { return (dir_ / name).string(); }
  static Said mini(const Words& more, const char* most = "4") {
    return run(Words{"run", "-m", kShipped, "-n", most} + more);
  }

  TempDir dir_;
};

TEST_F(FirstTry, AShareOfAShortTextLeavesItExact) {
  for (const char* method : {"replay", "kvzip", "keydiff", "snapkv"}) {
    for (const Words& prompt : {Words{"Hi"}, Words{"Hi", "--chat"}}) {
      const Said small = mini(prompt + Words{"-q", "--method", method, "--cache", "1/8"});
      EXPECT_EQ(small.exit_code, 0) << method << ": " << small.err;
      EXPECT_EQ(small.out, mini(prompt + Words{"-q"}).out) << method;
    }
  }
  // The text; h2o forgets of the answer.
  EXPECT_EQ(mini({"Hi", "-q", "--method", "h2o", "--cache", "1/8"}).exit_code, 0);
  const Said context = mini({"-q", "--cache", "1/100", "--context", kStory, "--question", "Who?"});
  EXPECT_EQ(context.exit_code, 0) << context.err;
}

TEST_F(FirstTry, AnAmountThatIsTooSmallIsRefused) {
  expect_refusal(mini({"Hi there, who are you?", "--raw", "--cache", "1K"}), "give at least");
  expect_refusal(mini({"Hi there, who are you?", "--raw", "--cache", "1K", "--method", "h2o"}),
                 "give more memory");
}

TEST_F(FirstTry, MeasurementsDoNotTakeMoreThanTheShare) {
  write_text(dir_ / "text",
             "It was dark. The box was near the door, and no one had seen it there.");
  for (const char* method : {"replay", "h2o"}) {
    expect_refusal(
        run({"perplexity", "-m", kShipped, path("text"), "--method", method, "--cache", "1/8"}),
        "give");
  }
}

TEST_F(FirstTry, OutputsDoNotDestroyInputs) {
  const std::string model = path("model.gguf"), link = path("link"), context = path("context");
  fs::copy_file(kShipped, model);
  fs::create_hard_link(model, link);
  write_text(context, "It was dark.");
  const auto size = fs::file_size(model);
  const std::string refusal = ": the command reads this file and would overwrite it";
  const Words base = {"run", "-m", model, "--context", context};
  for (const std::string& file : {model, link, context}) {
    expect_refusal(run(base + Words{"--save-cache", file}), file + refusal, 2);
    expect_refusal(run(base + Words{"--question", "x", "--json=" + file}), file + refusal, 2);
  }
  EXPECT_EQ(fs::file_size(model), size);
  EXPECT_EQ(read_text(context), "It was dark.");
  const std::string first = path("m-00001-of-00002.gguf"), second = path("m-00002-of-00002.gguf");
  write_text(first, "");
  write_text(second, "");
  expect_refusal(run({"run", "-m", first, "--context", context, "--save-cache", second}),
                 second + refusal, 2);
}

TEST_F(FirstTry, ExactIsNeverSmallerThanExact) {
  const auto cache = [&](const Words& more, const char* most) {
    const Said said = mini(Words{"--context", kStory, "--question", "Who?", "--json"} + more, most);
    EXPECT_EQ(said.exit_code, 0) << said.err;
    return said.json().at("answers").at(0).at("cache");
  };
  for (const Words& more : {Words{}, Words{"--cache-type", "q4"}}) {
    for (const char* most : {"4", "512"}) {
      const nlohmann::json exact = cache(more, most);
      EXPECT_EQ(exact.at("ratio"), 1.0);
      const nlohmann::json& bytes = exact.at("bytes");
      EXPECT_EQ(bytes.at("used"), exact.at("exact_bytes"));
      EXPECT_EQ(bytes.at("total"), bytes.at("used").get<int>() + bytes.at("room").get<int>());
    }
  }
  EXPECT_GT(cache({"--cache", "1/4"}, "512").at("ratio"), 3.0);
  const Said text = mini({"--context", kStory, "--question", "Who?", "--stats"});
  EXPECT_THAT(text.err, HasSubstr("room for more"));
}

TEST_F(FirstTry, SaysWhichKindOfFileIsNoText) {
  const auto refused = [&](const std::string& content, const std::string& what) {
    write_text(dir_ / "x", content);
    expect_refusal(mini({"--context", path("x"), "--question", "Who?"}), path("x") + ": " + what,
                   1);
  };
  refused(read_text(kShipped).substr(0, 1000), "a GGUF file, but a text is expected");
  refused(std::string("PK\x03\x04\0\0", 6), "a damaged ZIP archive");
  refused(std::string("A text with a zero") + '\0' + "byte", "not a text: byte 18 is zero");
  const Said saved = mini({"--context", kStory, "--save-cache", path("c")});
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  expect_refusal(mini({"--prompt-file", path("c")}),
                 "a saved Ballast cache, but a text is expected");
  write_text(dir_ / "pdf", "%PDF-1.7\nwithout a zero byte");
  expect_refusal(mini({"--prompt-file", path("pdf")}), "pdf: a PDF file, but a text is expected");
  write_text(dir_ / "good", "GGUF is a format. \xE2\x82\xAC");
  EXPECT_EQ(mini({"--context", path("good"), "--question", "Who?"}).exit_code, 0);
}

TEST_F(FirstTry, ChatSaysWhichKindOfFileIsNoText) {
  const Words chat = {"chat", "-q", "-m", kShipped, "-n", "4"};
  const auto piped = [&](const std::string& text) { return Program(chat, text).wait(); };
  expect_refusal(piped(std::string("\xFF\xFEH\0i\0\n\0", 8)), "line 1: not a text: byte 3 is zero",
                 1);
  const Said second = piped(std::string("Hi\nA zero") + '\0' + "byte\n");
  EXPECT_EQ(second.exit_code, 1);
  EXPECT_THAT(second.err, HasSubstr("standard input, line 2: not a text: byte 6 is zero"));
  EXPECT_EQ(piped("\xEF\xBB\xBFHi\n").out, piped("Hi\n").out);
}

TEST_F(FirstTry, RefusesFlagsWithoutEffect) {
  const Said saved = mini({"--context", kStory, "--save-cache", path("c")});
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  const Words load = {"--load-cache", path("c"), "--question", "Who?"};
  expect_refusal(mini(load + Words{"--seed", "3"}), "--seed has no effect with --load-cache", 2);
  EXPECT_EQ(mini(load + Words{"--seed", "3", "--temperature", "0.5"}).exit_code, 0);
  for (const char* form : {"--raw", "--chat"}) {
    expect_refusal(mini(load + Words{form}), std::string(form) + " has no effect", 2);
  }
  expect_refusal(mini(load + Words{"--memory", "1K"}), "--memory has no effect", 2);
  for (const char* option : {"--method", "--cache", "--memory", "--key-type"}) {
    expect_refusal(mini({"Hi", option, ""}), std::string(option) + ": an empty value", 2);
  }
  expect_refusal(mini({"Hi", "--logprobs", "2"}), "--logprobs needs --json", 2);
}

// What is advised for a text that is too long works.
TEST_F(FirstTry, ATextBeyondTheModelsPositionsIsReadAsAdvised) {
  std::string text;
  for (int i = 0; i < 1250; ++i) text += "The box was near the door. ";
  write_text(dir_ / "big", text);
  const Words ask = {"--context", path("big"), "--question", "Where was the box?"};
  const std::string flags =
      "--method streaming-llm:budget=4096,step=64 --protocol stream --positions rolling";
  for (const Words& more : {Words{}, Words{"--cache", "1/8"}}) {
    const std::string instead = more.empty() ? "" : " in place of --cache";
    expect_refusal(mini(ask + more), "8192 positions; " + flags + instead + " reads without end");
  }
  std::istringstream words(flags);
  Words advised;
  for (std::string word; words >> word;) advised.push_back(word);
  if (!test::kSanitized) {  // minutes
    const Said said = mini(ask + advised);
    EXPECT_EQ(said.exit_code, 0) << said.err;
  }
  expect_refusal(mini({"Hi", "--raw", "--cache", "64K", "--positions", "rolling"}),
                 "not rolling ones; streaming-llm");
  expect_refusal(mini(Words{"Hi", "--raw", "--method", "h2o:budget=98054", "--protocol", "stream",
                            "--positions", "rolling"}),
                 "give budget=8192 or less");
}

}  // namespace
}  // namespace ballast
