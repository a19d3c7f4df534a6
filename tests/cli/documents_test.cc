// What --context reads, what is piped in, and answers that repeat themselves.
#include "cli/documents.h"

#include <fmt/format.h>
#include <pty.h>

#include <cstdlib>
#include <filesystem>

#include "cli/answering.h"
#include "cli/model_run.h"
#include "cli/run_report.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using cli::read_documents;
using test::expect_refusal;
using test::Program;
using test::ProgramResult;
using test::run_with;
using test::Words;
using test::operator+;
using testing::HasSubstr;
using testing::IsEmpty;

const std::string kShipped = BALLAST_SOURCE_DIR "/models/ballast-mini.gguf";
const std::string kStory = BALLAST_SOURCE_DIR "/examples/story.txt";

/// A PDF whose pages have a line each.
std::string pdf(const std::vector<std::string>& lines) {
  std::vector<std::string> objects = {"<</Type/Catalog/Pages 2 0 R>>", "",
                                      "<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"};
  std::string pages;
  for (const std::string& line : lines) {
    pages += fmt::format("{} 0 R ", objects.size() + 1);
    objects.push_back(
        fmt::format("<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 300]/Contents {} 0 R"
                    "/Resources<</Font<</F 3 0 R>>>>>>",
                    objects.size() + 2));
    const std::string content = fmt::format("BT /F 12 Tf 20 200 Td ({}) Tj ET", line);
    objects.push_back(fmt::format("<</Length {}>>stream\n{}\nendstream", content.size(), content));
  }
  objects[1] = fmt::format("<</Type/Pages/Kids[{}]/Count {}>>", pages, lines.size());
  std::string out = "%PDF-1.4\n", table;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    table += fmt::format("{:010} 00000 n \n", out.size());
    out += fmt::format("{} 0 obj{}endobj\n", i + 1, objects[i]);
  }
  return out + fmt::format(
                   "xref\n0 {0}\n0000000000 65535 f \n{1}trailer<</Size {0}/Root 1 0 R>>\n"
                   "startxref\n{2}\n%%EOF\n",
                   objects.size() + 1, table, out.size());
}

class Context : public testing::Test {
 protected:
  std::string file(const std::string& name, const std::string& content) {
    fs::create_directories((dir_ / name).parent_path());
    write_text(dir_ / name, content);
    return (dir_ / name).string();
  }
  static ProgramResult mini(const Words& more, const std::string& input = "") {
    return run_with(Words{"run", "-m", kShipped, "-n", "4"} + more, input);
  }
  static std::size_t tokens_read(const Words& more, const std::string& input = "") {
    const ProgramResult result = mini(more + Words{"--json"}, input);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto statistics = result.json().at("statistics");
    return statistics.at("prompt").at("tokens").get<std::size_t>() +
           statistics.at("question").at("tokens").get<std::size_t>();
  }

  TempDir dir_;
};

TEST_F(Context, OneTextStandsAsItIs) {
  const std::string path = file("a.txt", "A text.\n");
  const cli::Documents one = read_documents(std::vector{path}, true);
  EXPECT_EQ(one.text, "A text.\n");
  EXPECT_EQ(one.what, "a.txt");
}

TEST_F(Context, SeveralFilesStandBelowTheirNames) {
  const std::vector paths = {file("a.txt", "First."), file("b.md", "Second.\n")};
  const cli::Documents two = read_documents(paths, true);
  EXPECT_EQ(two.text, "=== a.txt ===\n\nFirst.\n\n=== b.md ===\n\nSecond.\n");
  EXPECT_EQ(two.what, "2 files");
}

TEST_F(Context, AFolderGivesItsTexts) {
  file("d/b.txt", "Two.");
  file("d/a/c.html", "<p>One &amp; only.</p>");
  file("d/.git/config", "hidden");
  file("d/x.bin", std::string("\1\2\3\4\0\5", 6));
  file("d/empty.txt", "\n");
  const cli::Documents all = read_documents(std::vector{(dir_ / "d").string()}, true);
  EXPECT_EQ(all.text, "=== a/c.html ===\n\nOne & only.\n\n=== b.txt ===\n\nTwo.");
  EXPECT_EQ(all.what, "2 files");
  const ProgramResult said = mini({"--context", (dir_ / "d").string(), "--question", "Who?"});
  EXPECT_THAT(said.err, HasSubstr("1 of 4 files left out, which are no texts: x.bin"));
  fs::create_directory(dir_ / "none");
  expect_refusal(mini({"--context", (dir_ / "none").string(), "--question", "Who?"}),
                 "no text in this folder");
}

TEST_F(Context, AWebPageIsReadAsItsText) {
  const std::string page = file("a.txt", "<!doctype html><p>Ann &lt;ann@example.org&gt;");
  EXPECT_EQ(read_documents(std::vector{page}, true).text, "Ann <ann@example.org>\n");
}

