// ballast run: answers a question, alone or about a context that it reads once, or continues a
// text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>

#include "ballast/engine/context_file.h"
#include "ballast/engine/lookup.h"
#include "ballast/joined.h"
#include "base/fail.h"
#include "base/os/files.h"
#include "base/os/memory.h"
#include "cli/answering.h"
#include "cli/library_asking.h"
#include "cli/mpi_ranks.h"
#include "cli/pictures.h"
#include "cli/run_options.h"
#include "cli/run_report.h"
#include "model/layer_share.h"
#include "model/ranks.h"
#include "report/progress.h"

namespace ballast::cli {
namespace {

/// The state of one run: the context read and the sequence that continues it.
class Runner {
 public:
  /// `ranks`: null if this process is alone.
  Runner(const RunOptions& o, std::vector<std::string> questions, Documents context,
         const std::shared_ptr<Ranks>& ranks)
      : o_(o),
        questions_(std::move(questions)),
        context_(std::move(context)),
        cache_options_(o.cache.parse(true)),
        pack_(o.pack),
        generate_(o.generate.parse(o.cache.seed)),
        text_model_(open_model(o, ranks)),
        m_(*text_model_),
        pictures_(m_, o.mmproj, o.quiet) {
    o.cache.choose(cache_options_, m_.model);
    if (o.cache.is_auto()) cache_options_ = guard_.emplace(m_.model).reading(cache_options_);
    if (m_.model.layer_share() != nullptr) {
      cache_options_ = options_of_layers(cache_options_, m_.model.file().config(), config());
    }
    check_pack(pack_, m_.model, cache_options_, o.quiet);
    generate_.alternatives = static_cast<std::size_t>(std::max(0, o.logprobs));
  }

  /// Whether a calibration would have spared a replay pass.
  bool could_calibrate() const {
    return o_.cache.method.empty() && m_.model.calibration() == nullptr &&
           cache_options_.policy.needs().reads_again() && o_.load_cache.empty();
  }

  RunReport run() {
    report_.model = o_.model;
    report_.context =
        o_.load_cache.empty() ? context_.what : fmt::format("{}", fmt::join(o_.load_cache, ", "));
    report_.logprobs = o_.logprobs >= 0;
    report_.unsure_below = config().unsure_below;
    report_.cite = o_.cite;
    if (has_context()) {
      answer_from_context();
    } else {
      for (const std::string& question : questions_) answer_alone(question);
    }
    if (o_.json.text() && !o_.quiet) {
      std::vector<std::size_t> unsure;
      for (std::size_t i = 0; i < report_.answers.size(); ++i) {
        if (is_unsure(report_.answers[i].generated, config().unsure_below)) unsure.push_back(i + 1);
      }
      tell_unsure(unsure, report_.answers.size());
    }
    report_.peak_memory = peak_memory();
    return std::move(report_);
  }
  const Tokenizer& tokenizer() const { return m_.tokenizer; }

 private:
  static std::shared_ptr<const TextModel> open_model(const RunOptions& o,
                                                     const std::shared_ptr<Ranks>& ranks) {
    auto model = std::make_shared<TextModel>(o.model);
    if (ranks) model->model.split_layers(ranks);
    return model;
  }
  const ModelConfig& config() const { return m_.model.config(); }
  bool has_context() const { return !context_.text.empty() || o_.has_context(); }
  /// Whether a chat template is put around what is asked: a saved context knows, questions have one
  /// in any case, a prompt if the model's file has one.
  bool chat() const {
    if (loaded_form_) return loaded_form_->chat;
    if (o_.chat || o_.raw) return o_.chat;
    return has_context() || !o_.questions.empty() || !o_.questions_file.empty() ||
           !m_.tokenizer.vocabulary().chat_template.empty();
  }

  QuestionForm form_for(std::string_view context) const {
    return chat() ? QuestionForm::from_template(m_.tokenizer, o_.system, context)
                  : QuestionForm::raw(std::string(context));
  }

