// ballast chat: a conversation. The cache keeps earlier turns; each turn reads only its new tokens.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/fail.h"
#include "base/nearest.h"
#include "base/os/memory.h"
#include "base/os/process.h"
#include "base/partial_files.h"
#include "base/read_file.h"
#include "cli/answering.h"
#include "cli/command.h"
#include "cli/documents.h"
#include "cli/library_asking.h"
#include "cli/line_editor.h"
#include "cli/model_options.h"
#include "cli/overwriting.h"
#include "cli/pictures.h"
#include "cli/run_report.h"
#include "formats/json_text.h"
#include "methods/replay.h"
#include "report/units.h"

namespace ballast::cli {
namespace {

struct Options {
  std::string model;
  std::string system;
  std::string tools;
  std::vector<std::string> context;
  std::string mmproj;
  std::string load_cache;
  std::string library;
  std::string pack = "off";
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
    handler_.emplace(SIGINT, [](int) {
      if (asked.exchange(true)) handler_->pass_on();
    });
  }
  ~Interruptible() { handler_.reset(); }
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

  static inline std::atomic<bool> asked = false;
  static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler uses it");

 private:
  static inline std::optional<SignalHandler> handler_;
};

/// The text of --tools.
std::string tools_of(const Options& o) {
  if (o.tools.empty()) return "";
  std::string text = as_utf8(read_file(o.tools, {.most = 16 << 20}), o.tools);
  const SortedJson tools = parse_json_text(text, o.tools);  // an error names the file
  require(tools.is_array() && !tools.empty(), "{}: expected a JSON array of functions", o.tools);
  return text;
}

struct Command {
  const char* name;
  const char* argument;
  const char* help;
};

constexpr std::array kCommands = {
    Command{"/help", "", "list these commands"},
    Command{"/clear", "", "forget the conversation and its text"},
    Command{"/context", "FILE", "forget all, then read a text to ask about"},
    Command{"/image", "FILE", "show a picture with the next message"},
    Command{"/save", "FILE", "save the cache, for --load-cache"},
    Command{"/load", "FILE", "go on from a saved cache"},
    Command{"/stats", "", "speed, cache and memory"},
    Command{"/quit", "", "end; so do /exit and Ctrl-D"},
};

class Chat {
 public:
  explicit Chat(const Options& o)
      : o_(o),
        cache_options_(o.cache.parse()),
        pack_(o.pack),
        generate_(o.generate.parse(o.cache.seed)),
        text_model_(std::make_shared<const TextModel>(o.model)),
        m_(*text_model_),
        pictures_(m_, o.mmproj, o.quiet),
        tools_(tools_of(o)),
        conversation_(m_.tokenizer, o.system, tools_) {
    o.cache.choose(cache_options_, m_.model);
    check_pack(pack_, m_.model, cache_options_, o.quiet);
    require(cache_options_.protocol == Protocol::prefill || !cache_options_.policy.has("rate"),
            "a conversation in --protocol stream has no known length: give the method a budget in "
            "place of a rate");
    const Policy& policy = cache_options_.policy;
    if (share()) {
      const bool known = !o.context.empty() || is_packed_cache(o.load_cache);
      require(known && cache_options_.protocol == Protocol::prefill,
              "a conversation has no known length that {} could be of: give bytes, such as "
              "--cache 256M{}",
              o.cache.cache.empty() ? policy.to_string() : "--cache " + o.cache.cache,
              known ? ", or leave out --protocol stream" : ", or a --context");
    } else if (policy.has("bytes") && !o.cache.protocol_given && can_stream(policy)) {
      // Exact until the bytes are passed, and bounded from then on, without end where it can be.
      cache_options_.protocol = Protocol::stream;
      if (takes_reach(policy) && m_.model.turns_only()) go_on();
    }
    clear();
    if (!o.load_cache.empty()) load(o.load_cache);
    if (!o.context.empty()) read_context(o.context);
  }

  void run() {
    if (editor_.interactive() && !o_.quiet) {
      print("Ctrl-C stops an answer; /help lists commands; /quit, Ctrl-D or Ctrl-C here ends.\n");
    }
    while (true) {
      flush_output();
      const std::optional<std::string> line = editor_.read("> ");
      if (!line) {
        if (editor_.interactive()) print("\n");
        break;
      }
      if (*line == "/exit" || *line == "/quit") break;
      if (line->starts_with('/') && line->find('\n') == std::string::npos) {
        attempt(*line);
      } else if (line->find_first_not_of(" \t\r\n") != std::string::npos) {
        turn(*line);
      }
    }
    require(refused_ == 0 || editor_.interactive(), ErrorCode::over_limit,
            "{} message{} had no place", refused_, refused_ == 1 ? "" : "s");
  }

