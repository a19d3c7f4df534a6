// ballast chat through a pseudo-terminal and through pipes.
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "paths.h"
#include "program.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;
using test::expect_refusal;
using test::Program;
using test::ProgramResult;
using test::run;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kShipped = std::string(BALLAST_SOURCE_DIR) + "/models/ballast-mini.gguf";
const std::string kRecord = std::string(BALLAST_SOURCE_DIR) + "/examples/record.txt";

/// The program on a terminal of its own.
class Terminal {
 public:
  explicit Terminal(std::vector<std::string> arguments, const char* program = BALLAST_PROGRAM) {
    arguments.insert(arguments.begin(), program);
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    struct winsize size = {40, 100, 0, 0};
    child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ == 0) {
      ::setenv("TERM", "xterm", 1);
      ::signal(SIGINT, SIG_DFL);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  ~Terminal() {
    ::close(terminal_);
    if (child_ > 0) {
      ::kill(child_, SIGKILL);
      ::waitpid(child_, nullptr, 0);
    }
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Reading meanwhile, since a terminal holds only a few thousand characters.
  void type(const std::string& keys) {
    for (std::size_t at = 0; at < keys.size();) {
      const std::size_t part = std::min<std::size_t>(keys.size() - at, 512);
      const ssize_t written = ::write(terminal_, keys.data() + at, part);
      ASSERT_GT(written, 0);
      at += static_cast<std::size_t>(written);
      while (read_some(0)) {
      }
    }
  }
  /// What was shown since the last call, up to and with `text`; waits for it.
  std::string until(const std::string& text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    std::size_t at = 0;
    while ((at = shown_.find(text)) == std::string::npos) {
      if (std::chrono::steady_clock::now() > end || !read_some(1000)) {
        if (std::chrono::steady_clock::now() > end || closed_) {
          ADD_FAILURE() << "no '" << text << "' in: " << shown_;
          return shown_;
        }
      }
    }
    std::string out = shown_.substr(0, at + text.size());
    shown_.erase(0, out.size());
    return out;
  }
  int wait() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!closed_ && std::chrono::steady_clock::now() < end) read_some(1000);
    if (!closed_) {
      ADD_FAILURE() << "the program did not end; it showed: " << shown_;
      ::kill(child_, SIGKILL);
    }
    int status = 0;
    ::waitpid(child_, &status, 0);
    child_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  bool read_some(int milliseconds) {
    struct pollfd ready = {terminal_, POLLIN, 0};
    if (::poll(&ready, 1, milliseconds) <= 0) return false;
    char buffer[4096];
    const ssize_t size = ::read(terminal_, buffer, sizeof buffer);
    if (size <= 0) {
      closed_ = true;
      return false;
    }
    shown_.append(buffer, static_cast<std::size_t>(size));
    return true;
  }

  int terminal_ = -1;
  pid_t child_ = -1;
  bool closed_ = false;
  std::string shown_;
};

/// What was shown before the program waits for a line. It takes the terminal, which until then
/// would gather and drop keys, asks for bracketed pastes and draws the prompt.
std::string at_prompt(Terminal& terminal) {
  std::string shown = terminal.until("\033[?2004h");
  terminal.until("> ");
  return shown;
}

const std::vector<std::string> kChat = {"chat", "-m", kShipped, "-n", "6"};

std::string first_answer(const std::string& message) {
  const ProgramResult said = Program(kChat, message + "\n").wait();
  EXPECT_EQ(said.exit_code, 0) << said.err;
  return said.out.substr(0, said.out.find('\n'));
}

TEST(ChatTerminal, EditsLinesAndRemembersThem) {
  const std::string answer = first_answer("Hello there");
  Terminal terminal(kChat);
  EXPECT_THAT(at_prompt(terminal), HasSubstr("/help lists commands"));
  // A wrong letter taken back; to the beginning for the first letter and back to the end.
  terminal.type(
      "ello therx\x7f"
      "e\x01H\x05\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr(answer));
  terminal.type("/clear\r");
  at_prompt(terminal);
  terminal.type("\033[A\033[A\r");  // up twice: the line before /clear
  EXPECT_THAT(at_prompt(terminal), HasSubstr(answer));
  terminal.type("/quit\r");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST(ChatTerminal, APasteOfAnyLengthIsOneTurn) {
  std::string text;
  for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i % 10) + ": grass\r";
  Terminal terminal(kChat);
  at_prompt(terminal);
  terminal.type("\033[200~" + text + "\033[201~");
  EXPECT_THAT(terminal.until("characters]"), HasSubstr("[paste 1: 401 lines, 5,600 characters]"));
  terminal.type("\r");
  at_prompt(terminal);
  terminal.type("/stats\r");
  const std::string stats = at_prompt(terminal);
  const std::size_t at = stats.find("[read ");
  ASSERT_NE(at, std::string::npos) << stats;
  EXPECT_EQ(stats.substr(at + 7, 1), ",") << stats;  // thousands of tokens, in one turn
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST(ChatTerminal, AShortPasteStandsInTheLine) {
  const std::string answer = first_answer("Hello there");
  Terminal terminal(kChat);
  at_prompt(terminal);
  terminal.type("\033[200~Hello there\033[201~\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr(answer));
}

TEST(ChatTerminal, CommandsThatFailDoNotEndIt) {
  Terminal terminal(kChat);
  at_prompt(terminal);
  terminal.type("/hepl\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr("did you mean /help?"));
  terminal.type("/help\r");
  const std::string help = at_prompt(terminal);
  for (const char* name :
       {"/clear", "/context FILE", "/save FILE", "/load FILE", "/stats", "/quit"}) {
    EXPECT_THAT(help, HasSubstr(name));
  }
  terminal.type("/context /no/such/file\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr("No such file"));
  terminal.type("/save x\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr("nothing has been said yet"));
  terminal.type("\x03");  // Ctrl-C
  EXPECT_EQ(terminal.wait(), 130);
}

TEST(ChatTerminal, AMessageThatIsTooLongDoesNotEndIt) {
  const std::string answer = first_answer("Hello there");
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "grass x" + std::to_string(i % 10) + "\r";
  Terminal terminal(kChat);
  at_prompt(terminal);
  terminal.type("\033[200~" + text + "\033[201~\r");
  const std::string refused = at_prompt(terminal);
  EXPECT_THAT(refused, HasSubstr("and 8,192 of the model's 8,192 positions are left: shorten it"));
  EXPECT_THAT(refused, HasSubstr("--positions rolling"));
  EXPECT_THAT(refused, Not(HasSubstr("/clear")));  // there is nothing to forget
  terminal.type("Hello there\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr(answer));
  terminal.type("\033[200~" + text + "\033[201~\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr("/clear and begin anew (/save FILE keeps"));
  terminal.type("\x04");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST(ChatTerminal, CtrlCThrowsATypedLineAway) {
  const std::string answer = first_answer("Hello there");
  Terminal terminal(kChat);
  at_prompt(terminal);
  terminal.type("What is that");
  terminal.until("that");
  terminal.type("\x03");
  terminal.until("^C\r\n");
  terminal.until("> ");
  terminal.type("Hello there\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr(answer));
  terminal.type("\x03");
  EXPECT_EQ(terminal.wait(), 130);
}

TEST(ChatTerminal, CtrlZStopsItAndTheLineGoesOn) {
  const std::string answer = first_answer("Hello there");
  std::string command = "set -m; " + std::string(BALLAST_PROGRAM);
  for (const std::string& word : kChat) command += " " + word;
  Terminal terminal({"-c", command + "; echo stopped; fg; echo ended $?"}, "/bin/sh");
  at_prompt(terminal);
  terminal.type("Hello");
  terminal.until("Hello");
  terminal.type("\x1a");
  EXPECT_THAT(terminal.until("stopped"), HasSubstr("\033[?2004l"));
  EXPECT_THAT(at_prompt(terminal), Not(HasSubstr("\033[?2004l")));
  terminal.type(" there\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr(answer));
  terminal.type("\x04");
  terminal.until("ended 0");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST(ChatTerminal, AContextThatIsRefusedLeavesTheOneBefore) {
  TempDir dir;
  const std::string big = (dir / "a big text").string(), cache = (dir / "a cache").string();
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "grass x" + std::to_string(i % 10) + "\n";
  write_text(big, text);
  Terminal terminal(kChat);
  at_prompt(terminal);
  terminal.type("/context " + kRecord + "\r");
  at_prompt(terminal);
  terminal.type("/context \"" + big + "\"\r");
  const std::string refused = at_prompt(terminal);
  EXPECT_THAT(refused, HasSubstr("but the model has 8,192 positions"));
  EXPECT_THAT(refused, Not(HasSubstr("No such file")));
  terminal.type("/save '" + cache + "'\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr("wrote"));
  EXPECT_TRUE(fs::exists(cache));
  terminal.type("/save " + kRecord + "\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr("would overwrite it"));
  terminal.type("/stats\r");
  EXPECT_THAT(at_prompt(terminal), HasSubstr("as exact"));
}

TEST(ChatTerminal, ErrorsDoNotObeyWhatTheyQuote) {
  Terminal terminal({"chat", "-m", "/no/such\033]0;title\007\xe2\x80\xaemodel"});
  const std::string shown = terminal.until("\n");
  EXPECT_THAT(shown, HasSubstr("/no/such\\x1b]0;title\\x07\\u{202e}model"));
  EXPECT_EQ(shown.find('\033'), std::string::npos) << shown;
  EXPECT_EQ(terminal.wait(), 1);
}

// Strings of a model's file, on standard output: a terminal gets them escaped, a pipe as they are.
TEST(ChatTerminal, TablesDoNotObeyAFile) {
  TempDir dir;
  const std::string path = (dir / "model.gguf").string();
  std::string file = read_text(kShipped);
  const std::size_t at = file.find("ballast-mini");
  ASSERT_NE(at, std::string::npos);
  file.replace(at, 12, "bal\033[31mmini");
  write_text(path, file);
  EXPECT_THAT(run({"inspect", path}).out, HasSubstr("bal\033[31mmini"));
  Terminal terminal({"inspect", path});
  const std::string shown = terminal.until("architecture");
  EXPECT_THAT(shown, HasSubstr("bal\\x1b[31mmini"));
  EXPECT_EQ(shown.find('\033'), std::string::npos) << shown;
}

/// Without line ends: chat ends each answer with one, run only those that have none.
std::string one_line(std::string text) {
  std::erase(text, '\n');
  return text;
}

TEST(ChatPipe, AsksAboutAContextAsRunDoes) {
  TempDir dir;
  const std::string question = "What is the number in line 7?", cache = (dir / "c").string();
  const ProgramResult answered =
      run({"run", "-m", kShipped, "-n", "6", "-q", "--context", kRecord, "--question", question});
  ASSERT_EQ(answered.exit_code, 0) << answered.err;
  const auto chat = [&](std::vector<std::string> more, const std::string& input) {
    std::vector<std::string> all = kChat;
    all.insert(all.end(), more.begin(), more.end());
    const ProgramResult said = Program(all, input).wait();
    EXPECT_EQ(said.exit_code, 0) << said.err;
    return said;
  };
  const std::string answer = one_line(answered.out);
  EXPECT_EQ(one_line(chat({"--context", kRecord}, question + "\n").out), answer);
  const ProgramResult saved =
      chat({}, "/context " + kRecord + "\n/save " + cache + "\n" + question + "\n");
  EXPECT_EQ(one_line(saved.out), answer);
  EXPECT_THAT(saved.err, HasSubstr("ballast: wrote " + cache));
  EXPECT_EQ(one_line(chat({"--load-cache", cache}, question + "\n").out), answer);
  EXPECT_EQ(one_line(chat({}, "Hi\n/load " + cache + "\n" + question + "\n").out),
            one_line(chat({}, "Hi\n").out) + answer);
  EXPECT_EQ(one_line(run({"run", "-m", kShipped, "-n", "6", "-q", "--load-cache", cache,
                          "--question", question})
                         .out),
            answer);
}

// The shipped vocabulary puts a space before words, which a text that goes on keeps.
TEST(RunShipped, ASavedRawContextKeepsTheFirstSpace) {
  const TempDir dir;
  write_text(dir / "context", "line one: The pass key is 48213. Remember it.");
  const std::string cache = (dir / "cache").string();
  const auto answer = [&](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"run", "-m", kShipped, "-n", "8", "-q", "--question", " The pass key is"});
    const ProgramResult result = run(more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string direct =
      answer({"--raw", "--context", (dir / "context").string(), "--save-cache", cache});
  EXPECT_THAT(direct, testing::StartsWith(" "));
  EXPECT_EQ(answer({"--load-cache", cache}), direct);
}

TEST(ChatPipe, AMessageThatIsTooLongFailsAtTheEnd) {
  const ProgramResult one = Program(kChat, "Hello\n").wait();
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "grass x" + std::to_string(i % 10) + " ";
  const ProgramResult said = Program(kChat, text + "\n  \t \nHello\n").wait();
  EXPECT_EQ(said.out, one.out);  // a line of blanks is no turn
  EXPECT_EQ(said.exit_code, 1);
  EXPECT_THAT(said.err, HasSubstr("positions are left: shorten it"));
  EXPECT_THAT(said.err, HasSubstr("ballast: 1 message had no place\n"));
}

TEST(ChatPipe, AShareIsOfTheContext) {
  const std::string question = "What is the number in line digital-crystal?";
  const ProgramResult answered = run({"run", "-m", kShipped, "-n", "6", "-q", "--cache", "1/4",
                                      "--context", kRecord, "--question", question});
  ASSERT_EQ(answered.exit_code, 0) << answered.err;
  std::vector<std::string> all = kChat;
  all.insert(all.end(), {"--cache", "1/4"});
  expect_refusal(Program(all, question + "\n").wait(), "a conversation has no known length", 2);
  all.insert(all.end(), {"--context", kRecord, "--stats"});
  const ProgramResult said = Program(all, question + "\n").wait();
  EXPECT_EQ(said.exit_code, 0) << said.err;
  EXPECT_EQ(one_line(said.out), one_line(answered.out));
  EXPECT_THAT(said.err, HasSubstr("smaller than exact"));
  all.insert(all.end(), {"--protocol", "stream"});
  expect_refusal(Program(all, question + "\n").wait(), "leave out --protocol stream", 2);
}

TEST(ChatPipe, AModelFileThatShrinksIsOneLine) {
  TempDir dir;
  const std::string model = (dir / "model.gguf").string();
  fs::copy_file(kShipped, model);
  int in[2], err[2];
  ASSERT_EQ(::pipe(in), 0);
  ASSERT_EQ(::pipe(err), 0);
  const std::string out = (dir / "out").string();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    ::close(in[1]);
    ::execl(BALLAST_PROGRAM, BALLAST_PROGRAM, "chat", "-m", model.c_str(), "-n", "2", nullptr);
    ::_exit(127);
  }
  ::close(in[0]);
  ::close(err[1]);
  ASSERT_EQ(::write(in[1], "Hi\n", 3), 3);
  for (int i = 0; i < 4000 && !read_text(out).ends_with('\n'); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  fs::resize_file(model, 4096);
  ASSERT_EQ(::write(in[1], "Hi\n", 3), 3);
  int status = 0;
  ::waitpid(child, &status, 0);
  std::string said(4096, '\0');
  said.resize(
      static_cast<std::size_t>(std::max<ssize_t>(0, ::read(err[0], said.data(), said.size()))));
  ::close(in[1]);
  ::close(err[0]);
  ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 1);
  EXPECT_THAT(said, HasSubstr("ballast: " + model + ": another program shortened the file"));
}

TEST(ChatPipe, SavesAConversationThatGoesOn) {
  TempDir dir;
  const std::string cache = (dir / "c").string();
  const ProgramResult whole = Program(kChat, "Hello\nAnd then?\n").wait();
  const ProgramResult first = Program(kChat, "Hello\n/save " + cache + "\n").wait();
  std::vector<std::string> more = kChat;
  more.insert(more.end(), {"--load-cache", cache});
  const ProgramResult second = Program(more, "And then?\n").wait();
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(first.out + second.out, whole.out);
}

TEST(ChatPipe, RefusesWhatHasNoEffect) {
  std::vector<std::string> all = kChat;
  all.insert(all.end(), {"--load-cache", "x", "--method", "exact"});
  expect_refusal(run(all), "--method has no effect with --load-cache", 2);
  all = kChat;
  all.insert(all.end(), {"--load-cache", "x", "--context", "y"});
  expect_refusal(run(all), "--context and --load-cache exclude each other", 2);
  TempDir dir;
  const std::string tools = (dir / "tools").string();
  all = kChat;
  all.insert(all.end(), {"--tools", tools});
  expect_refusal(run(all), tools);  // there is no such file
  write_text(tools, "{}");
  expect_refusal(run(all), tools + ": expected a JSON array of functions");
  write_text(tools, R"([{"type": "function", "function": {"name": "f"}}])");
  expect_refusal(Program(all, "Hi\n").wait(), "this model has not learned to call functions");
  expect_refusal(Program(kChat, "/hepl\n").wait(), "did you mean /help?", 2);
}

}  // namespace
}  // namespace ballast