  /// The same with the pictures of --image before the context.
  QuestionForm form_of_context() {
    std::string places;
    for (const std::string& path : o_.images) places += pictures_.read(path);
    if (!context_.text.empty()) return form_for(places + context_.text);
    QuestionForm form = form_for("");
    form.before += places;
    return form;
  }

  bool endless() const { return is_endless(cache_options_); }

  void check_positions(std::size_t prompt, std::size_t more) const {
    const std::size_t positions = config().max_positions;
    const std::string what = more == 0 ? fmt::format("the prompt has {}", prompt)
                                       : fmt::format("context and question have {}", prompt + more);
    if (!endless() && prompt + more > positions) {
      const std::string advice = endless_advice(m_.model, cache_options_, o_.cache);
      fail(ErrorCode::over_limit, "{}: {} tokens, but the model has {} positions{}{}", o_.model,
           what, positions, advice.empty() ? "" : "; ", advice);
    }
    if (prompt + more > positions && !o_.quiet) {
      tell(fmt::format(
          "note: {} tokens, more than the model's {} positions: what the cache keeps must fit into "
          "them",
          what, positions));
    }
  }

  /// Throws Error if the run cannot finish. `prompt`: tokens of the prompt or of the loaded cache;
  /// `more`: the most tokens before the answer; `several`: questions continue copies of the cache,
  /// which share its rows unless it is a stream.
  void plan(std::size_t prompt, std::size_t more, const Cache* loaded = nullptr,
            bool several = false) {
    check_positions(prompt, more);
    const bool copied = several && cache_options_.protocol == Protocol::stream;
    const std::size_t answer = generate_.max_tokens;
    const std::size_t room = endless() ? answer : config().max_positions - prompt - more;
    // The cache grows with an unbounded answer, but some models need the maximum length beforehand.
    const bool open = answer == 0 && config().rope.long_divisors.empty();
    length_ = prompt + more + (open ? 0 : answer == 0 ? room : std::min(answer, room));
    // A rate applies to the text that is read, not to the answer.
    if (loaded == nullptr) {
      cache_options_.expected_tokens =
          cache_options_.protocol == Protocol::stream ? prompt : length_;
      const std::size_t most = answer == 0 ? room : std::min(answer, room);
      o_.cache.fit(cache_options_, m_.model, prompt, more + most, copied ? 2 : 1, o_.quiet);
    }
    const std::size_t chunk =
        std::min(PrefillOptions().chunk, loaded != nullptr ? more : prompt + more);
    // Documents that are joined stay as they are, whatever method each has.
    const bool joined = loaded != nullptr && joined_tokens(*loaded) > 0;
    MemoryEstimate estimate = m_.model.estimate(cache_options_, joined ? 0 : prompt,
                                                length_ - prompt, std::max<std::size_t>(chunk, 1));
    if (loaded != nullptr) estimate.cache = estimate.kept;
    if (copied) estimate.cache = std::max(estimate.cache, 2 * estimate.kept);
    if (guard_) estimate.cache *= 2;  // a copy while sizes are tried
    if (loaded == nullptr && has_context() && Gauge::why_not(m_.model, cache_options_).empty()) {
      estimate.scratch += Engine::kLogitRows * m_.model.config().vocabulary * sizeof(float);
    }
    MemoryEstimate missing = estimate;
    if (joined) {
      estimate.cache += loaded->bytes().total();
    } else if (loaded != nullptr) {
      missing.cache -= estimate.kept;  // there already
    }
    require_memory(missing, available_memory(), "this run");
    note_program();
    if (estimate.total() > report_.estimate.total()) report_.estimate = estimate;
    if (!report_.answers.empty()) return;
    // Reading a text or a saved cache may take more memory than running the model.
    const std::size_t total = report_.estimate.total() + report_.program;
    report_.program += std::max(total, peak_memory()) - total;
  }