 private:
  /// Lets the conversation leave the model's positions. What the model was told first never does.
  void go_on() {
    Policy& policy = cache_options_.policy;
    const auto begin = [&](const char* message) {
      return m_.tokenizer.encode(Conversation(m_.tokenizer, o_.system, tools_).say(message),
                                 {.add_special = false, .parse_special = true});
    };
    const std::vector<Token> one = begin("1"), other = begin("a");
    const auto head = static_cast<std::size_t>(std::ranges::mismatch(one, other).in1 - one.begin());
    const std::size_t sink = std::max<std::size_t>(head, policy.integer("sink"));
    const auto least =
        sink + static_cast<std::size_t>(policy.integer("window") + policy.integer("chunk"));
    if (least > positions()) return;
    cache_options_.positions = Positions::rolling;
    policy = policy.with("sink", fmt::format("{}", sink));
  }

  /// A command that fails ends a script, but not a conversation.
  void attempt(const std::string& line) {
    if (!editor_.interactive()) return command(line);
    try {
      command(line);
    } catch (const Error& error) {
      flush_output();
      tell(error.what());
    }
  }

  void command(const std::string& line) {
    const std::string name = line.substr(0, line.find(' '));
    std::string argument = line.substr(name.size());
    argument.erase(0, argument.find_first_not_of(' '));
    argument.erase(argument.find_last_not_of(' ') + 1);
    // As a shell takes names with blanks.
    if (argument.size() > 2 && (argument.front() == '"' || argument.front() == '\'') &&
        argument.back() == argument.front()) {
      argument = argument.substr(1, argument.size() - 2);
    }
    std::vector<std::string> names;
    const Command* found = nullptr;
    for (const Command& one : kCommands) {
      names.push_back(one.name);
      if (name == one.name) found = &one;
    }
    require(found != nullptr, "unknown command {}{}; /help lists all", name,
            did_you_mean(name, names));
    const bool wants = *found->argument != 0;
    require(argument.empty() != wants, "{} takes {}", name, wants ? "a file" : "nothing");
    if (name == "/help") {
      for (const Command& one : kCommands) {
        print(fmt::format("{:<15} {}\n", std::string(one.name) + " " + one.argument, one.help));
      }
    } else if (name == "/clear") {
      clear();
    } else if (name == "/context") {
      read_context({argument});
    } else if (name == "/image") {
      show(argument);
    } else if (name == "/save") {
      save(argument);
    } else if (name == "/load") {
      load(argument);
    } else if (name == "/stats") {
      report(last_.tokens, last_.seconds);
    }
  }

  void clear() {
    session_.reset();  // frees its memory first
    pictures_.forget();
    places_.clear();
    session_.emplace(text_model_, cache_options_);
    session_->set_form({true, "", ""});
    conversation_ = Conversation(m_.tokenizer, o_.system, tools_);
    form_.reset();
    context_.clear();
    prompt_ = {};
    last_ = {};
  }

  void show(const std::string& path) {
    places_ += pictures_.read(path);
    if (editor_.interactive() && !o_.quiet) print("Ask about it.\n");
  }

  std::size_t positions() const { return m_.model.config().max_positions; }

  /// What to do about a text that is too long.
  std::string advice() const {
    const std::string endless = endless_advice(m_.model, cache_options_, o_.cache);
    return endless.empty() ? "" : "; " + endless;
  }

  void read_context(const std::vector<std::string>& paths) {
    const Documents documents = read_documents(paths, o_.quiet);
    const std::string path = paths.size() == 1 ? paths.front() : documents.what;
    QuestionForm form = QuestionForm::from_template(m_.tokenizer, o_.system, documents.text);
    std::vector<Token> tokens = form.begin(m_.tokenizer);
    const std::size_t needed =
        Sequence(m_.model, cache_options_).positions_after(tokens.size() + 1);
    require(needed <= positions(), ErrorCode::over_limit,
            "{}: {} tokens, but the model has {} positions{}", path, format_count(tokens.size()),
            format_count(positions()), advice());
    clear();
    form_ = std::move(form);
    context_ = paths;
    const Interruptible interruptible;
    read(tokens);
    if (session_->unread() > 0) {
      clear();
      print("Interrupted; nothing is read.\n");
    } else if (editor_.interactive() && !o_.quiet) {
      print(fmt::format("{}: {} tokens in {}.\n", path, format_count(session_->tokens()),
                        format_bytes(static_cast<double>(session_->cache().bytes().used()))));
    }
  }

