// ballast chat: a conversation. The cache keeps earlier turns; each turn reads only its new tokens.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/fail.h"
#include "base/partial_files.h"
#include "base/peak_memory.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/run_report.h"
#include "eval/single_layer/mean_entries.h"
#include "report/units.h"
#include "text/question_form.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  std::string system;
  CacheFlags cache;
  GenerateFlags generate;
  bool stats = false;
  bool quiet = false;
};

/// During its life the first Ctrl-C cancels the work. A second one, or one at another time, ends
/// the program.
class Interruptible {
 public:
  Interruptible() {
    asked = false;
    ::sigaction(SIGINT, nullptr, &before_);
    if (before_.sa_handler == SIG_IGN) return;  // the parent process ignores it
    struct sigaction action = {};
    action.sa_handler = [](int signal) {
      if (!asked.exchange(true)) return;
      ::sigaction(signal, &before_, nullptr);
      ::raise(signal);
    };
    action.sa_flags = SA_RESTART;
    ::sigaction(SIGINT, &action, nullptr);
  }
  ~Interruptible() { ::sigaction(SIGINT, &before_, nullptr); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  static inline std::atomic<bool> asked = false;
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler uses it");

 private:
  static inline struct sigaction before_ = {};
};

/// One line of standard input without its end; none at the end of the input.
std::optional<std::string> read_line() {
  char* text = nullptr;
  std::size_t room = 0;
  errno = 0;
  const ssize_t size = ::getline(&text, &room, stdin);
  const std::unique_ptr<char, void (*)(void*)> owner(text, std::free);
  if (size < 0) {
    require(std::ferror(stdin) == 0, "cannot read standard input: {}", std::strerror(errno));
    return std::nullopt;
  }
  std::string line(text, static_cast<std::size_t>(size));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  return line;
}

class Chat {
 public:
  explicit Chat(const Options& o)
      : o_(o),
        cache_options_(o.cache.parse()),
        generate_(o.generate.parse(o.cache.seed)),
        m_(o.model),
        conversation_(m_.tokenizer, o.system),
        typed_(::isatty(STDIN_FILENO) == 1) {
    require(cache_options_.protocol == Protocol::prefill || !cache_options_.policy.has("rate"),
            "a conversation in --protocol stream has no known length: give the method a budget in "
            "place of a rate");
    const Policy& policy = cache_options_.policy;
    if (policy.has("bytes")) {
      require(policy.memory("bytes").unit == MemorySize::Unit::bytes,
              "a conversation has no known length that {} could be of: give bytes, such as "
              "--cache 256M",
              o.cache.cache.empty() ? policy.to_string() : "--cache " + o.cache.cache);
      // Exact until the bytes are passed, and bounded from then on.
      if (!o.cache.protocol_given && !policy.info().whole_cache) {
        cache_options_.protocol = Protocol::stream;
      }
    }
    require_memory(m_.model.estimate(cache_options_, 1), available_memory(), "the model");
    sequence_.emplace(m_.model, cache_options_);
    m_.engine.set_replay_wording(replay_wording_of(m_, true));
  }

  void run() {
    if (typed_ && !o_.quiet) {
      print("Ctrl-C stops an answer; /exit, Ctrl-D or Ctrl-C here ends the conversation.\n");
    }
    while (true) {
      if (typed_) print("> ");
      flush_output();
      const std::optional<std::string> line = read_line();
      if (!line) break;
      if (*line == "/exit") return;
      if (!line->empty()) turn(*line);
    }
    if (typed_) print("\n");
  }

 private:
  void turn(const std::string& line) {
    const bool first = sequence_->tokens() == 0 && unread_.empty();
    const std::string text = conversation_.say(line);
    const std::vector<Token> said =
        first ? m_.tokenizer.encode(text, {.add_special = false, .parse_special = true})
              : encode_more(m_.tokenizer, text, true);
    unread_.insert(unread_.end(), said.begin(), said.end());
    const std::size_t positions = m_.model.config().max_positions;
    const std::size_t used = sequence_->positions_after(unread_.size());
    require(used <= positions,
            "{}: the conversation has {} tokens, but the model has {} positions; a method with a "
            "budget, --protocol stream and --positions rolling go on without end",
            o_.model, used, positions);
    const Interruptible interruptible;
    const std::vector<float> logits = read();
    conversation_.answered(logits.empty() ? "" : answer(logits));
  }