  /// Memory of the process besides the model and the cache.
  void note_program() {
    if (report_.program == 0) report_.program = program_memory(m_.model);
  }

  /// A session that has read the prompt, which the method has summarised. `asked`: questions that
  /// will follow.
  Session read_prompt(const QuestionForm& form, std::span<const Token> tokens,
                      const std::vector<std::vector<Token>>& asked = {}) {
    Session session(text_model_, cache_options_);
    session.set_form(form);
    read_tokens(session, tokens, o_.quiet, report_.prompt.seconds);
    report_.prompt.tokens += tokens.size();
    const Stopwatch watch;
    finish_prompt(session, o_.quiet, nullptr, asked,
                  [&](const ReplayOptions& options) { return end_prompt(session, options); });
    report_.compress_seconds += watch.seconds() - (report_.gauge ? report_.gauge->seconds : 0);
    note_cache(session);
    if (has_context() && !o_.quiet)
      tell_if_not_smaller(report_.after_prompt, report_.options.policy);
    return session;
  }

  /// Chooses the cache, with --cache auto; else says what that of a context costs.
  bool end_prompt(Session& session, const ReplayOptions& options) {
    if (!guard_) {
      return has_context() ? session.finish_prompt(options, report_.gauge)
                           : session.finish_prompt(options);
    }
    Guarded& guarded = report_.guarded.emplace();
    const bool ended = session.finish_prompt(options, *guard_, guarded);
    if (!guarded.exact && !guarded.tried.empty()) report_.gauge = guarded.tried.back().gauge;
    return ended;
  }

  void note_cache(const Session& session) {
    report_.options = session.cache().options();
    report_.after_prompt = report_of(session.cache());
  }

  void answer_alone(const std::string& question) {
    const QuestionForm form = form_for("");
    const std::vector<Token> tokens = form.whole(m_.tokenizer, question);
    require(!tokens.empty(), "the prompt is empty");
    plan(tokens.size(), 0);
    Session session = read_prompt(form, tokens);
    session.cache().reserve(length_);
    answer(question, session);
  }

  /// Those saved; several become one context.
  Session load_documents() const {
    std::vector<Session> all;
    for (const std::string& path : o_.load_cache) {
      require_memory({.cache = loaded_bytes(path)}, available_memory(), path);
      all.push_back(
          Session::load(text_model_, path, nullptr, o_.cache.given() ? &cache_options_ : nullptr));
    }
    if (all.size() == 1) return std::move(all[0]);
    std::optional<Progress> progress;
    if (o_.reread > 0 && !o_.quiet) progress.emplace("reading again");
    return Session::join(std::move(all), static_cast<double>(o_.reread) / 100, [&](double done) {
      if (progress) progress->update(done);
    });
  }

  void answer_from_context() {
    std::vector<std::vector<Token>> asked;
    Session session = o_.load_cache.empty() ? read_texts(asked) : open_saved(asked);
    if (!o_.save_cache.empty()) {
      session.save(o_.save_cache, pack_);
      if (!o_.quiet) name_written(o_.save_cache);
    }
    // Each of several questions continues a copy of the cache.
    for (std::size_t i = 0; i < questions_.size(); ++i) {
      std::optional<Session> copy;
      if (several()) copy = session.clone();
      ask(questions_[i], asked[i], copy ? *copy : session);
    }
  }

  bool several() const { return questions_.size() > 1; }

  /// The questions as tokens. Returns the length of the longest.
  std::size_t encode_questions(const QuestionForm& form, std::vector<std::vector<Token>>& asked) {
    std::size_t longest = 0;
    for (const std::string& question : questions_) {
      asked.push_back(form.question(m_.tokenizer, question));
      require(!asked.back().empty(), "an empty question");
      longest = std::max(longest, asked.back().size());
    }
    return longest;
  }

