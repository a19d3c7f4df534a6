#include "base/read_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/fail.h"

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

std::string read_file(const std::filesystem::path& path) {
  std::error_code ignored;
  require(!std::filesystem::is_directory(path, ignored), ErrorCode::io,
          "{}: cannot read: it is a folder", path.string());
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  if (!in.is_open()) fail_to_open(path, errno);
  std::string content;
  char part[1 << 16];
  do {
    in.read(part, sizeof(part));
    content.append(part, static_cast<std::size_t>(in.gcount()));
  } while (in.good());
  require(!in.bad(), ErrorCode::io, "{}: cannot read: {}", path.string(), std::strerror(errno));
  return content;
}

}  // namespace ballast