  /// Reads the unread tokens and returns the last logits. Empty if interrupted; the next turn then
  /// reads the rest.
  std::vector<float> read() {
    const Stopwatch watch;
    const std::size_t before = sequence_->tokens();
    const std::vector<float> logits = read_tokens(m_.engine, *sequence_, unread_, o_.quiet,
                                                  prompt_.seconds, &Interruptible::asked);
    const std::size_t count = sequence_->tokens() - before;
    history_.insert(history_.end(), unread_.begin(), unread_.begin() + static_cast<long>(count));
    unread_.erase(unread_.begin(), unread_.begin() + static_cast<long>(count));
    prompt_.tokens += count;
    // The first turn is the prompt, or all turns that fit into bytes=; later ones are read like
    // generated tokens.
    if (unread_.empty() && !sequence_->prompt_finished() && !fits()) {
      if (!finish_prompt(m_, *sequence_, true, o_.quiet, &Interruptible::asked)) {
        print("\n");
        return {};
      }
    }
    if (logits.empty()) print("\n");
    return logits;
  }

  /// Whether the conversation is exact within the bytes given.
  bool fits() const {
    const Policy& policy = cache_options_.policy;
    return policy.has("bytes") &&
           static_cast<double>(sequence_->cache().bytes().used()) <= policy.memory("bytes").amount;
  }

  std::string answer(const std::vector<float>& logits) {
    const Stopwatch watch;
    const Generated made = generate(m_.engine, *sequence_, m_.tokenizer, logits, history_,
                                    generate_, [](std::string_view text) {
                                      print(text);
                                      flush_output();
                                      return !Interruptible::asked;
                                    });
    print("\n");
    for (const GeneratedToken& token : made.tokens) history_.push_back(token.chosen.token);
    if (made.last_unread) unread_.push_back(made.tokens.back().chosen.token);
    if (o_.stats) report(made.tokens.size(), watch.seconds());
    return made.text;
  }

  void report(std::size_t made, double seconds) const {
    const CacheReport cache{sequence_->tokens(), mean_entries(sequence_->cache()),
                            sequence_->cache().bytes(), m_.model.exact_bytes(sequence_->cache())};
    flush_output();
    fmt::print(stderr,
               "[read {} tokens at {}/s, made {} at {}/s; the cache holds {} tokens in {}, "
               "{:.2f}× smaller than exact; peak memory {}]\n",
               format_count(prompt_.tokens), format_number(prompt_.rate()), format_count(made),
               format_number(Work{made, seconds}.rate()), format_count(cache.tokens),
               format_bytes(static_cast<double>(cache.bytes.total())), cache.ratio(),
               format_bytes(static_cast<double>(peak_memory())));
  }

  const Options& o_;
  CacheOptions cache_options_;
  GenerateOptions generate_;
  LoadedModel m_;
  Conversation conversation_;
  bool typed_;
  std::optional<Sequence> sequence_;
  std::vector<Token> unread_;  ///< tokens of the conversation that are not in the cache yet
  std::vector<Token> history_;
  Work prompt_;
};

}  // namespace

void add_chat(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand("chat", "Talk with a model");
  add_model_option(*app, o.model);
  app->add_option("--system", o.system, "What the model is told first")->type_name("TEXT");
  o.cache.add_to(*app);
  o.cache.add_memory_to(*app);
  o.generate.add_to(*app);
  app->add_flag("--stats", o.stats, "Report speed, cache and memory after each answer");
  app->add_flag("-q,--quiet", o.quiet, "Show no progress and no introduction");
  app->footer("Example:\n  ballast chat -m model.gguf --system 'Answer in one sentence.'");
  app->callback([options, &task] { task = [options] { Chat(*options).run(); }; });
}

}  // namespace ballast::cli
