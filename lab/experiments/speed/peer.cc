#include "experiments/speed/peer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/fail.h"
#include "formats/json.h"
#include "formats/json_text.h"

namespace ballast {
namespace {

/// The limit of a peer's output, in bytes.
constexpr std::size_t kMostOutput = 1 << 20;

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// Returns the standard output of a command.
std::string output_of(const std::string& command, const std::string& name) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  require(pipe != nullptr, "cannot start '{}': {}", name, std::strerror(errno));
  std::string out;
  char buffer[4096];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) {
    if (out.size() < kMostOutput) out.append(buffer, n);
  }
  const int status = ::pclose(pipe);
  require(status == 0, "'{}' failed; what it said on standard error is above", name);
  return out;
}

double seconds_of(const SortedJson& row, const char* key) {
  const double seconds = row.at(key).get<double>();
  require(std::isfinite(seconds) && seconds > 0, "{} is {}", key, seconds);
  return seconds;
}

}  // namespace

const PeerRow* Peer::find(std::size_t prompt) const {
  const auto it = std::ranges::find(rows, prompt, &PeerRow::prompt);
  return it == rows.end() ? nullptr : &*it;
}

void Peer::keep_least(const Peer& more) {
  for (PeerRow& row : rows) {
    const PeerRow* other = more.find(row.prompt);
    if (other == nullptr) continue;
    row.prompt_seconds = std::min(row.prompt_seconds, other->prompt_seconds);
    row.decode_seconds = std::min(row.decode_seconds, other->decode_seconds);
  }
}

Peer run_peer(const std::string& command, const std::filesystem::path& model,
              const std::vector<std::size_t>& prompts, std::size_t generate, std::size_t threads) {
  const std::string text =
      output_of(fmt::format("{} --model {} --prompt {} --generate {} --threads {}", command,
                            quoted(model.string()), fmt::join(prompts, ","), generate, threads),
                command);
  Peer peer;
  try {
    const SortedJson json = parse_json_text(text, command);
    peer.name = json.at("name").get<std::string>();
    for (const SortedJson& row : json.at("results")) {
      peer.rows.push_back({row.at("prompt").get<std::size_t>(),
                           row.at("generated").get<std::size_t>(),
                           seconds_of(row, "prompt_seconds"), seconds_of(row, "decode_seconds")});
      require(peer.rows.back().generated > 0, "generated is 0");
    }
  } catch (const std::exception& e) {
    fail("'{}' printed no results as --against wants them (see lab/bench/peers): {}", command,
         e.what());
  }
  return peer;
}

}  // namespace ballast
