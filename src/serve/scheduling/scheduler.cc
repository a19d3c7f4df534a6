#include "serve/scheduling/scheduler.h"

#include <algorithm>
#include <functional>
#include <new>
#include <utility>

#include "ballast/joined.h"
#include "ballast/matrix.h"
#include "ballast/scoring.h"
#include "cache/held_memory.h"
#include "serve/scheduling/choice.h"
#include "serve/scheduling/turns.h"
#include "serve/texts/prefix_files.h"

namespace ballast::serve {
namespace {

/// The mean of a sum over `tokens` states, brought to length 1.
std::vector<float> embedding_of(const std::vector<double>& sum, std::size_t tokens) {
  double square = 0;
  for (double x : sum) square += x * x;
  const auto count = static_cast<double>(tokens);
  const double length = std::sqrt(square) / count;
  std::vector<float> out;
  for (double x : sum) out.push_back(static_cast<float>(length > 0 ? x / count / length : 0));
  return out;
}

constexpr std::size_t kChunk = ChunkPace::kMost;
/// Seconds that a job has its slots before it pauses for one of another client that has fewer.
constexpr double kTurn = 1;
/// Of the log-probability of one token at one place of a prompt, as numbers and as JSON.
constexpr std::size_t kScoredBytes = 256;

ApiError to_api(const Error& error) {
  const bool memory = error.code() == ErrorCode::out_of_memory;
  const bool limit = error.code() == ErrorCode::over_limit;
  return {memory ? 503 : 400,
          memory  ? "insufficient_memory"
          : limit ? "context_length_exceeded"
                  : "invalid_value",
          error.what()};
}

bool reads_again(const CacheOptions& cache) { return cache.policy.needs().reads_again(); }
bool reads_chunks_again(const CacheOptions& cache) {
  return reads_again(cache) && cache.protocol == Protocol::stream;
}

/// Whether how much is kept depends on the length of the prompt.
bool counts_prompt(const Policy& policy) {
  return policy.has("rate") || (policy.has("bytes") && policy.memory("bytes").needs_length());
}

/// Of caches that are equal for equal tokens. Chats are read again with other words.
std::string kind_of(const Job& job) {
  return describe_cache(job.cache) + (reads_again(job.cache) && job.chat ? ", chat" : "") +
         (is_guarded(job.cache) ? ", auto" : "") + (job.owner.empty() ? "" : ", of " + job.owner) +
         (job.salt.empty() ? "" : ", salt " + job.salt);
}

}  // namespace

struct Scheduler::Running {
  Job job;
  std::shared_ptr<Ticket> ticket = std::make_shared<Ticket>();
  Lease lease;
  std::unique_ptr<Sequence> sequence;
  RowLedger::Hold rows;    ///< that it has of a beginning, which others pay for
  std::size_t before = 0;  ///< tokens of the context
  std::size_t read = 0;    ///< tokens of the prompt in the sequence
  std::size_t cached = 0;
  std::vector<float> logits;      ///< of the last token read, where needed
  std::vector<float> compressed;  ///< Prefix::logits of what the sequence has read
  std::vector<GeneratedToken> scored;
  std::optional<Lookup> lookup;  ///< of the last token of the prompt, where the job cites
  std::vector<double> states;    ///< their sum
  std::vector<std::unique_ptr<Choice>> streams;
  std::unique_ptr<Engine> reader;  ///< of replay passes; kept in stream, which has many
  double compress_seconds = 0, read_seconds = 0;
  double told = 0;                      ///< Reading::done
  std::vector<Compaction> compactions;  ///< that its client has not been told of
  std::optional<GaugeReading> gauge;    ///< PromptRead::gauge
  Stopwatch since_request, since_admitted;
  bool ended = false;
  bool paused = false;              ///< it has no slot
  Stopwatch turn;                   ///< since it had one
  const Sequence* again = nullptr;  ///< that `turns` work on
  std::unique_ptr<Turns> turns;     ///< of a replay pass; last, as it uses the rest