TEST_F(Context, APdfKeepsTheNumbersOfItsPages) {
  if (std::system("pdftotext -v >/dev/null 2>&1") != 0) GTEST_SKIP() << "no pdftotext";
  const std::string path = file("a b.pdf", pdf({"The key is under the mat.", "Page two."}));
  const cli::Documents read = read_documents(std::vector{path}, true);
  EXPECT_EQ(read.what, "2 pages of a b.pdf");
  EXPECT_THAT(read.text, HasSubstr("=== a b.pdf, page 1 ===\n\nThe key is under the mat."));
  EXPECT_THAT(read.text, HasSubstr("\n\n=== a b.pdf, page 2 ===\n\nPage two."));
  expect_refusal(mini({"--context", file("c.pdf", "%PDF-1.4\ncut"), "--question", "Who?"}),
                 "c.pdf: pdftotext cannot read it: it is damaged, or wants a password");
  expect_refusal(mini({"--context", file("d.pdf", pdf({""})), "--question", "Who?"}),
                 "d.pdf: no text in this PDF");
}

TEST_F(Context, BinaryFilesAreRefusedInALine) {
  for (const std::string& content :
       {std::string("\x89PNG\r\n\x1a\n\0\0", 10), std::string("\1\2\3\4\5\6\7\x0e more"),
        std::string("\x1f\x8b\x08\x08\x01\x02\x03")}) {
    expect_refusal(mini({"--context", file("x", content), "--question", "Who?"}), "x: ");
  }
  expect_refusal(mini({"--context", file("y", "\1\2\3\4"), "--question", "Who?"}),
                 "y: binary data, but a text is expected");
}

TEST_F(Context, WhatIsPipedInIsTheContextOfAQuestion) {
  const std::string story = read_text(kStory);
  const std::size_t whole = tokens_read({"--context", kStory, "--question", "Who?"});
  EXPECT_EQ(tokens_read({"--question", "Who?"}, story), whole);
  EXPECT_EQ(tokens_read({"Who?"}, story), whole);
  EXPECT_EQ(tokens_read({"-f", file("q", "Who?")}, story), whole);
  EXPECT_EQ(tokens_read({"--context", "-", "--question", "Who?"}, story), whole);
  // Not beside a context that is named, and blanks are none.
  EXPECT_EQ(tokens_read({"--context", kStory, "--question", "Who?"}, "other"), whole);
  EXPECT_EQ(tokens_read({"Who?"}, " \n"), tokens_read({"Who?"}));
  EXPECT_EQ(tokens_read({}, "Who?"), tokens_read({"Who?"}));
}

TEST_F(Context, ABareQuestionGoesThroughTheModelsTemplate) {
  EXPECT_EQ(tokens_read({"Who?"}), tokens_read({"--question", "Who?"}));
  EXPECT_LT(tokens_read({"Who?", "--raw"}), tokens_read({"Who?"}));
  EXPECT_THAT(mini({"Who?"}).err, IsEmpty());
}

