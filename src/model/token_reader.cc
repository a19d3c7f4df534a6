#include "model/token_reader.h"

#include <algorithm>
#include <chrono>

namespace ballast {
namespace {

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Whether tokens can be taken back one by one: see Cache::truncate.
bool can_go_back(const Sequence& sequence) {
  const CacheOptions& options = sequence.cache().options();
  return options.protocol == Protocol::prefill && options.policy.keeps_generated() &&
         !options.needs_queries() && sequence.cache().recurrent() == nullptr &&
         sequence.prompt_finished();
}

}  // namespace

TokenReader::TokenReader(Engine& engine, Sequence& sequence, const GenerateOptions& options)
    : engine_(engine),
      sequence_(sequence),
      on_attention_(options.on_attention),
      drafts_(options.drafts && !options.on_attention && can_go_back(sequence) &&
              engine.model().layer_share() == nullptr),
      rows_(1, engine.vocabulary()) {}

std::span<const Token> TokenReader::text() const {
  const std::span<const Token> all = sequence_.text();
  return all.first(all.size() - (drafted_.size() - at_));
}

void TokenReader::forget_drafts() {
  if (drafted_.size() > at_) sequence_.truncate(sequence_.tokens() - (drafted_.size() - at_));
  if (!drafted_.empty()) {
    length_.passed(drafted_.size(), at_, seconds_);
    std::ranges::copy(rows_[at_], rows_[0].begin());
  }
  drafted_.clear();
  at_ = 0;
}

std::span<const Token> TokenReader::draft(Token token) {
  if (!drafts_) return {};
  lookup_.add(text().subspan(lookup_.size()));
  lookup_.add({&token, 1});
  // One position stays for the token that the pass chooses.
  const std::size_t used = sequence_.positions_after(2);
  const std::size_t most = engine_.model().config().max_positions;
  if (used >= most) return {};
  return lookup_.next(std::min(length_.next(), most - used));
}

bool TokenReader::read(Token token) {
  if (at_ < drafted_.size() && drafted_[at_] == token) {
    ++at_;
    return true;
  }
  forget_drafts();
  if (sequence_.positions_after(1) > engine_.model().config().max_positions) return false;
  ++passes_;
  const std::span<const Token> found = draft(token);
  if (found.empty()) {
    const double seconds =
        seconds_of([&] { engine_.decode(sequence_, token, rows_[0], on_attention_); });
    length_.plain(seconds);
    return true;
  }
  std::vector<Token> tokens = {token};
  tokens.insert(tokens.end(), found.begin(), found.end());
  // As many rows as drafts have needed: vocabularies are large.
  if (rows_.rows() < tokens.size()) rows_ = Matrix(tokens.size(), rows_.cols());
  PrefillOptions options;
  options.finish_prompt = false;
  options.all_logits = [&](std::size_t first, ConstMatrix logits) {
    for (std::size_t i = 0; i < logits.rows; ++i) {
      std::ranges::copy(logits[i], rows_[first + i].begin());
    }
  };
  seconds_ = seconds_of([&] { engine_.prefill(sequence_, tokens, options); });
  drafted_.assign(tokens.begin() + 1, tokens.end());
  return true;
}

}  // namespace ballast
