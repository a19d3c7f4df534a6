#include "serve/http/gate.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace ballast::serve {
namespace {

using namespace std::chrono_literals;

/// Bytes. Of larger bodies the gate reads a few at once, of smaller ones more.
constexpr std::size_t kLargeBody = 256 << 10;
/// How long a body waits for memory.
constexpr auto kMemoryTime = 2s;

/// Memory that a body takes while it is read: as JSON, as text of a template, as words and tokens.
std::size_t reading_memory(std::size_t body) {
  constexpr std::size_t kWords = 96 << 20;  // of the most tokens that a text may have
  return 4 * body + std::min(16 * body, kWords);
}

}  // namespace

void Gate::make_room(const std::string& client) {
  std::map<std::string, std::size_t> count;
  for (const auto& [turn, one] : waiting_) ++count[one->client];
  const auto most = std::ranges::max_element(count, {}, [](const auto& one) { return one.second; });
  if (most->second <= count[client] + 1) {
    throw ApiError(429, "rate_limit_exceeded",
                   "too many requests wait to be read; try again later");
  }
  const auto last = std::ranges::find_if(waiting_.rbegin(), waiting_.rend(), [&](const auto& one) {
    return one.second->client == most->first;
  });
  last->second->refused = true;
  waiting_.erase(std::next(last).base());
  changed_.notify_all();
}

Gate::Place Gate::enter(const std::string& client) {
  std::unique_lock lock(mutex_);
  if (waiting_.size() >= most_waiting_) make_room(client);
  Turn turn{round_ + 1, ++number_};
  for (const auto& [other, one] : waiting_) {
    if (one->client == client) turn.round = other.round + 1;  // behind its last one
  }
  Waiting own{client};
  waiting_.emplace(turn, &own);
  try {
    while (within_ == most_ || waiting_.begin()->second != &own) {
      Interruption::check();
      changed_.wait_for(lock, std::chrono::milliseconds(50));
      if (own.refused) {
        throw ApiError(429, "rate_limit_exceeded",
                       "too many of your requests wait to be read; try again later");
      }
    }
  } catch (...) {
    if (!own.refused) waiting_.erase(turn);
    changed_.notify_all();
    throw;
  }
  waiting_.erase(turn);
  round_ = turn.round - 1;
  ++within_;
  changed_.notify_all();
  return Place(*this);
}

void Gate::leave() {
  {
    const std::scoped_lock lock(mutex_);
    --within_;
  }
  changed_.notify_all();
}

TextWork Bodies::enter(const std::string& client, std::size_t body, bool document) {
  Gate& gate = document ? documents_ : body > kLargeBody ? large_ : small_;
  return enter(gate, client, reading_memory(body));
}

TextWork Bodies::enter(Gate& gate, const std::string& client, std::size_t bytes) {
  if (bytes > ever_) {
    throw ApiError(400, "insufficient_memory",
                   fmt::format("{} bytes of memory are needed for the text of this request, "
                               "--memory leaves {}; give a shorter one",
                               bytes, ever_));
  }
  TextWork out;
  out.place = gate.enter(client);
  Interruption::check();
  const auto end = std::chrono::steady_clock::now() + kMemoryTime;
  while (!memory_.take(bytes, out.memory)) {
    memory_.want(bytes);
    Interruption::check();
    if (std::chrono::steady_clock::now() > end) {
      throw ApiError(503, "insufficient_memory",
                     fmt::format("{} bytes of memory are needed for the text of this request, and "
                                 "are not free; try again later",
                                 bytes));
    }
    std::this_thread::sleep_for(20ms);
  }
  return out;
}

}  // namespace ballast::serve
