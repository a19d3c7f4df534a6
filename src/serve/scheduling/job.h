// What a request wants from the model, and what it is told.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ballast/engine/generate.h"
#include "ballast/engine/guard.h"
#include "ballast/engine/model.h"
#include "ballast/engine/vision.h"
#include "serve/grammar/grammar.h"
#include "serve/http/api_error.h"
#include "serve/http/memory.h"
#include "serve/http/usage.h"
#include "serve/texts/contexts.h"
#include "text/answer/tool_calls.h"

namespace ballast::serve {

/// Whether a text is read with Guard::reading(), so that its size is chosen.
inline bool is_guarded(const CacheOptions& options) { return options.recording.any(); }

/// Whether the cache keeps every token of a prompt.
inline bool stays_exact(const CacheOptions& options) {
  return options.policy.info().window_policy == WindowPolicy::all && !is_guarded(options);
}

/// What a request wants from the model.
struct Job {
  std::string client;                   ///< whose turn it is is decided among clients
  std::string owner;                    ///< of what is kept of it; see Contexts
  std::vector<Token> prompt;            ///< not empty
  std::vector<PictureTokens> pictures;  ///< of the prompt
  /// The method summarizes the cache when it has read so many tokens of the prompt; the rest is
  /// read like generated tokens. Follows from the request alone. Not used with a context.
  std::size_t compress_at = 0;
  CacheOptions cache;
  std::string salt = {};        ///< nothing is shared with jobs of another: see parse_salt()
  std::string session = {};     ///< see Sessions; empty: none
  std::chrono::seconds keep{};  ///< what it has read, after its last use: see Prefixes::keep()
  std::size_t marked = 0;       ///< tokens of the prompt that the client marks to be kept
  bool compacts = false;        ///< a stream that says when its cache is made small
  bool chat = false;            ///< the prompt stands in a chat template
  std::shared_ptr<const Context> context;  ///< the prompt follows this text
  std::optional<GrammarReader> grammar;    ///< that answers are held to, at its beginning
  std::size_t choices = 1;                 ///< 0: only read the prompt; the result is the cache
  /// Choice i has the seed `sampling.seed` + i. No max_tokens: the answers are empty.
  GenerateOptions generate;
  std::optional<std::size_t> thinking_budget;  ///< tokens after which thoughts are closed
  bool thoughts_open = false;                  ///< the prompt ends within thoughts
  bool split_thoughts = true;                  ///< of a chat: thoughts come apart from the answer
  std::vector<Function> functions;             ///< that the model may call
  bool score_prompt = false;  ///< say how likely its tokens are, and that which ends an answer
  bool embed = false;         ///< without choices: the result is the mean of its tokens' states
  bool cite = false;          ///< of a context: say what its choices look up in it
};

/// A job without choices has gone on; about a hundred times in all.
struct Reading {
  double done = 0;  ///< of its work, from 0 to 1
};
/// The prompt has been read.
struct PromptRead {
  std::size_t tokens = 0;       ///< of the prompt, with its context
  std::size_t cached = 0;       ///< of these, found in a cache
  std::size_t cache_bytes = 0;  ///< then
  double read_seconds = 0;
  double compress_seconds = 0;
  std::vector<Compaction> compactions;  ///< until then
  std::vector<GeneratedToken> scored;   ///< its tokens but the first, where the job asks for it
  double seconds = 0;                   ///< since the job was submitted
  /// Of a context's cache, where it can be measured, and of one whose size was chosen.
  std::optional<GaugeReading> gauge = {};
};
/// A choice has gone on.
struct Piece {
  std::size_t choice = 0;
  std::string text;  ///< may be empty
  std::vector<GeneratedToken> tokens;
  std::optional<Finish> finish;
  std::string thoughts = {};         ///< before the text
  std::vector<ToolCall> calls = {};  ///< of functions
  bool thinks = false;               ///< its tokens are thoughts
  std::string stop = {};             ///< the stop string that ended it
  bool unsure = false;  ///< at the end: a token was less probable than the model says it should be
  std::vector<float> attention = {};  ///< at the end, where the job cites: see Lookup::attention()
};
/// All choices have ended.
struct Ended {
  std::size_t cache_bytes = 0;          ///< of the first choice
  double seconds = 0;                   ///< since the job was submitted
  std::vector<Compaction> compactions;  ///< since the prompt was read, of all choices
};
/// The cache of a job without choices.
struct ContextRead {
  std::unique_ptr<Cache> cache;
  Lease lease;
};
/// The mean of the states of a job's tokens.
struct Embedded {
  std::vector<float> embedding;
};
using Event = std::variant<Reading, PromptRead, Piece, Ended, ContextRead, Embedded, ApiError>;

/// What a job has to say, from the scheduler to the thread that answers.
class Ticket {
 public:
  /// The next event, or none within that time. ApiError, Ended, ContextRead and
  /// Embedded are the last.
  std::optional<Event> wait(std::chrono::milliseconds most);
  /// No one wants the rest. The job ends before its next step.
  void cancel() { cancelled_ = true; }
  bool cancelled() const { return cancelled_; }
  /// Whether the rest must wait: the job then keeps its memory and has no slot.
  void hold(bool on) { held_ = on; }
  /// Whether it does, or much waits to be taken, as of the later prompts of a request.
  bool held() const { return held_ || full_; }

 private:
  friend class Scheduler;
  void push(Event event);

  static constexpr std::size_t kMost = 4096;  ///< events that wait
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Event> events_;
  std::atomic<bool> cancelled_ = false, held_ = false, full_ = false;
};

inline std::optional<Event> Ticket::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  if (!ready_.wait_for(lock, most, [&] { return !events_.empty(); })) return std::nullopt;
  Event event = std::move(events_.front());
  events_.pop_front();
  if (events_.empty()) full_ = false;
  return event;
}

inline void Ticket::push(Event event) {
  {
    const std::scoped_lock lock(mutex_);
    events_.push_back(std::move(event));
    if (events_.size() >= kMost) full_ = true;
  }
  ready_.notify_one();
}

}  // namespace ballast::serve