  /// A session of contexts that were saved.
  Session open_saved(std::vector<std::vector<Token>>& asked) {
    note_program();
    Session session = load_documents();
    loaded_form_ = session.form();
    require(!o_.cite || !session.text().empty(),
            "{}: --cite needs the text, which the file does not have", o_.load_cache[0]);
    prepare_to_cite();
    const std::size_t more = encode_questions(session.form(), asked);
    cache_options_ = session.cache().options();
    plan(session.tokens(), more, &session.cache(), several());
    note_cache(session);
    return session;
  }

  /// A session that has read the texts and pictures.
  Session read_texts(std::vector<std::vector<Token>>& asked) {
    const QuestionForm form = form_of_context();
    const std::vector<Token> tokens = pictures_.place(form.begin(m_.tokenizer));
    report_.pictures = pictures_.work();
    require(!tokens.empty(), "{}: the context is empty", context_.what);
    plan(tokens.size(), encode_questions(form, asked), nullptr, several());
    prepare_to_cite();
    return read_prompt(form, tokens, asked);
  }

  void prepare_to_cite() {
    if (!o_.cite) return;
    Engine engine(m_.model);
    lookup_heads_ = find_lookup_heads(engine);
  }

  void ask(const std::string& question, const std::vector<Token>& tokens, Session& session) {
    const std::size_t context = session.tokens();
    session.cache().reserve(length_);
    report_.question.tokens += tokens.size();
    std::optional<Lookup> lookup;
    PrefillOptions options;
    if (o_.cite) {
      lookup.emplace(lookup_heads_, context);
      // The first token of an answer follows the last one of the question.
      options.on_attention = [&](const AttentionStep& step) {
        if (step.first + step.queries.rows < tokens.size()) return;
        lookup->add(session.cache(), step, step.queries.rows - 1);
      };
    }
    const Stopwatch watch;
    session.read(tokens, options);
    report_.question.seconds += watch.seconds();
    answer(question, session, lookup ? &*lookup : nullptr);
  }

  void answer(const std::string& question, Session& session, Lookup* lookup = nullptr) {
    const bool show = o_.json.text();
    if (show && several()) {
      print(fmt::format("{}> {}\n", report_.answers.empty() ? "" : "\n", question));
    }
    GenerateOptions options = generate_;
    options.text_start = chat();
    if (lookup != nullptr) {
      options.on_attention = [&](const AttentionStep& step) {
        lookup->add(session.cache(), step, 0);
      };
    }
    const Stopwatch watch;
    AnswerOutput output;
    Answer answer;
    answer.question = question;
    const Answered answered = generate_answer(session, options, chat(), [&](std::string_view text) {
      if (show) output.add(text);
      return true;
    });
    answer.generated = answered.made;
    answer.repeats = answered.repeats;
    report_.answer.seconds += watch.seconds();
    report_.answer.tokens += answer.generated.tokens.size();
    if (show) output.finish();
    if (lookup != nullptr) {
      const std::span<const Token> context = session.text().first(lookup->attention().size());
      answer.citations = citations(*lookup, context);
      if (show) print(ballast::to_text(answer.citations));
    }
    flush_output();
    if (show && !o_.quiet) {
      tell_if_repeats(answered);
    }
    answer.cache = report_of(session.cache());
    report_.answers.push_back(std::move(answer));
  }

  /// Bytes of the prompt before the context. A saved cache does not say its system message: where
  /// the prompt does not begin as it does without one, 0.
  std::size_t bytes_before_text(std::span<const Token> context) const {
    if (o_.load_cache.empty()) return bytes_before_context(m_.tokenizer, o_.system);
    const std::string usual = form_for("").before;
    const std::size_t size = bytes_before_context(m_.tokenizer, "");
    const std::string text = m_.tokenizer.decode(context, {.special = true, .text_start = false});
    return text.compare(0, size, usual, 0, size) == 0 ? size : 0;
  }

