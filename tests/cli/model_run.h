// Runs the program on tiny models, with text on its standard input.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "temp_dir.h"

namespace ballast::test {

struct Said {
  int exit_code = -1;
  std::string out;
  std::string err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Said run_with(const Words& arguments, const std::string& input = "") {
  const TempDir dir;
  write_text(dir / "in", input);
  Words words = Words{BALLAST_PROGRAM} + arguments;
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string in = (dir / "in").string(), out = (dir / "out").string(),
                    err = (dir / "err").string();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(::open(in.c_str(), O_RDONLY), STDIN_FILENO);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_text(out),
          read_text(err)};
}

/// Fails with this message, on one line, and nothing on standard output.
inline void expect_refusal(const Said& said, const std::string& message, int code = 1) {
  EXPECT_EQ(said.exit_code, code) << said.err;
  EXPECT_THAT(said.err, testing::StartsWith("ballast: "));
  EXPECT_THAT(said.err, testing::HasSubstr(message));
  EXPECT_EQ(std::count(said.err.begin(), said.err.end(), '\n'), 1) << said.err;
  EXPECT_THAT(said.out, testing::IsEmpty());
}

}  // namespace ballast::test