  /// Notes how likely a token of the prompt is, from the logits before it.
  void score(std::size_t place, std::span<const float> logits) {
    if (place >= job.prompt.size()) return;
    const Token token = job.prompt[place];
    GeneratedToken& one = scored.emplace_back();
    one.chosen = {token, static_cast<float>(-token_loss(logits, token))};
    if (job.generate.alternatives > 0) one.likeliest = likeliest(logits, job.generate.alternatives);
  }
  /// Says how far it is; `second`: of a replay pass, else of the first.
  void tell(std::size_t done, std::size_t total, bool second) {
    const bool two = second || scoring_of(sequence->cache()).needs_replay();
    const double part =
        static_cast<double>(done) / static_cast<double>(std::max<std::size_t>(1, total));
    const double all = two ? (part + (second ? 1 : 0)) / 2 : part;
    if (job.choices > 0 || job.embed || all < told + 0.01) return;
    told = all;
    ticket->push(Reading{all});
  }
  bool exact() const { return stays_exact(job.cache); }
  bool active() const { return !ended && !paused; }
  bool reading() const { return active() && (streams.empty() || turns); }
  /// Whether every chunk of the text is read again.
  bool streams_again() const {
    return reads_chunks_again(job.context ? job.context->cache.options() : job.cache);
  }
  std::size_t places() const { return std::max<std::size_t>(1, job.choices); }
};

Scheduler::Scheduler(const Model& model, const Tokenizer& tokenizer,
                     const SchedulerOptions& options, Memory& memory, Contexts& contexts,
                     Metrics& metrics)
    : model_(model),
      tokenizer_(tokenizer),
      options_(options),
      memory_(memory),
      contexts_(contexts),
      metrics_(metrics),
      prefixes_(memory, metrics,
                options.prefix_dir.empty()
                    ? nullptr
                    : std::make_unique<PrefixFiles>(model, options.prefix_dir, options.prefix_files,
                                                    options.pack),
                PrefixPacker(model, options.pack)),
      engine_(model),
      free_at_start_(memory.left()),
      thread_([this] { loop(); }) {}

Scheduler::~Scheduler() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = woken_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::size_t Scheduler::own_memory(const Model& model, std::size_t slots) {
  const std::size_t positions = model.config().max_positions;
  const MemoryEstimate estimate = model.estimate(CacheOptions{}, positions, 0, kChunk);
  return estimate.weights + estimate.scratch + slots * model.config().vocabulary * sizeof(float);
}

std::size_t Scheduler::memory_for(const Job& job) const {
  const std::size_t most = job.choices == 0 ? 0 : job.generate.max_tokens;
  const std::size_t scored =
      job.score_prompt ? job.prompt.size() * (1 + job.generate.alternatives) * kScoredBytes : 0;
  if (job.context) {
    const Cache& cache = job.context->cache;
    const CacheOptions& options = cache.options();
    // The documents of a joined one are there.
    const std::size_t context = joined_tokens(cache) > 0 ? 0 : job.context->info.tokens;
    const MemoryEstimate estimate =
        model_.estimate(options, context, job.prompt.size() + most, kChunk);
    return scored + std::max<std::size_t>(1, job.choices) * estimate.kept +
           (reads_chunks_again(options) ? estimate.scratch : 0);
  }
  const std::size_t later = job.prompt.size() - job.compress_at;
  const MemoryEstimate estimate = model_.estimate(job.cache, job.compress_at, later + most, kChunk);
  const bool guarded = is_guarded(job.cache);  // then there is a copy while sizes are tried
  return scored + (guarded ? 2 : 1) * estimate.cache +
         (job.choices > 1 ? (job.choices - 1) * estimate.kept : 0) +
         (reads_again(job.cache) || is_measured(job) || guarded ? estimate.scratch : 0);
}

std::shared_ptr<Ticket> Scheduler::submit(Job job) {
  const std::size_t positions = model_.config().max_positions;
  const std::size_t all = job.prompt.size() + (job.context ? job.context->info.tokens : 0);
  const bool endless = is_endless(job.context ? job.context->cache.options() : job.cache);
  if (!endless && all > positions) {
    throw ApiError(
        400, "context_length_exceeded",
        fmt::format("this model's maximum context length is {} tokens, the request has {}; shorten "
                    "it, or set cache to a method with a budget, protocol stream and positions "
                    "rolling",
                    positions, all),
        "messages");
  }
  if (!endless && job.choices > 0) {
    const std::size_t room = std::max<std::size_t>(1, positions - all);
    job.generate.max_tokens = std::min(room, job.generate.max_tokens);
  }
  // The room that a sequence is given at once. In a stream a share counts the prompt; a size is
  // the same in all turns of a conversation, as is its first turn.
  job.cache.expected_tokens =
      job.cache.protocol != Protocol::stream
          ? job.prompt.size() + (job.choices == 0 ? 0 : job.generate.max_tokens)
      : counts_prompt(job.cache.policy) ? job.prompt.size()
                                        : job.compress_at;
  std::size_t need = 0;
  try {
    need = memory_for(job);
  } catch (const Error& error) {
    throw to_api(error);
  }
  if (need > free_at_start_) {
    throw ApiError(400, "insufficient_memory",
                   fmt::format("this request needs {} bytes of memory, --memory leaves {}; give "
                               "fewer max_tokens or a smaller cache",
                               need, free_at_start_),
                   "cache");
  }
  auto running = std::make_unique<Running>();
  running->job = std::move(job);
  std::shared_ptr<Ticket> ticket = running->ticket;
  enqueue(std::move(running));
  wake_.notify_all();
  return ticket;
}

void Scheduler::enqueue(std::unique_ptr<Running> job) {
  const std::scoped_lock lock(mutex_);
  std::deque<std::unique_ptr<Running>>& own = waiting_[job->job.client];
  if (queued_ >= options_.queue) {
    const ApiError full(429, "rate_limit_exceeded",
                        fmt::format("{} requests wait already; try again later", queued_));
    // The client that has most of them gives up its last for one that has fewer.
    const auto most =
        std::ranges::max_element(waiting_, {}, [](const auto& one) { return one.second.size(); });
    if (most->second.size() <= own.size() + 1) throw ApiError(full);
    fail(*most->second.back(), full);
    most->second.pop_back();
    --queued_;
  }
  own.push_back(std::move(job));
  metrics_.queued = ++queued_;
  woken_ = true;
}

template <typename Work>
void Scheduler::guard(Running& job, Work&& work) {
  try {
    work();
  } catch (const ApiError& error) {
    fail(job, error);
  } catch (const Error& error) {
    fail(job, to_api(error));
  } catch (const std::bad_alloc&) {
    fail(job, ApiError(503, "insufficient_memory", "out of memory; try again later"));
  } catch (const std::exception& error) {
    fail(job, ApiError(500, "internal_error", error.what()));
  }
}

void Scheduler::loop() {
  while (true) {
    bool busy = admit();
    busy |= read_some();
    busy |= decode();
    drop_ended();
    while (memory_.wanted() > 0 && (prefixes_.evict() || contexts_.evict(false))) {
    }
    std::unique_lock lock(mutex_);
    if (!busy) {
      stepped_ = false;
      // A client may leave while its prompt is being summarized.
      wake_.wait_for(lock, std::chrono::milliseconds(200), [&] { return woken_; });
    }
    woken_ = false;
    if (stopping_) break;
  }
  for (auto& job : running_) fail(*job, ApiError(503, "shutting_down", "the server is stopping"));
  running_.clear();
  const std::scoped_lock lock(mutex_);
  for (auto& [client, jobs] : waiting_) {
    for (auto& job : jobs) fail(*job, ApiError(503, "shutting_down", "the server is stopping"));
  }
  waiting_.clear();
}

bool Scheduler::take_memory(std::size_t bytes, Lease& lease) {
  while (!memory_.take(bytes, lease)) {
    if (!prefixes_.evict() && !contexts_.evict(running_.empty())) return false;
  }
  return true;
}

std::map<std::string, std::size_t> Scheduler::slots_taken() const {
  std::map<std::string, std::size_t> out;
  for (const auto& job : running_) {
    if (job->active()) out[job->job.client] += job->places();
  }
  return out;
}

std::optional<std::vector<Scheduler::Running*>> Scheduler::pauses_for(const std::string& client,
                                                                      std::size_t places) {
  const auto taken = slots_taken();
  const auto count = [&](const std::string& whose) {
    const auto at = taken.find(whose);
    return at == taken.end() ? 0 : at->second;
  };
  std::size_t used = 0;
  for (const auto& [whose, slots] : taken) used += slots;
  std::vector<Running*> others;
  for (const auto& job : running_) {
    if (job->active() && count(job->job.client) > count(client) && job->turn.seconds() >= kTurn) {
      others.push_back(job.get());
    }
  }
  std::ranges::stable_sort(others, std::greater(), [&](const Running* job) {
    return std::pair(count(job->job.client), job->turn.seconds());
  });
  std::size_t pauses = 0;
  while (used > 0 && used + places > options_.slots) {
    if (pauses == others.size()) return std::nullopt;
    used -= others[pauses++]->places();
  }
  others.resize(pauses);
  return others;
}

void Scheduler::forget_cancelled() {
  for (auto client = waiting_.begin(); client != waiting_.end();) {
    queued_ -= std::erase_if(client->second, [&](const auto& job) {
      if (!job->ticket->cancelled()) return false;
      ++metrics_.cancelled;
      return true;
    });
    client = client->second.empty() ? waiting_.erase(client) : std::next(client);
  }
}

Scheduler::Running* Scheduler::next_of(const std::map<std::string, std::size_t>& taken,
                                       bool waiting) const {
  // The first job of each client that has no slot: of those that pause, then of those that wait.
  std::map<std::string, Running*> first;
  for (const auto& job : running_) {
    if (job->ended || !job->paused || job->ticket->held()) continue;
    first.emplace(job->job.client, job.get());
  }
  for (const auto& [client, jobs] : waiting_) {
    if (waiting) first.emplace(client, jobs.front().get());
  }
  const auto next = std::ranges::min_element(first, {}, [&](const auto& one) {
    const auto has = taken.find(one.first);
    return std::pair(has == taken.end() ? 0 : has->second, one.first <= last_client_);
  });
  return next == first.end() ? nullptr : next->second;
}

bool Scheduler::admit() {
  bool any = false, no_memory = false;
  while (true) {
    for (auto& job : running_) {
      if (job->ticket->held()) job->paused = true;
      if (job->ended || !job->paused || !job->ticket->cancelled()) continue;
      job->ended = true;
      ++metrics_.cancelled;
    }
    const auto taken = slots_taken();
    std::size_t used = 0;
    for (const auto& [client, slots] : taken) used += slots;
    std::unique_lock lock(mutex_);
    forget_cancelled();
    metrics_.queued = queued_;
    metrics_.streams = used;
    // Where one waits for memory, no other that waits overtakes it.
    Running* const next = next_of(taken, !no_memory);
    if (next == nullptr) return any;
    const std::string client = next->job.client;
    const auto pauses = pauses_for(client, next->places());
    if (!pauses) return any;
    if (next->paused) {
      next->paused = false;
      next->turn = Stopwatch();
    } else {
      std::unique_ptr<Running> job = std::move(waiting_[client].front());
      waiting_[client].pop_front();
      lock.unlock();
      const bool started = start(job);
      lock.lock();
      if (!started) {
        waiting_[client].push_front(std::move(job));
        no_memory = true;
        continue;
      }
      if (waiting_[client].empty()) waiting_.erase(client);
      metrics_.queued = --queued_;
      job->turn = Stopwatch();
      running_.push_back(std::move(job));
    }
    for (Running* other : *pauses) other->paused = true;
    last_client_ = client;
    any = true;
  }
}

bool Scheduler::is_measured(const Job& job) const {
  return job.choices == 0 && !job.embed && Gauge::why_not(model_, job.cache).empty();
}

bool Scheduler::shares(const Job& job) const {
  // Long texts turn otherwise in some models, so that no beginning is common.
  return !job.context && job.choices > 0 && model_.config().rope.long_divisors.empty() &&
         (job.cache.protocol == Protocol::stream ? !counts_prompt(job.cache.policy)
                                                 : job.cache.positions == Positions::absolute);
}

bool Scheduler::start(std::unique_ptr<Running>& running) {
  Running& r = *running;
  // A beginning that is in memory is there already; one that is not comes back once there is room.
  const auto find = [&](bool loads) {
    return shares(r.job) && !r.job.score_prompt
               ? prefixes_.find(kind_of(r.job), r.job.prompt, r.exact() ? 0 : r.job.compress_at,
                                loads)
               : std::nullopt;
  };
  auto found = find(false);
  const std::size_t need = memory_for(r.job), shared = found ? found->paid : 0;
  if (!take_memory(need - std::min(need, shared), r.lease)) {
    if (!running_.empty()) return false;
    // Nothing that runs will give memory back: contexts have it.
    fail(r, ApiError(503, "insufficient_memory",
                     fmt::format("{} bytes are needed, {} are free: contexts have the rest; delete "
                                 "some, or try again later",
                                 need - std::min(need, shared), memory_.left())));
    return true;
  }
  r.since_admitted = Stopwatch();
  guard(r, [&] {
    if (r.job.context) {
      r.sequence =
          std::make_unique<Sequence>(model_, r.job.context->cache.clone(), r.job.context->text);
      r.before = r.cached = r.job.context->info.tokens;
      // The context pays for its rows.
      const std::size_t common = shared_memory(r.job.context->cache, r.sequence->cache());
      r.lease.shrink(r.lease.bytes() - std::min(r.lease.bytes(), r.job.choices * common));
      if (r.job.cite) {
        if (lookup_heads_.empty()) lookup_heads_ = find_lookup_heads(engine_);
        r.lookup.emplace(lookup_heads_, r.before);
      }
    } else {
      if (!found && (found = find(true))) {
        r.lease.shrink(need - std::min(need, found->paid));
      }
      if (found) {
        r.rows = std::move(found->rows);
        r.read = r.cached = found->tokens;
        const auto begin = r.job.prompt.begin();
        r.sequence = std::make_unique<Sequence>(
            model_, std::move(found->cache),
            std::vector<Token>(begin, begin + static_cast<std::ptrdiff_t>(r.read)));
        r.compressed = std::move(found->logits);
        r.gauge = found->gauge;
        if (r.read == r.job.prompt.size()) r.logits = r.compressed;
      }
    }
    if (!r.sequence) {
      r.sequence = std::make_unique<Sequence>(model_, r.job.cache);
    } else {
      r.sequence->cache().reserve(r.before + r.job.prompt.size() + r.job.generate.max_tokens);
    }
    metrics_.cached_tokens += r.cached;
    if (r.read == r.job.prompt.size()) prompt_read(r);
  });
  return true;
}

std::size_t Scheduler::chunk() const {
  return pace_.next(std::ranges::any_of(
      running_, [](const auto& job) { return job->active() && !job->streams.empty(); }));
}

bool Scheduler::read_some() {
  for (auto at = running_.begin(); at != running_.end(); ++at) {
    Running& job = **at;
    if (!job.reading()) continue;
    if (job.ticket->cancelled()) {
      job.ended = true;
      ++metrics_.cancelled;
      continue;
    }
    bool worked = true;
    guard(job, [&] {
      if (!job.turns) return read_chunk(job);
      if (!job.turns->over()) {
        const Stopwatch watch;
        job.turns->run();
        worked = watch.seconds() > 1e-4;  // else it runs beside
        if (!job.turns->over()) return;
      }
      job.turns.reset();
      job.again = nullptr;
      if (!job.streams_again()) job.reader.reset();
      worked = true;
      if (job.streams.empty() && job.read == job.job.prompt.size()) prompt_read(job);
    });
    if (!worked) continue;
    // The next turn is another's.
    running_.splice(running_.end(), running_, at);
    return true;
  }
  return false;
}

void Scheduler::read_chunk(Running& r) {
  if (scoring_of(r.sequence->cache()).chunk_room() == 0) return begin_replay(r, *r.sequence, false);
  const std::vector<Token>& prompt = r.job.prompt;
  const bool later = r.sequence->prompt_finished();
  const std::size_t end = later ? prompt.size() : r.job.compress_at;
  PrefillOptions options;
  options.finish_prompt = false;
  options.chunk = chunk();
  std::size_t count = 0;
  options.progress = [&](std::size_t done, std::size_t total) {
    count = done;
    return done == total;  // one chunk, and logits after the last
  };
  if (r.job.score_prompt) {
    options.all_logits = [&](std::size_t first, ConstMatrix logits) {
      for (std::size_t i = 0; i < logits.rows; ++i) r.score(r.read + first + i + 1, logits[i]);
    };
  }
  if (r.lookup) {
    options.on_attention = [&](const AttentionStep& step) {
      const std::size_t rows = step.queries.rows;
      if (r.read + step.first + rows < prompt.size()) return;
      r.lookup->add(r.sequence->cache(), step, rows - 1);
    };
  }
  if (r.job.embed) {
    options.all_states = [&](std::size_t, ConstMatrix states) {
      r.states.resize(states.cols);
      for (std::size_t i = 0; i < states.rows; ++i) {
        for (std::size_t k = 0; k < states.cols; ++k) r.states[k] += double{states[i][k]};
      }
    };
  }
  const Stopwatch watch;
  std::vector<float> logits =
      engine_.prefill(*r.sequence, std::span(prompt).subspan(r.read, end - r.read), options);
  const double seconds = watch.seconds();
  r.read += count;
  r.read_seconds += seconds;
  metrics_.prompt_tokens += count;
  pace_.took(count, seconds);
  r.tell(r.read, prompt.size(), false);
  if (r.read < end) return;
  r.logits = std::move(logits);
  if (!later) {
    if (!r.exact()) r.compressed = r.logits;
    begin_compressing(r);
  } else {
    prompt_read(r);
  }
}

void Scheduler::begin_compressing(Running& r) {
  if (r.exact()) {
    r.sequence->finish_prompt();
    if (r.read == r.job.prompt.size()) prompt_read(r);
    return;
  }
  begin_replay(r, *r.sequence, true);
}

void Scheduler::begin_replay(Running& r, Sequence& sequence, bool ends) {
  r.again = &sequence;
  r.turns = std::make_unique<Turns>(
      [this, &r, &sequence, ends, wording = replay_wording(tokenizer_, r.job.chat)](Turns& turns) {
        const Stopwatch watch;
        TurnPace pace([&] { return watch.seconds(); }, options_.patience);
        const auto yield = [&](std::size_t done, std::size_t total) {
          if (ends) r.tell(done, total, true);
          if (done == total) {
            turns.leave();  // the budget is divided beside the others
          } else if (pace.over()) {
            ++metrics_.replay_pauses;
            turns.pause();
            pace.begin();
          }
          return !turns.cancelled();
        };
        std::optional<Gauge> gauge;
        if (ends && is_measured(r.job)) {
          if (!r.reader) r.reader = std::make_unique<Engine>(model_);
          gauge.emplace(wording).read_exact(*r.reader, sequence);
        }
        if (!ends || scoring_of(sequence.cache()).needs_replay()) {
          const std::size_t bytes = sequence.cache().bytes().used();
          if (!r.reader) r.reader = std::make_unique<Engine>(model_);
          if (!r.reader->replay(sequence, {wording, yield})) return;
          if (r.job.compacts) {
            r.compactions.push_back(
                {sequence.tokens(), bytes, sequence.cache().bytes().used(), watch.seconds()});
          }
        }
        turns.leave();
        if (ends && is_guarded(sequence.cache().options())) {
          if (!r.reader) r.reader = std::make_unique<Engine>(model_);
          Guarded tried;
          if (!Guard(model_).finish(*r.reader, sequence, {wording}, tried)) return;
          if (!tried.exact) r.gauge = tried.tried.back().gauge;
        } else if (ends) {
          sequence.finish_prompt();
        }
        if (gauge) r.gauge = gauge->read(*r.reader, sequence);
        r.compress_seconds += watch.seconds() - (r.gauge ? r.gauge->seconds : 0);
      },
      [this] {
        {
          const std::scoped_lock lock(mutex_);
          woken_ = true;
        }
        wake_.notify_all();
      });
}

void Scheduler::prompt_read(Running& r) {
  Cache& cache = r.sequence->cache();
  r.ticket->push(PromptRead{r.before + r.job.prompt.size(), r.cached, cache.bytes().used(),
                            r.read_seconds, r.compress_seconds, std::exchange(r.compactions, {}),
                            std::move(r.scored), r.since_request.seconds(), r.gauge});
  if (r.job.embed) {
    r.ticket->push(Embedded{embedding_of(r.states, r.job.prompt.size())});
    r.ended = true;
    return;
  }
  if (r.job.choices == 0) {
    drop_room(cache);
    r.lease.shrink(cache.bytes().total());
    r.ticket->push(ContextRead{std::make_unique<Cache>(std::move(cache)), std::move(r.lease)});
    r.ended = true;
    return;
  }
  if (r.job.generate.max_tokens == 0) {
    for (std::size_t i = 0; i < r.job.choices; ++i)
      r.ticket->push(Piece{i, "", {}, Finish::length});
    r.ticket->push(Ended{cache.bytes().used(), r.since_request.seconds(), {}});
    r.ended = true;
    return;
  }
  // An answer cannot be taken back from a stream: the next turn goes on from here.
  if (shares(r.job) && r.job.cache.protocol == Protocol::stream && !r.job.score_prompt) {
    r.compressed = r.logits;
    keep_beginning(r, r.job.prompt, cache.clone(), Lease());
  }
  cache.reserve(r.before + r.job.prompt.size() + r.job.generate.max_tokens);
  const std::size_t positions = model_.config().max_positions;
  for (std::size_t i = 0; i < r.job.choices; ++i) {
    std::unique_ptr<Sequence> copy;  // of all choices but the first
    if (i > 0) {
      copy = std::make_unique<Sequence>(r.sequence->clone());
      copy->cache().reserve(r.before + r.job.prompt.size() + r.job.generate.max_tokens);
    }
    r.streams.push_back(
        std::make_unique<Choice>(tokenizer_, r.job, i, positions, *r.sequence, std::move(copy)));
    r.streams.back()->lookup = r.lookup;
  }
  metrics_.first_token.add(r.since_request.seconds());
  const std::vector<float> logits = std::move(r.logits);
  for (auto& stream : r.streams) advance(r, *stream, logits);
  finish(r);
}

void Scheduler::advance(Running& r, Choice& choice, std::span<const float> logits) {
  if (r.job.grammar && !texts_) texts_ = std::make_unique<TokenTexts>(tokenizer_);
  Piece piece = choice.advance(logits, texts_.get());
  piece.unsure = piece.finish && choice.least_probability() < model_.config().unsure_below;
  if (piece.finish && choice.lookup) piece.attention = choice.lookup->attention();
  metrics_.generated_tokens += piece.tokens.size();
  r.ticket->push(std::move(piece));
}

bool Scheduler::decode() {
  std::vector<Running*> jobs;
  std::vector<Choice*> streams;
  bool began = false;
  for (auto& job : running_) {
    if (!job->active() || job->streams.empty()) continue;
    if (job->ticket->cancelled()) {
      job->ended = true;
      ++metrics_.cancelled;
      continue;
    }
    for (auto& stream : job->streams) {
      Sequence& sequence = stream->sequence();
      if (stream->ended() || &sequence == job->again) continue;
      if (scoring_of(sequence.cache()).chunk_room() == 0) {
        // One after the other: choices share the engine that reads again.
        if (job->turns) continue;
        guard(*job, [&] { begin_replay(*job, sequence, false); });
        began = true;
        if (job->ended) break;
        continue;
      }
      jobs.push_back(job.get());
      streams.push_back(stream.get());
    }
  }
  if (streams.empty()) {
    stepped_ = false;
    return began;
  }
  Matrix rows;
  ConstMatrix logits;
  try {
    logits = read_next(streams, rows);
  } catch (...) {
    // A step that was broken off has reached some layers and not others: no sequence can go on.
    const std::exception_ptr error = std::current_exception();
    for (Running* job : jobs) guard(*job, [&] { std::rethrow_exception(error); });
    return true;
  }
  ++metrics_.steps;
  if (stepped_) metrics_.token.add(since_step_.seconds());
  since_step_ = Stopwatch();
  stepped_ = true;
  for (std::size_t i = 0; i < streams.size(); ++i) {
    if (jobs[i]->ended) continue;
    guard(*jobs[i], [&] {
      advance(*jobs[i], *streams[i], logits[i]);
      finish(*jobs[i]);
    });
  }
  return true;
}

ConstMatrix Scheduler::read_next(std::span<Choice* const> streams, Matrix& rows) {
  const bool cites =
      std::ranges::any_of(streams, [](Choice* choice) { return choice->lookup.has_value(); });
  if (streams.size() == 1 && !cites) {
    const std::span<const float> row = streams[0]->read(engine_);
    return {row.data(), 1, row.size()};
  }
  std::vector<Sequence*> sequences;
  std::vector<Token> tokens;
  for (Choice* choice : streams) {
    choice->forget_drafts();
    sequences.push_back(&choice->sequence());
    tokens.push_back(choice->next());
  }
  OnAttention watch;
  if (cites) {
    watch = [&](const AttentionStep& step) {
      for (std::size_t i = 0; i < streams.size(); ++i) {
        if (streams[i]->lookup) streams[i]->lookup->add(sequences[i]->cache(), step, i);
      }
    };
  }
  rows = Matrix(streams.size(), engine_.vocabulary());
  engine_.decode(sequences, tokens, rows.view(), watch);
  return std::as_const(rows).view();
}

void Scheduler::finish(Running& r) {
  for (const auto& stream : r.streams) {
    if (!stream->ended()) return;
  }
  Ended end{r.sequence->cache().bytes().used(), r.since_request.seconds(),
            std::move(r.compactions)};
  // Who has named a session may ask for it next; others need not wait until rows are put away.
  const bool waits = !r.job.session.empty();
  const auto answer = [&] { r.ticket->push(std::move(end)); };
  if (!waits) answer();
  r.ended = true;
  try {
    if (shares(r.job) && r.job.cache.protocol != Protocol::stream) {
      r.streams[0]->forget_drafts();
      std::vector<Token> tokens = r.streams[0]->tokens();
      tokens.resize(r.sequence->tokens());
      keep_beginning(r, std::move(tokens), std::move(r.sequence->cache()), std::move(r.lease));
      r.rows = {};
    }
  } catch (...) {
    if (waits) answer();
    throw;
  }
  if (waits) answer();
}

void Scheduler::keep_beginning(Running& r, std::vector<Token> tokens, Cache cache, Lease lease) {
  std::string kind = kind_of(r.job);
  const std::string& session = r.job.session;
  if (!session.empty() && !options_.sessions->went_on(session, kind, tokens)) return;
  Prefix prefix{std::move(kind),
                std::move(tokens),
                r.exact() ? 0 : r.job.compress_at,
                r.job.cache.protocol == Protocol::stream,
                r.compressed,
                std::move(cache),
                std::move(lease),
                ""};
  prefix.gauge = r.gauge;
  prefixes_.keep(std::move(prefix), r.job.keep, session);
}

void Scheduler::fail(Running& r, const ApiError& error) {
  if (r.ended) return;
  r.ticket->push(error);
  r.ended = true;
}

void Scheduler::drop_ended() {
  std::erase_if(running_, [](const auto& job) {
    if (!job->ended || !job->turns) return job->ended;
    // Its thread ends by itself, and no stream waits for it.
    job->turns->cancel();
    job->turns->run();
    try {
      return job->turns->over();
    } catch (const std::exception&) {
      return true;
    }
  });
}

}  // namespace ballast::serve