  /// What a saved conversation has still to read beside what is unread, up to where its next
  /// message begins.
  std::vector<Token> rest_of(const QuestionForm& form) const {
    if (form_) return {};
    return encode_more(m_.tokenizer, form.before, form.chat);
  }

  /// Saves a copy that has read up to where the next message begins.
  void save(const std::string& path) {
    require(session_->tokens() > 0, "/save: nothing has been said yet");
    std::vector<std::string> inputs = context_;
    inputs.insert(inputs.end(), {o_.model, o_.tools});
    refuse_overwriting(path, inputs);
    Session copy = session_->clone();
    const QuestionForm form = form_ ? *form_ : conversation_.next();
    double seconds = 0;
    read_tokens(copy, rest_of(form), o_.quiet, seconds);
    copy.set_form(form);
    copy.save(path, pack_);
    if (!o_.quiet) name_written(path);
  }

  void load(const std::string& path) {
    const bool asked = o_.cache.given() && is_packed_cache(path);
    Session loaded = Session::load(text_model_, path, nullptr, asked ? &cache_options_ : nullptr);
    clear();
    session_ = std::move(loaded);
    form_ = session_->form();
    if (editor_.interactive() && !o_.quiet) {
      print(fmt::format("{}: {} tokens in {}.\n", path, format_count(session_->tokens()),
                        format_bytes(static_cast<double>(session_->cache().bytes().used()))));
    }
  }

  void turn(const std::string& line) {
    const bool first = session_->tokens() + session_->unread() == 0;
    const Conversation before = conversation_;
    const std::string message = places_ + line;
    const std::string text = conversation_.say(message);
    std::vector<Token> said;
    if (form_) {
      said = form_->question(m_.tokenizer, message);
    } else if (first) {
      said = m_.tokenizer.encode(text, {.add_special = false, .parse_special = true});
    } else {
      said = encode_more(m_.tokenizer, text, true);
    }
    said = pictures_.place(said);
    const std::size_t used = session_->positions_after(0);
    const std::size_t needed = session_->positions_after(said.size());
    if (needed > positions()) {
      conversation_ = before;
      places_.clear();
      return refuse(said.size(), positions() - std::min(used, positions()));
    }
    form_.reset();
    places_.clear();
    const Interruptible interruptible;
    conversation_.answered(read(said) ? answer() : "");
  }

  /// Says that a message has no place in the positions that are left, and what has.
  void refuse(std::size_t tokens, std::size_t left) {
    ++refused_;
    std::string remedy = left > 0 ? "shorten it" : "";
    if (session_->tokens() > 0) {
      const std::size_t rest = rest_of(form_ ? *form_ : conversation_.next()).size();
      const bool saves = session_->positions_after(rest) < positions();
      remedy += remedy.empty() ? "" : ", or ";
      remedy += saves ? "/clear and begin anew (/save FILE keeps what was said)"
                      : "/clear and begin anew";
    }
    flush_output();
    tell(fmt::format("the message has {} tokens, and {} of the model's {} positions are left: {}{}",
                     format_count(tokens), format_count(left), format_count(positions()), remedy,
                     advice()));
  }

  /// Reads tokens. Returns false if interrupted; the next turn then reads the rest.
  bool read(std::span<const Token> tokens) {
    const std::size_t before = session_->tokens();
    bool done = read_tokens(*session_, tokens, o_.quiet, prompt_.seconds, &Interruptible::asked);
    prompt_.tokens += session_->tokens() - before;
    // The first turn is the prompt, or all turns that fit into bytes=; later ones are read like
    // generated tokens.
    if (done && !session_->prompt_finished() && !fits()) {
      done = finish_prompt(*session_, o_.quiet, &Interruptible::asked);
    }
    if (!done) print("\n");
    return done;
  }

  /// Whether the method has a share of the context's exact cache.
  bool share() const {
    const Policy& policy = cache_options_.policy;
    return policy.has("bytes") && policy.memory("bytes").needs_length();
  }

  /// Whether the conversation is exact within the bytes given, or has no context to have a share
  /// of.
  bool fits() const {
    const Policy& policy = cache_options_.policy;
    if (share()) return context_.empty();
    return policy.has("bytes") &&
           static_cast<double>(session_->cache().bytes().used()) <= policy.memory("bytes").amount;
  }

