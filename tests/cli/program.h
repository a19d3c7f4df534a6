// Runs the program as a user does, and shows what it said.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "temp_dir.h"

namespace ballast::test {

struct ProgramResult {
  int exit_code = -1;  ///< 128 + signal when one ended it
  std::string out;
  std::string err;
};

/// A run that has begun; its output goes to files in a folder of its own.
class Program {
 public:
  /// `out`: a file descriptor for standard output, which is then not read.
  explicit Program(const std::vector<std::string>& arguments, int out = -1) {
    const std::string file = dir_ / "out";
    const std::string err = (dir_ / "err").string();
    std::vector<std::string> words = {BALLAST_PROGRAM};
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    child_ = ::fork();
    if (child_ == 0) {
      ::signal(SIGINT, SIG_DFL);  // what runs in the background of a shell ignores it
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

}  // namespace ballast::test
