#include "ballast/engine/session.h"

#include <algorithm>
#include <utility>

#include "ballast/engine/context_file.h"
#include "ballast/engine/gauge.h"
#include "ballast/engine/gguf.h"
#include "ballast/engine/guard.h"
#include "ballast/engine/packing.h"
#include "ballast/joined.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "model/read_again.h"
#include "text/tokenizer/check_sizes.h"

namespace ballast {
namespace {

Tokenizer tokenizer_of(const Model& model) {
  if (const Gguf* gguf = model.file().gguf()) return Tokenizer(read_vocabulary(*gguf));
  return Tokenizer(read_vocabulary(model.file().tokenizer().folder));
}

Sequence checked_sequence(const Model& model, const CacheOptions& options) {
  const std::size_t tokens = std::max<std::size_t>(1, options.expected_tokens);
  require_memory(model.estimate(options, tokens), available_memory(), "this context");
  return {model, options};
}

Sequence sequence_of(const Model& model, Cache cache, std::vector<Token> text,
                     const std::shared_ptr<ThreadPool>& pool) {
  set_host(cache, pool, cache.options().value_norms);
  return {model, std::move(cache), std::move(text)};
}

}  // namespace

TextModel::TextModel(const std::filesystem::path& path)
    : model(path), tokenizer(tokenizer_of(model)) {
  check_rows(tokenizer, model.config().vocabulary, path.string());
}

Session::Session(std::shared_ptr<const TextModel> model, Sequence sequence,
                 std::shared_ptr<ThreadPool> pool)
    : model_(std::move(model)),
      pool_(std::move(pool)),
      engine_(model_->model, pool_),
      sequence_(std::move(sequence)) {
  set_form(QuestionForm::raw(""));
}

Session::Session(std::shared_ptr<const TextModel> model, const CacheOptions& options)
    : Session(model, checked_sequence(model->model, options), options.pool) {}

Session::Session(std::shared_ptr<const TextModel> model, Cache cache,
                 std::shared_ptr<ThreadPool> pool, std::vector<Token> text)
    : Session(model, sequence_of(model->model, std::move(cache), std::move(text), pool), pool) {}

Session Session::load(std::shared_ptr<const TextModel> model, const std::filesystem::path& path,
                      std::shared_ptr<ThreadPool> pool, const CacheOptions* options) {
  const PoolScope scope(pool.get());
  std::string form;
  std::vector<Token> text;
  Cache cache = load_context(path, model->model, &form, &text, nullptr, options);
  Session out(std::move(model), std::move(cache), std::move(pool), std::move(text));
  out.set_form(QuestionForm::of_text(form));
  return out;
}

Session Session::join(std::vector<Session> documents, double again,
                      const std::function<void(double done)>& progress) {
  require(!documents.empty(), "no documents to join");
  require(again >= 0 && again <= 1, "a share of {} tokens to read again: from 0 to 1", again);
  const Session& first = documents[0];
  const std::shared_ptr<const TextModel> model = first.model_;
  const std::shared_ptr<ThreadPool> pool = first.pool_;
  const QuestionForm form = QuestionForm::of_text(first.form_.to_text());
  const std::size_t before = tokens_before_context(model->tokenizer, form.chat);
  for (Session& one : documents) {
    require(one.model_ == model && one.form_.to_text() == form.to_text(),
            "documents that are joined have one model and one form, chat or raw");
    one.read({});
    require(&one == &first || one.tokens() > before,
            "a document of {} tokens, of which {} are left out", one.tokens(), before);
    require(again == 0 || !one.text().empty(),
            "the tokens of a document are not known, so they cannot be read again: its cache was "
            "saved by an earlier version, or holds pictures");
  }
  if (again == 1) {
    Session out = std::move(documents[0]);
    for (std::size_t d = 1; d < documents.size(); ++d) {
      out.read(documents[d].text().subspan(before));
      if (progress) progress(static_cast<double>(d + 1) / static_cast<double>(documents.size()));
    }
    return out;
  }
  std::vector<JoinedDocument> all;
  std::vector<std::vector<Token>> texts;
  for (Session& one : documents) {
    texts.emplace_back(one.text().begin(), one.text().end());
    all.push_back({std::make_shared<const Cache>(std::move(one.sequence_.cache())),
                   all.empty() ? 0 : before});
  }
  Session out(model, join_documents(std::move(all)), pool);
  if (again > 0) {
    const PoolScope scope(pool.get());
    read_again(model->model, out.sequence_, texts, before, again, progress);
  }
  out.set_form(form);
  return out;
}

void Session::set_form(QuestionForm form) {
  form_ = std::move(form);
  engine_.set_replay_wording(replay_wording(model_->tokenizer, form_.chat));
}

void Session::read_context(std::string_view text, std::string_view system) {
  const Tokenizer& tokenizer = model_->tokenizer;
  set_form(tokenizer.vocabulary().chat_template.empty()
               ? QuestionForm::raw(std::string(text))
               : QuestionForm::from_template(tokenizer, system, text));
  read(form_.begin(tokenizer));
  finish_prompt();
}

Generated Session::ask(std::string_view question, GenerateOptions options,
                       const std::function<bool(std::string_view)>& on_text) const {
  Session copy = clone();
  if (!prompt_finished() && tokens() > 0) copy.finish_prompt();
  copy.read(form_.question(model_->tokenizer, question));
  options.text_start = form_.chat;
  return copy.generate(options).run(on_text);
}

bool Session::read(std::span<const Token> tokens, PrefillOptions options) {
  unread_.insert(unread_.end(), tokens.begin(), tokens.end());
  if (unread_.empty()) return true;
  options.finish_prompt = false;
  const std::size_t before = this->tokens();
  std::vector<float> logits = engine_.prefill(sequence_, unread_, options);
  if (!logits.empty()) logits_ = std::move(logits);
  const auto done = unread_.begin() + static_cast<std::ptrdiff_t>(this->tokens() - before);
  unread_.erase(unread_.begin(), done);
  return unread_.empty();
}

bool Session::sync(std::span<const Token> tokens, PrefillOptions options) {
  require(!tokens.empty(), "a text without tokens");
  unread_.clear();
  const std::span<const Token> known = text();
  auto common = static_cast<std::size_t>(std::ranges::mismatch(known, tokens).in1 - known.begin());
  // The logits of the last token are wanted.
  if (common == tokens.size() && common == known.size() && !logits_.empty()) return true;
  common = std::min(common, tokens.size() - 1);
  if (const RecurrentStates* states = cache().recurrent()) common = states->reachable(common);
  if (common < this->tokens()) {
    logits_.clear();
    try {
      require(common > 0, "nothing in common");
      sequence_.truncate(common);
    } catch (const Error&) {  // or tokens have left the window since
      sequence_ = Sequence(model_->model, cache().options());
      common = 0;
    }
  }
  return read(tokens.subspan(common), std::move(options));
}

std::vector<float> Session::score(std::span<const Token> tokens, PrefillOptions options) {
  if (tokens.empty()) return {};
  require(std::ranges::none_of(tokens, [](Token token) { return token < 0; }),
          "the tokens of a picture have no probability");
  read({});
  require(!logits_.empty(), "no text stands before the tokens to score: read at least one first");
  std::vector<float> losses(tokens.size());
  losses[0] = static_cast<float>(token_loss(logits_, tokens[0]));
  options.all_logits = [&](std::size_t first, ConstMatrix logits) {
    for (std::size_t i = 0; i < logits.rows && first + i + 1 < tokens.size(); ++i) {
      losses[first + i + 1] = static_cast<float>(token_loss(logits[i], tokens[first + i + 1]));
    }
  };
  read(tokens, std::move(options));
  return losses;
}

void Session::require_prompt() const {
  require(!prompt_finished(), "the prompt of this context has ended already");
  require(tokens() > 0, "no text has been read: a prompt cannot end before it begins");
}

void Session::give_back_scratch() {
  if (cache().options().protocol != Protocol::prefill) return;
  engine_ = Engine(model_->model, pool_);  // without the scratch of a whole chunk
  set_form(std::move(form_));
}

bool Session::finish_prompt(const ReplayOptions& options) {
  require_prompt();
  if (!engine_.finish_prompt(sequence_, options)) return false;
  give_back_scratch();
  return true;
}

bool Session::finish_prompt(const ReplayOptions& options, std::optional<GaugeReading>& gauge) {
  require_prompt();
  gauge.reset();
  const bool can = Gauge::why_not(model_->model, cache().options()).empty();
  Gauge reader(replay_wording(model_->tokenizer, form_.chat));
  if (can) reader.read_exact(engine_, sequence_);
  if (!engine_.finish_prompt(sequence_, options)) return false;
  if (can) gauge = reader.read(engine_, sequence_);
  give_back_scratch();
  return true;
}

bool Session::finish_prompt(const ReplayOptions& options, const Guard& guard, Guarded& out) {
  require_prompt();
  ReplayOptions own = options;
  if (own.wording.empty()) own.wording = replay_wording(model_->tokenizer, form_.chat);
  if (!guard.finish(engine_, sequence_, own, out)) return false;
  give_back_scratch();
  return true;
}

bool Session::compact(std::size_t bytes, const ReplayOptions& options) {
  return engine_.compact(sequence_, bytes, options);
}

Session Session::clone() const {
  Session out(model_, sequence_.clone(), pool_);
  out.set_form(form_);
  out.logits_ = logits_;
  out.unread_ = unread_;
  return out;
}

void Session::save(const std::filesystem::path& path, std::string_view pack) const {
  require(prompt_finished() || cache().options().protocol == Protocol::stream,
          "{}: only a context whose prompt has ended can be saved: finish it", path.string());
  const PoolScope scope(pool_.get());
  if (pack == "off") {
    save_context(path, model_->model, cache(), form_.to_text(), sequence_.text());
  } else {
    save_packed_context(path, model_->model, cache(), pack_preset(model_->model, pack),
                        form_.to_text(), sequence_.text());
  }
}

Generation Session::generate(const GenerateOptions& options) {
  read({});
  require(!logits_.empty(), "nothing to go on from: read at least one token first");
  if (!prompt_finished()) finish_prompt();
  GenerateOptions own = options;
  own.chat |= form_.chat;
  return {engine_, sequence_, model_->tokenizer, logits_, own};
}

void Session::take_in(Generation& generation) {
  generation.cancel();
  const Generated& made = generation.result();
  if (made.last_unread) unread_.push_back(made.tokens.back().chosen.token);
  logits_.assign(generation.logits().begin(), generation.logits().end());
}

}  // namespace ballast
