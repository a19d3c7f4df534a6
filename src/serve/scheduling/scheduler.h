// Continuous batching: many texts are read and continued by one model, a step at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ballast/engine/lookup.h"
#include "ballast/engine/model.h"
#include "base/stopwatch.h"
#include "serve/grammar/token_texts.h"
#include "serve/http/memory.h"
#include "serve/http/metrics.h"
#include "serve/scheduling/job.h"
#include "serve/scheduling/pace.h"
#include "serve/texts/contexts.h"
#include "serve/texts/prefixes.h"
#include "serve/texts/sessions.h"

namespace ballast::serve {

struct SchedulerOptions {
  std::size_t slots = 16;   ///< choices that are read or generated at once
  std::size_t queue = 256;  ///< jobs that wait
  /// Seconds of a replay pass at a time, or one layer if that takes longer.
  double patience = kPatience;
  std::filesystem::path prefix_dir = {};  ///< where beginnings survive the process; empty: nowhere
  std::size_t prefix_files = 0;           ///< bytes that they take there at most
  PackPreset pack = {};                   ///< of beginnings that rest: see PrefixPacker
  Sessions* sessions = nullptr;           ///< that jobs are of; null: none
};

class Choice;

/// Runs jobs on a thread of its own.
class Scheduler {
 public:
  Scheduler(const Model& model, const Tokenizer& tokenizer, const SchedulerOptions& options,
            Memory& memory, Contexts& contexts, Metrics& metrics);
  /// Cancels what runs.
  ~Scheduler();

  /// Throws ApiError if the job can never run, or the queue is full.
  std::shared_ptr<Ticket> submit(Job job);
  Prefixes& prefixes() { return prefixes_; }
  /// Memory that engines and logits take, whatever runs.
  static std::size_t own_memory(const Model& model, std::size_t slots);

 private:
  struct Running;

  /// Throws ApiError if the queue is full, and of its clients none has more there than this one.
  void enqueue(std::unique_ptr<Running> job);
  void loop();
  /// Lets jobs of the queue in, and those that pause go on: next is who has the fewest slots, and
  /// of equals one client after the other.
  bool admit();
  /// Jobs of clients that have left free their places in the queue, which is locked.
  void forget_cancelled();
  /// Who is next of the jobs that pause and, if `waiting`, of those in the queue, which is locked;
  /// null: none.
  Running* next_of(const std::map<std::string, std::size_t>& taken, bool waiting) const;
  /// The jobs that must pause so that a client has so many slots more: of clients that have more
  /// than it, those first that have worked longest. Nothing: there are not enough.
  std::optional<std::vector<Running*>> pauses_for(const std::string& client, std::size_t places);
  /// Slots that are taken, by client.
  std::map<std::string, std::size_t> slots_taken() const;
  bool start(std::unique_ptr<Running>& job);
  /// A chunk of one prompt, or a turn of one replay pass.
  bool read_some();
  void read_chunk(Running& job);
  void begin_compressing(Running& job);
  /// Begins a replay pass of a sequence of the job, in turns. `ends`: if one is due, and the
  /// prompt ends then.
  void begin_replay(Running& job, Sequence& sequence, bool ends);
  void prompt_read(Running& job);
  bool decode();
  /// Each choice reads its next token. The logits are of the choices' last tokens, in `rows` or
  /// valid until a choice reads.
  ConstMatrix read_next(std::span<Choice* const> streams, Matrix& rows);
  /// The logits of a choice's last token: it makes the next one, or ends.
  void advance(Running& job, Choice& choice, std::span<const float> logits);
  void finish(Running& job);
  void fail(Running& job, const ApiError& error);
  /// Runs `work` for a job; what it throws ends the job.
  template <typename Work>
  void guard(Running& job, Work&& work);
  void drop_ended();
  bool take_memory(std::size_t bytes, Lease& lease);
  /// Tokens of a prompt to be read at once.
  std::size_t chunk() const;
  std::size_t memory_for(const Job& job) const;
  bool shares(const Job& job) const;
  /// Whether what its cache costs is measured: that of a context.
  bool is_measured(const Job& job) const;
  /// Keeps what the job's sequence has read for requests that begin alike.
  void keep_beginning(Running& job, std::vector<Token> tokens, Cache cache, Lease lease);

  const Model& model_;
  const Tokenizer& tokenizer_;
  SchedulerOptions options_;
  Memory& memory_;
  Contexts& contexts_;
  Metrics& metrics_;
  Prefixes prefixes_;
  Engine engine_;
  std::size_t free_at_start_;

  // Between threads.
  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<std::string, std::deque<std::unique_ptr<Running>>> waiting_;
  std::size_t queued_ = 0;
  std::string last_client_;
  bool stopping_ = false;
  bool woken_ = false;

  // Of the scheduler's thread.
  std::list<std::unique_ptr<Running>> running_;
  ChunkPace pace_;
  std::vector<LookupHead> lookup_heads_;  ///< once a job cites
  std::unique_ptr<TokenTexts> texts_;     ///< once an answer is to be JSON
  Stopwatch since_step_;
  bool stepped_ = false;
  std::thread thread_;
};

}  // namespace ballast::serve