  std::vector<Citation> citations(const Lookup& lookup, std::span<const Token> context) const {
    const std::size_t before = chat() && !context.empty() ? bytes_before_text(context) : 0;
    std::vector<Citation> all = cite(m_.tokenizer, context, before, lookup.attention());
    for (Citation& one : all) {
      if (one.place.document.empty()) one.place.document = context_.what;
    }
    return all;
  }

  const RunOptions& o_;
  std::vector<std::string> questions_;
  Documents context_;
  CacheOptions cache_options_;
  std::string pack_;  ///< see check_pack()
  GenerateOptions generate_;
  std::optional<Guard> guard_;  ///< with --cache auto
  std::optional<QuestionForm> loaded_form_;
  std::vector<LookupHead> lookup_heads_;  ///< with --cite
  std::size_t length_ = 0;                ///< expected final length of a sequence in tokens
  std::shared_ptr<const TextModel> text_model_;
  const TextModel& m_;
  Pictures pictures_;
  RunReport report_;
};

void run(RunOptions& o) {
  if (!o.context.empty() && is_saved_cache(o.context[0])) {
    for (const std::string& path : o.context) {
      require(std::filesystem::exists(path), "--context {}: there is no such file", path);
      require(is_saved_cache(path),
              "--context {}: a text beside saved caches: save its cache first", path);
    }
    o.load_cache.insert(o.load_cache.end(), o.context.begin(), o.context.end());
    o.context.clear();
  }
  if (!o.library.empty()) {
    return ask_library({.folder = o.library,
                        .model = o.model,
                        .questions = o.all_questions(),
                        .list = o.prompt.empty(),
                        .ask = {o.generate.parse(0)},
                        .quiet = o.quiet},
                       o.json);
  }
  o.check();
  const std::shared_ptr<Ranks> ranks = mpi_ranks();
  if (ranks) {
    require(o.save_cache.empty() && o.load_cache.empty(),
            "each rank has a part of the cache: --save-cache and --load-cache need one process");
    if (ranks->rank() > 0) {  // the first one speaks
      o.quiet = true;
      o.stats = false;
      o.json = {};
      require(std::freopen("/dev/null", "w", stdout) != nullptr, ErrorCode::io,
              "/dev/null cannot be written to");
    }
  }
  o.json.open();
  if (!o.save_cache.empty()) OutputFile{o.save_cache};  // fails now rather than at the end
  std::vector<std::string> questions = o.all_questions();
  Documents context = o.texts();
  if (!o.images.empty() && context.what.empty()) {
    context.what = o.images.size() == 1 ? o.images[0] : fmt::format("{} pictures", o.images.size());
  }
  require(!o.cite || !context.text.empty() || !o.load_cache.empty(),
          "--cite needs a text to cite: give --context");
  Runner runner(o, std::move(questions), std::move(context), ranks);
  const RunReport report = runner.run();
  if (!o.stats && !o.quiet && o.json.text() && is_terminal(Stream::error)) {
    flush_output();
    tell(to_line(report));
    if (runner.could_calibrate()) {
      tell(
          fmt::format("note: the text was read twice; ballast calibrate -m {} spares that from "
                      "then on, and takes as long as reading 75,000 tokens",
                      o.model));
    }
  }
  if (o.stats) {
    flush_output();
    std::fputs(to_text(report).c_str(), stderr);
  }
  o.json.write(to_json(report, runner.tokenizer()));
}

}  // namespace

void add_run(CLI::App& parent, std::function<void()>& task) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* app = parent.add_subcommand(
      "run", "Answer a question, alone or about texts that are read once; or continue a text");
  options->add_to(*app);
  app->footer(
      std::string(kUnsureHelp) +
      "Example:\n  ballast run -m model.gguf 'What is a cache?'\n"
      "  ballast run -m model.gguf --cache 1/8 --context book.pdf --question 'Who wrote the "
      "letter?'\n"
      "  ballast run -m InternVL2_5-1B --image photo.jpg --question 'What is to be seen?'");
  app->callback([options, &task] { task = [options] { run(*options); }; });
}

}  // namespace ballast::cli
