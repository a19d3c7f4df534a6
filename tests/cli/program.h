// Runs the program as a user does.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "paths.h"
#include "temp_dir.h"

namespace ballast::test {

/// The terminal's width, as programs are told.
inline const char* columns = "200";

struct ProgramResult {
  int exit_code = -1;  ///< 128 + signal when one ended it
  std::string out;
  std::string err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

/// A running program. Its input and output are files in a folder of its own.
class Program {
 public:
  /// `input`: the text on standard input. `out`: a file descriptor for standard output, which
  /// wait() then does not return.
  explicit Program(const std::vector<std::string>& arguments, const std::string& input = "",
                   int out = -1) {
    write_text(dir_ / "in", input);
    const std::string in = (dir_ / "in").string();
    const std::string file = (dir_ / "out").string();
    const std::string err = (dir_ / "err").string();
    std::vector<std::string> all = {BALLAST_PROGRAM};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& argument : all) argv.push_back(argument.data());
    argv.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      ::setenv("COLUMNS", columns, 1);
      ::signal(SIGINT, SIG_DFL);  // a shell's background processes ignore it
      ::dup2(::open(in.c_str(), O_RDONLY), STDIN_FILENO);
      if (out < 0) out = ::open(file.c_str(), O_WRONLY | O_CREAT, 0600);
      ::dup2(out, STDOUT_FILENO);
      ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }

  void signal(int number) const { ::kill(child_, number); }

  ProgramResult wait() {
    int status = 0;
    ::waitpid(child_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
            read_text(dir_ / "out"), read_text(dir_ / "err")};
  }

 private:
  TempDir dir_;
  pid_t child_ = -1;
};

inline ProgramResult run(const std::vector<std::string>& arguments) {
  return Program(arguments).wait();
}

/// Expects a failure with this message on one line and nothing on standard output. `code`: 1, 2 for
/// wrong usage, 0: either.
inline void expect_refusal(const ProgramResult& result, const std::string& message, int code = 0) {
  if (code == 0) {
    EXPECT_THAT(result.exit_code, testing::AnyOf(1, 2)) << result.err;
  } else {
    EXPECT_EQ(result.exit_code, code) << result.err;
  }
  EXPECT_THAT(result.err, testing::StartsWith("ballast: "));
  EXPECT_THAT(result.err, testing::HasSubstr(message));
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
  EXPECT_THAT(result.out, testing::IsEmpty());
}

}  // namespace ballast::test
