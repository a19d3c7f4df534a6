#include "ballast/engine/generate.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "model/token_reader.h"
#include "text/answer/answer_text.h"

namespace ballast {

std::string_view to_string(Finish finish) {
  switch (finish) {
    case Finish::end:
      return "end";
    case Finish::stop:
      return "stop";
    case Finish::length:
      return "length";
    case Finish::positions:
      return "positions";
    case Finish::cancelled:
      return "cancelled";
  }
  return "";
}

float least_probability(const Generated& made) {
  float least = 0;
  for (const GeneratedToken& token : made.tokens) {
    least = std::min(least, token.chosen.log_probability);
  }
  return std::exp(least);
}

struct Generation::Impl {
  Impl(Engine& engine, Sequence& sequence, const Tokenizer& tokenizer, std::vector<float> logits,
       const GenerateOptions& options)
      : engine(engine),
        sequence(sequence),
        tokenizer(tokenizer),
        options(options),
        logits(std::move(logits)),
        reader(engine, sequence, this->options),
        sampler(options.sampling),
        answer(tokenizer,
               {.chat = options.chat || writes_channels(tokenizer),
                .thoughts_open = options.chat && ends_within_thoughts(tokenizer, sequence.text()),
                .split_thoughts = false,
                .text_start = options.text_start,
                .stop = options.stop}) {}

  Engine& engine;
  Sequence& sequence;
  const Tokenizer tokenizer;
  const GenerateOptions options;
  std::vector<float> logits;  ///< of the last token that the sequence has read
  TokenReader reader;
  Sampler sampler;
  AnswerText answer;
  Generated out;
  bool done = false;

  bool step(std::string& text);
  /// The text that was held back; false if there is none.
  bool end(std::string& text, Finish finish);
};

bool Generation::Impl::end(std::string& text, Finish finish) {
  done = true;
  reader.forget_drafts();
  out.finish = finish;
  text = answer.finish().text;
  if (answer.stopped()) out.finish = Finish::stop;
  out.text += text;
  return !text.empty();
}

bool Generation::Impl::step(std::string& text) {
  text.clear();
  if (done) return false;
  if (out.last_unread) {
    if (out.tokens.size() == options.max_tokens) return end(text, Finish::length);
    if (!reader.read(out.tokens.back().chosen.token)) return end(text, Finish::positions);
    logits.assign(reader.logits().begin(), reader.logits().end());
    out.passes = reader.passes();
    out.last_unread = false;
  }
  // The matrix may have more rows than the vocabulary has tokens; the rest has no text.
  const std::size_t known = std::min(logits.size(), tokenizer.size());
  const std::span<const float> chances = std::span(logits).first(known);
  const TokenChance chosen = sampler.sample(chances, reader.text());
  if (tokenizer.is_end(chosen.token) && !options.ignore_end) return end(text, Finish::end);
  out.tokens.push_back({chosen, {}});
  if (options.alternatives > 0) {
    out.tokens.back().likeliest = likeliest(chances, options.alternatives);
  }
  out.last_unread = true;
  text = answer.push(chosen.token).text;
  out.text += text;
  if (answer.stopped()) {
    reader.forget_drafts();
    out.finish = Finish::stop;
    done = true;
  }
  return true;
}

Generation::Generation(Engine& engine, Sequence& sequence, const Tokenizer& tokenizer,
                       std::vector<float> logits, const GenerateOptions& options)
    : impl_(std::make_unique<Impl>(engine, sequence, tokenizer, std::move(logits), options)) {}
Generation::~Generation() = default;
Generation::Generation(Generation&&) noexcept = default;
Generation& Generation::operator=(Generation&&) noexcept = default;

bool Generation::step(std::string& text) { return impl_->step(text); }

const Generated& Generation::run(const std::function<bool(std::string_view)>& on_text) {
  std::string text;
  while (step(text)) {
    if (!text.empty() && on_text && !on_text(text)) cancel();
  }
  return result();
}

void Generation::cancel() {
  if (impl_->done) return;
  impl_->done = true;
  impl_->reader.forget_drafts();
  impl_->out.finish = Finish::cancelled;
}

bool Generation::done() const { return impl_->done; }
const Generated& Generation::result() const { return impl_->out; }
std::span<const float> Generation::logits() const { return impl_->logits; }

Generated generate(Engine& engine, Sequence& sequence, const Tokenizer& tokenizer,
                   std::vector<float> logits, const GenerateOptions& options,
                   const std::function<bool(std::string_view)>& on_text) {
  return Generation(engine, sequence, tokenizer, std::move(logits), options).run(on_text);
}

}  // namespace ballast