TEST_F(Context, CitesTheSentenceThatAnAnswerRestsOn) {
  std::string text;
  for (int i = 0; i < 60; ++i) {
    text +=
        fmt::format("line {}: the number of record {} is {}.\n", i, i * 7 % 101, i * 7919 % 9973);
  }
  const std::string path = file("records.txt", text), other = file("b.txt", "Nothing is here.\n");
  const Words ask = {"run", "-m", kShipped, "--question", "What is the number of record 21?",
                     "-n",  "12", "-q",     "--context",  path};
  const auto cited = [&](const Words& more) {
    const ProgramResult result = run_with(ask + more + Words{"--cite", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.json().at("answers").at(0).at("citations").at(0);
  };
  for (const Words& cache : {Words{}, Words{"--cache", "1/4"}, Words{"--method", "h2o:rate=0.5"}}) {
    const auto first = cited(cache);
    EXPECT_EQ(first.at("text"), "line 3: the number of record 21 is 3811.");
    EXPECT_EQ(first.at("line"), 4);
    EXPECT_EQ(first.at("document"), "records.txt");
  }
  EXPECT_EQ(cited({"--context", other}).at("document"), "records.txt");
  const ProgramResult plain = run_with(ask), shown = run_with(ask + Words{"--cite"});
  EXPECT_EQ(shown.out.substr(0, plain.out.size()), plain.out);
  EXPECT_THAT(shown.out, HasSubstr("\n  [records.txt, line 4] line 3: the number of record 21 is"));
  expect_refusal(run_with({"run", "-m", kShipped, "--raw", "Hello", "--cite"}), "--context");
}

TEST_F(Context, ATerminalIsToldWhatWasReadAndKept) {
  const auto shown = [](const Words& more) {
    Words words = Words{BALLAST_PROGRAM, "run",  "-m",         kShipped, "-n", "4",
                        "--context",     kStory, "--question", "Who?"} +
                  more;
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    if (child == 0) {
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    std::string out;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(terminal, buffer, sizeof buffer)) > 0;) {
      out.append(buffer, static_cast<std::size_t>(n));
    }
    ::close(terminal);
    ::waitpid(child, nullptr, 0);
    return out;
  };
  const std::string all = shown({});
  EXPECT_THAT(all, HasSubstr("ballast: read "));
  EXPECT_THAT(all, HasSubstr(" tokens of story.txt in "));
  EXPECT_THAT(all, HasSubstr("; kept all, "));
  EXPECT_THAT(shown({"--cache", "1/8"}), HasSubstr("; kept "));
  EXPECT_THAT(shown({"-q"}), testing::Not(HasSubstr("ballast: read ")));
}

TEST_F(Context, ChatTakesSeveralFiles) {
  const ProgramResult said = run_with({"chat", "-m", kShipped, "-n", "4", "--context", kStory,
                                       "--context", file("b.html", "<p>Second.")},
                                      "Who?\n");
  EXPECT_EQ(said.exit_code, 0) << said.err;
}

TEST(Repetition, IsFourTimesTheSameOverSixtyTokens) {
  for (std::size_t period : {1, 3, 20, 50, 128}) {
    cli::Repetition repetition;
    std::size_t tokens = 0;
    bool found = false;
    for (Token t = 1000; t < 1100; ++t) EXPECT_FALSE(repetition.add(t));
    while (!found && tokens < 1000) {
      found = repetition.add(static_cast<Token>(tokens++ % period));
    }
    EXPECT_EQ(tokens, period + std::max<std::size_t>(60, 3 * period)) << period;
  }
}

TEST(Repetition, IsNotInATextThatGoesOn) {
  cli::Repetition repetition;
  std::uint32_t x = 1;
  for (int i = 0; i < 5000; ++i) {
    x = x * 1664525 + 1013904223;
    EXPECT_FALSE(repetition.add(static_cast<Token>(x >> 29)));  // one of eight
  }
  for (int list = 0; list < 200; ++list) {  // items that begin and end alike
    for (Token t : {1, 2, 3, 100 + list, 4, 5}) EXPECT_FALSE(repetition.add(t));
  }
}

TEST(Repetition, IsInAListThatCountsOn) {
  cli::Repetition repetition, other;
  bool found = false;
  int lines = 0;
  while (!found && lines < 100) {
    ++lines;
    const char* text = lines % 2 == 0 ? "Review the changes to see that they are as wanted."
                                      : "Submit the changes again, to those who wrote it.";
    found = repetition.add(fmt::format("{}. **{}**\n\n", lines, text));
    // Code has many lines alike that are short, and others between.
    EXPECT_FALSE(other.add(fmt::format("    check(x[{}]);\n", lines)));
    EXPECT_FALSE(other.add(fmt::format("{}\n", std::string(20 + lines, 'a'))));
    EXPECT_FALSE(other.add("    self.assertEqual(result, expected_result)\n"));
  }
  EXPECT_EQ(lines, 6);
}

TEST(Repetition, EndsAnAnswer) {
  const auto model = std::make_shared<const TextModel>(kShipped);
  for (bool cut : {true, false}) {
    Session session(model, {});
    session.read(model->tokenizer.encode("Once upon a time"));  // bare: it loops
    std::string text;
    GenerateOptions options;
    options.max_tokens = 300;
    const cli::Answered answer =
        cli::generate_answer(session, options, cut, [&](std::string_view more) {
          text += more;
          return true;
        });
    EXPECT_EQ(answer.repeats, cut);
    EXPECT_EQ(answer.made.tokens.size() < 100, cut);
    EXPECT_EQ(answer.made.finish, cut ? Finish::cancelled : Finish::length);
    EXPECT_EQ(answer.made.text, text);
  }
}

TEST(RunReport, IsALine) {
  cli::RunReport report;
  report.prompt = {12345, 2.0};
  report.compress_seconds = 1;
  report.context = "book.pdf";
  report.after_prompt.bytes.window = 1 << 20;
  report.after_prompt.exact = 8 << 20;
  report.answers.resize(2);
  report.answer = {30, 1.5};
  report.question = {9, 0.5};
  EXPECT_EQ(to_line(report),
            "read 12,345 tokens of book.pdf in 3.00 s; kept 1.00 MiB of 8.00 MiB; 2 answers of 30 "
            "tokens in 2.00 s");
  report.after_prompt.exact = 1 << 20;
  report.answers.resize(1);
  EXPECT_EQ(to_line(report),
            "read 12,345 tokens of book.pdf in 3.00 s; kept all, 1.00 MiB; answer of 30 tokens in "
            "2.00 s");
  report.answers.clear();
  report.after_prompt.tokens = 12345;
  EXPECT_EQ(to_line(report),
            "read 12,345 tokens of book.pdf in 3.00 s; kept all, 1.00 MiB (--cache 1/8: 128 KiB)");
  report.options.policy = Policy::parse("h2o:rate=0.5");
  EXPECT_EQ(to_line(report), "read 12,345 tokens of book.pdf in 3.00 s; kept all, 1.00 MiB");
  report.context.clear();
  EXPECT_EQ(to_line(report), "read 12,345 tokens in 3.00 s");
}

}  // namespace
}  // namespace ballast
