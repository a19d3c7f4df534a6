// Other programs that run the same measurement, for comparison.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

namespace ballast {

struct PeerRow {
  std::size_t prompt = 0;
  std::size_t generated = 0;
  double prompt_seconds = 0;
  double decode_seconds = 0;
  double token_seconds() const { return decode_seconds / static_cast<double>(generated); }
};

struct Peer {
  std::string name;  ///< with its version
  std::vector<PeerRow> rows;
  /// Null if it did not measure that length.
  const PeerRow* find(std::size_t prompt) const;
  /// Keeps the smaller of each time. `more`: another run of the same measurement.
  void keep_least(const Peer& more);
};

/// Runs `command` by the shell, with --model FILE --prompt N,N --generate N --threads N behind it.
/// It prints {"name": …, "results": [{"prompt": N, "generated": N, "prompt_seconds": S,
/// "decode_seconds": S}, …]}; what it says on standard error is shown. Throws Error when it fails
/// or prints anything else.
Peer run_peer(const std::string& command, const std::filesystem::path& model,
              const std::vector<std::size_t>& prompts, std::size_t generate, std::size_t threads);

}  // namespace ballast
