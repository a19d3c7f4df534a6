#include "base/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/fail.h"
#include "base/os/files.h"

namespace ballast {
namespace {

std::string remedy(const std::filesystem::path& path, int error) {
  if (error == EACCES) return "; make it readable for you";
  if (error != ENOENT && error != ENOTDIR) return "";
  std::error_code ignored;
  const auto here = std::filesystem::current_path(ignored);
  if (path.is_absolute() || here.empty()) return "; check the path";
  return fmt::format("; check the path, which starts from {}", here.string());
}

}  // namespace

void fail_to_open(const std::filesystem::path& path, int error) {
  fail(ErrorCode::io, "{}: cannot open: {}{}", path.string(), std::strerror(error),
       remedy(path, error));
}

std::string read_file(const std::filesystem::path& path, const Readable& what) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) fail_to_open(path, errno);
  const auto refuse_unless = [&](bool right, const char* kind) {
    require(right, ErrorCode::io, "{}: cannot read: it is {}", path.string(), kind);
  };
  refuse_unless(!S_ISDIR(status.st_mode), "a folder");
  refuse_unless(what.pipes || S_ISREG(status.st_mode), "no regular file");
  const auto expect_at_most = [&](std::uint64_t bytes) {
    require(bytes <= what.most, ErrorCode::bad_file,
            "{}: too large; at most {} bytes are read here", path.string(), what.most);
  };
  if (S_ISREG(status.st_mode)) expect_at_most(static_cast<std::uint64_t>(status.st_size));
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) fail_to_open(path, errno);
  struct stat null = {};
  const bool nothing =
      S_ISCHR(status.st_mode) && ::stat("/dev/null", &null) == 0 && status.st_rdev == null.st_rdev;
  const bool device = S_ISBLK(status.st_mode) || S_ISCHR(status.st_mode);
  refuse_unless(!device || nothing || ::isatty(file.number()) == 1, "a device; name a file");
  std::string content;
  char part[1 << 16];
  while (true) {
    const ssize_t count = ::read(file.number(), part, sizeof(part));
    if (count < 0 && errno == EINTR) continue;
    require(count >= 0, ErrorCode::io, "{}: cannot read: {}", path.string(), std::strerror(errno));
    if (count == 0) return content;
    content.append(part, static_cast<std::size_t>(count));
    expect_at_most(content.size());
  }
}

}  // namespace ballast
