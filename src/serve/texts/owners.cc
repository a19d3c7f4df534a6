#include "serve/texts/owners.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <random>
#include <span>

#include "base/fnv.h"
#include "base/os/files.h"
#include "base/sha256.h"

namespace ballast::serve {
namespace {

constexpr std::size_t kSalt = 32;
constexpr const char* kFile = "owners.salt";

std::string random_bytes() {
  std::random_device random;
  std::string out(kSalt, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}

/// The bytes of the folder, which the first server makes; empty: it cannot be read.
std::string salt_of(const std::filesystem::path& folder) {
  const std::string path = (folder / kFile).string();
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  Descriptor opened(::open(path.c_str(), O_RDWR | O_CREAT | kFlags, 0600));
  if (opened.number() < 0) opened = Descriptor(::open(path.c_str(), O_RDONLY | kFlags));
  const int file = opened.number();
  if (file < 0) return "";
  lock_file(file, Lock::alone);
  std::string salt(kSalt, '\0');
  if (::pread(file, salt.data(), kSalt, 0) != ssize_t{kSalt}) {  // new, or cut off
    salt = random_bytes();
    const bool written =
        ::pwrite(file, salt.data(), kSalt, 0) == ssize_t{kSalt} && sync_file(file) == 0;
    if (!written) salt.clear();
  }
  return salt;
}

std::string hash_of(std::string_view salt, std::string_view key) {
  Sha256 sum;
  sum.add(std::as_bytes(std::span(salt)));
  sum.add(std::as_bytes(std::span(key)));
  return sum.finish();
}

}  // namespace

Owners::Owners(const std::vector<std::string>& keys, const std::filesystem::path& folder)
    : keys_(keys) {
  if (keys_.empty()) return;
  if (!folder.empty()) salt_ = salt_of(folder);
  if (salt_.empty()) salt_ = random_bytes();
}

std::string Owners::of(std::string_view key) const {
  return keys_.empty() ? "" : hash_of(salt_, key);
}

std::string Owners::renamed(std::string_view old) const {
  for (const std::string& key : keys_) {
    Fnv hash;
    hash.add(std::as_bytes(std::span(key)));
    if (old == fmt::format("{:016x}", hash.value())) return of(key);
  }
  return std::string(old);
}

}  // namespace ballast::serve
