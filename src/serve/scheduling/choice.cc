#include "serve/scheduling/choice.h"

#include <algorithm>
#include <cmath>

#include "ballast/engine/question_form.h"

namespace ballast::serve {
namespace {

SamplingOptions sampling_of(const Job& job, std::size_t number) {
  SamplingOptions out = job.generate.sampling;
  out.seed += number;
  return out;
}

void take(AnswerText::Parts parts, Piece& piece) {
  piece.thoughts += parts.thoughts;
  piece.text += parts.text;
  std::ranges::move(parts.calls, std::back_inserter(piece.calls));
}

}  // namespace

Choice::Choice(const Tokenizer& tokenizer, const Job& job, std::size_t number,
               std::size_t positions, Sequence& sequence, std::unique_ptr<Sequence> copy)
    : tokenizer_(tokenizer),
      options_(job.generate),
      number_(number),
      positions_(positions),
      shows_end_(job.score_prompt),
      sampler_(sampling_of(job, number)),
      text_(tokenizer, {.chat = job.chat,
                        .thoughts_open = job.thoughts_open,
                        .split_thoughts = job.split_thoughts,
                        .text_start = options_.text_start,
                        .functions = job.functions,
                        .stop = options_.stop}),
      thinking_budget_(job.thinking_budget),
      past_(job.prompt),
      own_(std::move(copy)),
      sequence_(own_ ? own_.get() : &sequence) {
  if (job.grammar) held_.emplace(*job.grammar);
  if (text_.thinks() && thinking_budget_ == 0) close_thoughts();
}

void Choice::close_thoughts() {
  closing_ = encode_more(tokenizer_,
                         writes_channels(tokenizer_) ? kToFinalChannel : "\n</think>\n\n", true);
  std::ranges::reverse(closing_);
  thinking_budget_.reset();
}

Piece Choice::advance(std::span<const float> logits, const TokenTexts* texts) {
  // The matrix may have more rows than the vocabulary has tokens; the rest has no text.
  std::span<const float> chances = logits.first(std::min(logits.size(), tokenizer_.size()));
  std::vector<float> masked;
  if (held_) {
    masked.assign(chances.begin(), chances.end());
    if (texts->mask(*held_, masked) == 0) {
      throw ApiError(500, "no_token",
                     "the vocabulary has no token that the answer could go on with");
    }
    chances = masked;
  }
  TokenChance chosen;
  if (closing_.empty()) {
    chosen = sampler_.sample(chances, past_);
  } else {
    chosen.token = closing_.back();
    chosen.log_probability = static_cast<float>(-token_loss(chances, chosen.token));
    closing_.pop_back();
  }
  Piece piece;
  piece.choice = number_;
  const bool ends = tokenizer_.is_end(chosen.token) && !options_.ignore_end;
  // lm-eval counts on a token behind those of a prompt that is scored, whichever it is.
  if (!ends || shows_end_) {
    GeneratedToken token{chosen, {}};
    if (options_.alternatives > 0) token.likeliest = likeliest(chances, options_.alternatives);
    // JSON has no word for the chance of what cannot follow.
    std::erase_if(token.likeliest,
                  [](const TokenChance& other) { return std::isinf(other.log_probability); });
    piece.tokens.push_back(std::move(token));
  }
  if (ends) {
    piece.finish = Finish::end;
  } else {
    ++made_;
    least_ = std::min(least_, std::exp(chosen.log_probability));
    past_.push_back(chosen.token);
    take(text_.push(chosen.token), piece);
    if (text_.thinks() && thinking_budget_ && made_ >= *thinking_budget_) close_thoughts();
    if (held_) held_->push((*texts)[static_cast<std::size_t>(chosen.token)]);
    const bool complete = held_ && held_->done();
    if (text_.stopped()) {
      piece.finish = Finish::stop;
    } else if (complete) {
      piece.finish = Finish::end;
    } else if (made_ == options_.max_tokens) {
      piece.finish = Finish::length;
    } else if (sequence_->positions_after(1) > positions_) {
      piece.finish = Finish::positions;
    }
  }
  if (piece.finish && *piece.finish != Finish::stop) {
    take(text_.finish(), piece);
    if (text_.stopped()) piece.finish = Finish::stop;
  }
  piece.thinks = text_.thinks();
  piece.stop = text_.stop();
  next_ = piece.finish ? kNoToken : chosen.token;
  return piece;
}

std::span<const float> Choice::read(Engine& engine) {
  if (!reader_) reader_.emplace(engine, *sequence_, options_);
  reader_->read(next_);
  return reader_->logits();
}

void Choice::forget_drafts() {
  if (reader_) reader_->forget_drafts();
}

}  // namespace ballast::serve
