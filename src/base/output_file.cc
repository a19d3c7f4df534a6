#include "base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/os/files.h"
#include "base/partial_files.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

/// The rename must be durable too, and the folder holds the name.
void sync_folder(const fs::path& folder) noexcept {
  int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // the folder is writable but not readable; the file is complete
  file_calls().sync(fd);
  ::close(fd);
}

fs::path folder_of(const fs::path& path) {
  fs::path folder = path.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

/// A name beside `path` that no one else takes.
fs::path partial_of(const fs::path& path) {
  constexpr std::size_t kLongestName = 255;
  std::uint64_t number = 0;
  if (!random_number(number)) {
    static std::atomic<std::uint32_t> count;
    number = static_cast<std::uint64_t>(::getpid()) << 32 | ++count;
  }
  const std::string end = fmt::format(".{:016x}.partial", number);
  std::string name = path.filename().string();
  name.resize(std::min(name.size(), kLongestName - end.size()));
  return folder_of(path) / (name + end);
}

/// Gives the file the mode and, where the system allows it, the owner of the one that it replaces.
/// Returns errno, or 0.
int take_after(int file, const struct stat& old) {
  mode_t mode = old.st_mode & 07777;
  // Others than root cannot give files away; the group is theirs to give. Then the mode, from which
  // a new owner takes bits.
  if (old.st_uid != ::geteuid() || old.st_gid != ::getegid()) {
    if (::fchown(file, old.st_uid, old.st_gid) != 0 &&
        ::fchown(file, static_cast<uid_t>(-1), old.st_gid) != 0) {
      mode &= ~static_cast<mode_t>(S_ISUID | S_ISGID);
    }
  }
  return ::fchmod(file, mode) == 0 ? 0 : errno;
}

}  // namespace

OutputFile::OutputFile(const fs::path& path) : path_(path) {
  require(!path.empty(), "cannot write: the path is empty");
  std::error_code ignored;
  fs::file_status status = fs::status(path, ignored);
  bool is_new = status.type() == fs::file_type::not_found || status.type() == fs::file_type::none;
  if (fs::is_directory(status))
    fail(ErrorCode::io, "{}: cannot write: it is a folder", path.string());
  int file = -1, error = 0;
  if (is_new || fs::is_regular_file(status)) {
    // A rename onto a symbolic link would replace the link, not its target.
    if (fs::is_symlink(fs::symlink_status(path, ignored))) {
      fs::path real = fs::weakly_canonical(path, ignored);
      if (!real.empty()) path_ = real;
    }
    struct stat old = {};
    const bool replaces = ::stat(path_.c_str(), &old) == 0;
    for (int attempt = 0; file < 0 && (attempt == 0 || (error == EEXIST && attempt < 8));
         ++attempt) {
      partial_ = partial_of(path_);
      note_ = note_partial_file(partial_.string());
      // O_EXCL follows no link. A file that is replaced may be private.
      file = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                    replaces ? 0600 : 0666);
      error = errno;
      if (file >= 0) break;
      partial_.clear();  // not ours to remove
      forget_partial_file(std::exchange(note_, -1));
    }
    if (file >= 0 && replaces && (error = take_after(file, old)) != 0) {
      ::close(file);
      fail_to("cannot create", error);
    }
  } else {
    file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    error = errno;
  }
  if (file < 0) fail_to("cannot create", error);
  file_ = ::fdopen(file, "wb");
  if (file_ == nullptr) {
    error = errno;
    ::close(file);
    fail_to("cannot create", error);
  }
  std::setvbuf(file_, nullptr, _IOFBF, std::size_t{1} << 18);
}

OutputFile::~OutputFile() { discard(); }

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::exchange(other.partial_, {})),
      note_(std::exchange(other.note_, -1)),
      file_(std::exchange(other.file_, nullptr)),
      size_(other.size_) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(partial_, other.partial_);
  std::swap(note_, other.note_);
  std::swap(file_, other.file_);
  std::swap(size_, other.size_);
  return *this;
}

void OutputFile::write(std::span<const std::byte> bytes) {
  require(file_ != nullptr, "{}: cannot write: the file is already closed", path_.string());
  if (bytes.empty()) return;
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size()) {
    fail_to("cannot write", errno);
  }
  size_ += bytes.size();
}

void OutputFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text.data(), text.size())));
}

void OutputFile::commit() {
  require(file_ != nullptr, "{}: cannot write: the file is already closed", path_.string());
  const fs::path folder = folder_of(path_);  // nothing is allocated once the file is renamed
  if (std::fflush(file_) != 0) fail_to("cannot write", errno);
  // Devices and pipes cannot be synced (EINVAL, EROFS).
  if (file_calls().sync(::fileno(file_)) != 0 && !partial_.empty()) fail_to("cannot write", errno);
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail_to("cannot write", errno);
  if (partial_.empty()) return;
  if (file_calls().rename(partial_.c_str(), path_.c_str()) != 0) fail_to("cannot create", errno);
  partial_.clear();
  forget_partial_file(std::exchange(note_, -1));
  sync_folder(folder);
}

void OutputFile::discard() noexcept {
  if (file_ != nullptr) std::fclose(std::exchange(file_, nullptr));
  if (!partial_.empty()) ::unlink(partial_.c_str());
  partial_.clear();
  forget_partial_file(std::exchange(note_, -1));
}

void OutputFile::fail_to(const char* action, int error) {
  discard();
  fail(ErrorCode::io, "{}: {}: {}", path_.string(), action, std::strerror(error));
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  OutputFile file(path);
  file.write(content);
  file.commit();
}

}  // namespace ballast