  std::string answer() {
    const Stopwatch watch;
    AnswerOutput output;
    const Answered answered =
        generate_answer(*session_, generate_, true, [&](std::string_view text) {
          output.add(text);
          return !Interruptible::asked;
        });
    const Generated& made = answered.made;
    output.finish();
    if (!o_.quiet) tell_if_repeats(answered);
    if (!o_.quiet && made.finish != Finish::cancelled &&
        is_unsure(made, m_.model.config().unsure_below)) {
      tell_unsure(std::vector<std::size_t>{1}, 1);
    }
    last_ = {made.tokens.size(), watch.seconds()};
    if (o_.stats) report(last_.tokens, last_.seconds);
    return made.text;
  }

  void report(std::size_t made, double seconds) const {
    const CacheReport cache = report_of(session_->cache());
    flush_output();
    fmt::print(stderr,
               "[read {} tokens at {}/s, made {} at {}/s; the cache holds {} tokens in {}, {}, "
               "with room for more {}; peak memory {}]\n",
               format_count(prompt_.tokens), format_number(prompt_.rate()), format_count(made),
               format_number(Work{made, seconds}.rate()), format_count(cache.tokens),
               format_bytes(static_cast<double>(cache.bytes.used())),
               std::abs(cache.ratio() - 1) < 0.005
                   ? "as exact"
                   : fmt::format("{:.2f}× smaller than exact", cache.ratio()),
               format_bytes(static_cast<double>(cache.bytes.total())),
               format_bytes(static_cast<double>(peak_memory())));
  }

  const Options& o_;
  CacheOptions cache_options_;
  std::string pack_;  ///< see check_pack()
  GenerateOptions generate_;
  std::shared_ptr<const TextModel> text_model_;
  const TextModel& m_;
  Pictures pictures_;
  std::string places_;  ///< of pictures that the next message shows
  std::string tools_;
  Conversation conversation_;
  LineEditor editor_;
  std::optional<Session> session_;
  std::optional<QuestionForm> form_;  ///< around the next message, after a context
  std::vector<std::string> context_;  ///< files of the context that was read; empty: none
  Work prompt_;
  Work last_;                ///< the last answer
  std::size_t refused_ = 0;  ///< messages
};

void check(const Options& o) {
  require(o.context.empty() || o.load_cache.empty(),
          "--context and --load-cache exclude each other: the cache is of a context");
  require(o.system.empty() || o.load_cache.empty(),
          "--system has no effect on a cache that was saved before");
  if (!o.load_cache.empty() && !is_packed_cache(o.load_cache)) {
    o.cache.refuse_overridden("--load-cache", o.generate.options.sampling.temperature > 0);
  }
}

LibraryQuestions of_library(const Options& o) {
  return {.folder = o.library, .model = o.model, .ask = {o.generate.parse(0)}, .quiet = o.quiet};
}

}  // namespace

void add_chat(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<Options>();
  Options& o = *options;
  CLI::App* app = parent.add_subcommand("chat", "Talk with a model");
  add_model_option(*app, o.model);
  app->add_option("--system", o.system, "What the model is told first")->type_name("TEXT");
  app->add_option("--tools", o.tools,
                  "A JSON array of the functions that the model may call, as in OpenAI's API, for "
                  "models whose chat template has a place for them")
      ->type_name("FILE");
  app->add_option("--context", o.context,
                  "Read this first, to ask about it: a text, PDF, web page, Word file or folder of "
                  "them; may be "
                  "repeated")
      ->allow_extra_args(false)
      ->type_name("FILE");
  add_mmproj_option(*app, o.mmproj);
  o.cache.add_to(*app);
  o.cache.add_memory_to(*app);
  app->add_option("--load-cache", o.load_cache, "Go on from a saved context or conversation")
      ->type_name("FILE")
      ->group("Cache");
  add_pack_option(*app, o.pack, "/save");
  o.generate.add_to(*app);
  app->add_flag("--stats", o.stats, "Report speed, cache and memory after each answer");
  add_library_option(*app, o.library, {"--system", "--tools", "--context", "--mmproj", "--stats"});
  app->add_flag("-q,--quiet", o.quiet, "Show no progress and no introduction");
  app->footer(
      std::string(kUnsureHelp) +
      "In a conversation: /help, /clear, /context FILE, /image FILE, /save FILE, /load FILE, "
      "/stats, /quit.\n"
      "Lines are edited as in a shell; a pasted text is one message. A share, as --cache 1/8, is "
      "of "
      "the text of --context.\n\n"
      "Example:\n  ballast chat -m model.gguf --cache 256M --context book.txt");
  app->callback([options, &task] {
    task = [options] {
      check(*options);
      if (!options->library.empty()) return chat_with_library(of_library(*options));
      Chat(*options).run();
    };
  });
}

}  // namespace ballast::cli
