#include "bindings/session.h"

#include <algorithm>
#include <utility>

#include "ballast/engine/context_file.h"
#include "ballast/engine/gguf.h"
#include "base/fail.h"
#include "text/tokenizer/check_sizes.h"

namespace ballast {
namespace {

Tokenizer tokenizer_of(const Model& model) {
  if (const Gguf* gguf = model.file().gguf()) return Tokenizer(read_vocabulary(*gguf));
  return Tokenizer(read_vocabulary(model.file().tokenizer().folder));
}

/// Throws Error with the figures when there is no memory for the tokens expected.
Sequence checked_sequence(const Model& model, const CacheOptions& options) {
  const std::size_t tokens = std::max<std::size_t>(1, options.expected_tokens);
  require_memory(model.estimate(options, tokens), available_memory(), "this context");
  return {model, options};
}

}  // namespace

TextModel::TextModel(const std::string& path) : model(path), tokenizer(tokenizer_of(model)) {
  check_rows(tokenizer, model.config().vocabulary, path);
}

Session::Session(std::shared_ptr<const TextModel> model, const CacheOptions& options)
    : model_(std::move(model)),
      pool_(options.pool),
      engine_(model_->model, pool_),
      sequence_(checked_sequence(model_->model, options)) {
  set_replay_wording();
}

Session::Session(std::shared_ptr<const TextModel> model, Cache cache,
                 std::shared_ptr<ThreadPool> pool)
    : model_(std::move(model)),
      pool_(std::move(pool)),
      engine_(model_->model, pool_),
      sequence_(model_->model, std::move(cache)) {
  sequence_.cache().set_pool(pool_);
  set_replay_wording();
}

void Session::set_replay_wording() {
  const bool chat = !model_->tokenizer.vocabulary().chat_template.empty();
  engine_.set_replay_wording(replay_wording(model_->tokenizer, chat));
}

void Session::remember(std::span<const Token> tokens) {
  history_.insert(history_.end(), tokens.begin(), tokens.end());
}

std::vector<float> Session::prefill(std::span<const Token> tokens, PrefillOptions options) {
  options.finish_prompt = false;
  std::vector<float> logits = engine_.prefill(sequence_, tokens, options);
  remember(tokens);
  return logits;
}

void Session::read(std::span<const Token> tokens) {
  if (!unread_.empty()) {
    logits_ = engine_.prefill(sequence_, unread_, {.finish_prompt = false});
    unread_.clear();
  }
  if (!tokens.empty()) logits_ = prefill(tokens, {});
}

std::vector<float> Session::score(std::span<const Token> tokens) {
  if (tokens.empty()) return {};
  read({});
  require(!logits_.empty(), "no text stands before the tokens to score: read at least one first");
  std::vector<float> losses(tokens.size());
  losses[0] = static_cast<float>(token_loss(logits_, tokens[0]));
  logits_ = prefill(tokens, {.all_logits = [&](std::size_t first, ConstMatrix logits) {
                      for (std::size_t i = 0; i < logits.rows; ++i) {
                        const std::size_t next = first + i + 1;
                        if (next == tokens.size()) break;
                        losses[next] = static_cast<float>(token_loss(logits[i], tokens[next]));
                      }
                    }});
  return losses;
}

void Session::finish_prompt(bool chat) {
  require(!prompt_finished(), "the prompt of this context has ended already");
  require(tokens() > 0, "no text has been read: a prompt cannot end before it begins");
  const bool has_template = !model_->tokenizer.vocabulary().chat_template.empty();
  engine_.finish_prompt(sequence_, {replay_wording(model_->tokenizer, chat && has_template), {}});
}

Session Session::clone() const {
  require(prompt_finished(), "only a context whose prompt has ended can be copied: finish it");
  Session out(model_, sequence_.cache().clone(), pool_);
  out.logits_ = logits_;
  out.history_ = history_;
  out.unread_ = unread_;
  return out;
}

void Session::save(const std::string& path, std::string_view form) const {
  require(prompt_finished(), "{}: only a context whose prompt has ended can be saved: finish it",
          path);
  save_context(path, model_->model, sequence_.cache(), form);
}

Generation Session::generate(const GenerateOptions& options, bool chat) {
  read({});
  require(!logits_.empty(), "nothing to go on from: read at least one token first");
  if (!prompt_finished()) finish_prompt(chat);
  return {engine_, sequence_, model_->tokenizer, logits_, history_, options};
}

void Session::take_in(const Generation& generation) {
  const Generated& made = generation.result();
  for (const GeneratedToken& token : made.tokens) history_.push_back(token.chosen.token);
  if (made.last_unread) unread_.push_back(made.tokens.back().chosen.token);
  logits_.assign(generation.logits().begin(), generation.logits().end());
}

}  // namespace ballast
