// ballast generate: answers in the order of the prompts, gone on with after an interruption.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "program.h"

namespace ballast::test {
namespace {

using nlohmann::json;

const std::string kMini = BALLAST_SOURCE_DIR "/models/ballast-mini.gguf";

class Generate : public testing::Test {
 protected:
  std::string path(const char* name) const { return (dir_ / name).string(); }
  ProgramResult generate(std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {
        "generate",      "-m", kMini, "--prompts", path("prompts"), "-o",
        path("answers"), "-n", "8",   "-q"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  /// The lines of the answers.
  std::vector<json> answers() const {
    std::vector<json> out;
    std::istringstream lines(read_text(dir_ / "answers"));
    for (std::string line; std::getline(lines, line);) out.push_back(json::parse(line));
    return out;
  }
  /// Ids, and what was answered.
  static json content(const std::vector<json>& lines) {
    json out;
    for (const json& line : lines) {
      const json& body = line.at("response").at("body");
      out.push_back({line.at("custom_id"), body.contains("choices") ? body["choices"] : body});
    }
    return out;
  }
  TempDir dir_;
};

TEST_F(Generate, AnswersComeInTheOrderOfThePrompts) {
  write_text(dir_ / "prompts",
             "\xEF\xBB\xBF"  // a byte order mark, as editors of Windows write it
             "{\"prompt\": \"The sky is\", \"temperature\": 0, \"stream\": true}\n"
             "\n"
             "Who are you?\r\n"
             "\"And \\\"you\\\"?\"\n"
             "{\"custom_id\": \"seven\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", "
             "\"body\": {\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], "
             "\"max_tokens\": 3, \"ignore_eos\": true}}\n"
             "{\"prompt\": \"x\", \"unknown\": 1}\n"
             "{\"body\": {\"input\": \"Hello\"}, \"url\": \"/v1/embeddings\"}\n"
             "{\"body\": {\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}]}, "
             "\"url\": \"/api/chat\"}");
  const ProgramResult result = generate({"--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const json sums = result.json();
  EXPECT_EQ(sums["answers"], 6);
  EXPECT_EQ(sums["errors"], 1);
  const std::vector<json> lines = answers();
  ASSERT_EQ(lines.size(), 7u);
  std::vector<std::string> ids;
  for (const json& line : lines) ids.push_back(line["custom_id"]);
  EXPECT_THAT(ids, testing::ElementsAre("line-1", "line-3", "line-4", "seven", "line-6", "line-7",
                                        "line-8"));
  const ProgramResult alone =
      run({"run", "-m", kMini, "--raw", "The sky is", "-n", "8", "--json", "-q"});
  EXPECT_EQ(lines[0]["response"]["body"]["choices"][0]["text"], alone.json()["answers"][0]["text"]);
  EXPECT_EQ(lines[1]["response"]["body"]["object"], "chat.completion");
  EXPECT_EQ(lines[3]["response"]["body"]["usage"]["completion_tokens"], 3);
  EXPECT_EQ(lines[4]["response"]["status_code"], 400);
  EXPECT_EQ(lines[4]["response"]["body"]["error"]["param"], "unknown");
  EXPECT_EQ(lines[6]["response"]["body"]["done"], true);
  EXPECT_FALSE(lines[5]["response"]["body"]["data"][0]["embedding"].empty());
}

TEST_F(Generate, GoesOnWhereItWasInterrupted) {
  std::string prompts;
  for (int i = 0; i < 20; ++i) {
    prompts += json({{"prompt", "Number " + std::to_string(i)}, {"temperature", 0}}).dump() + "\n";
  }
  write_text(dir_ / "prompts", prompts);
  EXPECT_EQ(generate({"--slots", "4"}).exit_code, 0);
  const std::string whole = read_text(dir_ / "answers");
  const json expected = content(answers());
  EXPECT_EQ(expected.size(), 20u);
  for (const std::size_t bytes : {std::size_t{0}, whole.size() / 3, whole.size() - 1}) {
    write_text(dir_ / "answers", whole.substr(0, bytes));
    const ProgramResult result = generate({"--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(content(answers()), expected);
    const std::size_t lines = whole.substr(0, bytes).rfind('\n') + 1;  // that were whole
    EXPECT_EQ(read_text(dir_ / "answers").substr(0, lines), whole.substr(0, lines));
    EXPECT_EQ(result.json()["answers_before"],
              std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(lines), '\n'));
  }
  const ProgramResult again = generate({"--json"});
  EXPECT_EQ(again.json()["answers"], 0);
  EXPECT_EQ(again.json()["answers_before"], 20);
}

TEST_F(Generate, RefusesInALine) {
  const auto refused = [&](const std::string& prompts, const std::string& message) {
    write_text(dir_ / "prompts", prompts);
    expect_refusal(generate(), message);
  };
  refused("\n \n", "no prompts");
  refused("Hello\n{\"prompt\": \n", "line 2");
  refused("{\"body\": {}, \"url\": 5}", "url: expected a text");
  refused("{\"body\": 1}", "body: expected an object");
  write_text(dir_ / "answers", "{\"custom_id\": \"other\"}\n");
  refused("Hello", "the answer to 'other', where that to 'line-1' belongs");
  EXPECT_EQ(read_text(dir_ / "answers"), "{\"custom_id\": \"other\"}\n");
  for (const char* own : {"my only copy", "{\"id\":\"batch_req_2\"", "[1, 2]"}) {
    write_text(dir_ / "answers", own);
    refused("Hello", "line 1: no answer of ballast generate; name another file with -o");
    EXPECT_EQ(read_text(dir_ / "answers"), own);
  }
  std::filesystem::remove(dir_ / "answers");
  const int other = ::open(path("answers").c_str(), O_RDWR | O_CREAT, 0600);
  ::flock(other, LOCK_EX);
  refused("Hello", "another ballast generate writes to this file");
  ::close(other);
  std::filesystem::remove(dir_ / "answers");
  ASSERT_EQ(::mkfifo(path("answers").c_str(), 0600), 0);
  refused("Hello", "a pipe or a device; name a file");
}

}  // namespace
}  // namespace ballast::test
