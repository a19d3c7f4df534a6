// One file from a server onto the disk.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace ballast::hub {

struct Download {
  std::string url;
  std::filesystem::path to;
  std::uintmax_t bytes = 0;  ///< 0: not known
  std::string sha256;        ///< empty: not known
  std::string tag;           ///< changes with the content; empty: a cut download begins anew
  bool quiet = false;
  std::function<void(const std::string& line)> say;
};

/// Fetches the file unless it is there: into a partial file beside it, which another process waits
/// for and an interrupted one leaves for the next; renamed once its size and sum are right. Ends as
/// soon as the file does not begin as GGUF; without a known size at 64 GiB or a full disk. Throws
/// Error; Unreachable where no answer came at all.
void download(const Download& what);

/// Deletes a partial file unless a process fetches into it; whether it did.
bool discard_partial(const std::filesystem::path& part);

/// Throws Error, naming `to`, unless the file has this sum.
void check_sum(const std::filesystem::path& file, const std::string& sha256,
               const std::filesystem::path& to, bool quiet);

}  // namespace ballast::hub
