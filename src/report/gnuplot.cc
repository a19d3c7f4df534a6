#include "report/gnuplot.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/fail.h"

extern char** environ;

namespace ballast {
namespace {

namespace fs = std::filesystem;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

/// An unnamed temporary file. Pipes could fill up and block both sides.
File scratch_file() {
  File file(std::tmpfile());
  if (!file) fail(ErrorCode::io, "cannot make a temporary file: {}", std::strerror(errno));
  return file;
}

std::string read_all(std::FILE* file) {
  std::string out;
  std::rewind(file);
  std::array<char, 1 << 14> buffer;
  while (std::size_t n = std::fread(buffer.data(), 1, buffer.size(), file)) {
    out.append(buffer.data(), n);
  }
  return out;
}

}  // namespace

std::string run_gnuplot(const std::string& script) {
  File in = scratch_file(), out = scratch_file(), errors = scratch_file();
  if (std::fwrite(script.data(), 1, script.size(), in.get()) != script.size() ||
      std::fflush(in.get()) != 0) {
    fail(ErrorCode::io, "cannot write to a temporary file: {}", std::strerror(errno));
  }
  std::rewind(in.get());

  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ::fileno(in.get()), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ::fileno(out.get()), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ::fileno(errors.get()), STDERR_FILENO);
  std::array<char*, 2> arguments = {const_cast<char*>("gnuplot"), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, "gnuplot", &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (error != 0) fail(ErrorCode::io, "cannot start gnuplot: {}", std::strerror(error));

  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  std::string drawn = read_all(out.get());
  if (status != 0 || drawn.empty()) {
    std::string why = read_all(errors.get());
    for (char& c : why) c = c == '\n' ? ' ' : c;
    fail("gnuplot could not draw the plot: {}", why.empty() ? "it says nothing" : why);
  }
  return drawn;
}

bool is_installed(const char* program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/bin:/bin" : path;
  while (true) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    if (::access((fs::path(folder.empty() ? "." : folder) / program).c_str(), X_OK) == 0) {
      return true;
    }
    if (folder.size() == rest.size()) return false;
    rest.remove_prefix(folder.size() + 1);
  }
}

}  // namespace ballast
