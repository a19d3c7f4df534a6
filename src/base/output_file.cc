#include "base/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/fail.h"
#include "base/partial_files.h"

namespace ballast {
namespace {

/// The rename must be durable too, and the folder holds the name.
void sync_folder(const std::filesystem::path& file) {
  std::filesystem::path folder = file.parent_path();
  int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // the folder is writable but not readable; the file is complete
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

OutputFile::OutputFile(const std::filesystem::path& path) : path_(path) {
  namespace fs = std::filesystem;
  require(!path.empty(), "cannot write: the path is empty");
  std::error_code ignored;
  fs::file_status status = fs::status(path, ignored);
  bool is_new = status.type() == fs::file_type::not_found || status.type() == fs::file_type::none;
  if (fs::is_directory(status))
    fail(ErrorCode::io, "{}: cannot write: it is a folder", path.string());
  fs::path target = path;
  if (is_new || fs::is_regular_file(status)) {
    // A rename onto a symbolic link would replace the link, not its target.
    if (fs::is_symlink(fs::symlink_status(path, ignored))) {
      fs::path real = fs::weakly_canonical(path, ignored);
      if (!real.empty()) path_ = real;
    }
    partial_ = path_;
    partial_ += ".partial";
    target = partial_;
  }
  if (!partial_.empty()) note_ = note_partial_file(partial_.string());
  file_ = std::fopen(target.c_str(), "wbe");
  if (file_ == nullptr) {
    int error = errno;
    partial_.clear();  // not ours to remove
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
  if (std::fflush(file_) != 0) fail_to("cannot write", errno);
  // Devices and pipes cannot be synced (EINVAL, EROFS).
  if (::fsync(::fileno(file_)) != 0 && !partial_.empty()) fail_to("cannot write", errno);
  if (std::fclose(std::exchange(file_, nullptr)) != 0) fail_to("cannot write", errno);
  if (partial_.empty()) return;
  if (std::rename(partial_.c_str(), path_.c_str()) != 0) fail_to("cannot create", errno);
  partial_.clear();
  forget_partial_file(std::exchange(note_, -1));
  sync_folder(path_);
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
