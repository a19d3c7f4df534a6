#include "ballast/engine/generate.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"

namespace ballast {
namespace {

/// Holds text back until no stop string can begin in it.
class StopFilter {
 public:
  explicit StopFilter(const std::vector<std::string>& stops) : stops_(stops) {
    for (const std::string& stop : stops) require(!stop.empty(), "an empty stop string");
  }

  /// Appends text and returns the part that is certain.
  std::string push(std::string_view text) {
    held_ += text;
    std::size_t end = std::string::npos;
    for (const std::string& stop : stops_) end = std::min(end, held_.find(stop));
    found_ = end != std::string::npos;
    return take(found_ ? end : held_.size() - longest_beginning());
  }
  std::string flush() { return take(held_.size()); }
  bool found() const { return found_; }

 private:
  std::string take(std::size_t count) {
    std::string out = held_.substr(0, count);
    held_.erase(0, count);
    return out;
  }
  /// Length of the longest suffix of the text that is a prefix of a stop string.
  std::size_t longest_beginning() const {
    std::size_t longest = 0;
    for (const std::string& stop : stops_) {
      for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > longest; --n) {
        if (std::string_view(held_).ends_with(std::string_view(stop).substr(0, n))) longest = n;
      }
    }
    return longest;
  }

  const std::vector<std::string>& stops_;
  std::string held_;
  bool found_ = false;
};

}  // namespace

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

struct Generation::Impl {
  Impl(Engine& engine, Sequence& sequence, const Tokenizer& tokenizer, std::vector<float> logits,
       std::span<const Token> history, const GenerateOptions& options)
      : engine(engine),
        sequence(sequence),
        tokenizer(tokenizer),
        options(options),
        logits(std::move(logits)),
        past(history.begin(), history.end()),
        sampler(options.sampling),
        stream(tokenizer, {.text_start = options.text_start}),
        filter(this->options.stop) {}

  Engine& engine;
  Sequence& sequence;
  const Tokenizer tokenizer;
  const GenerateOptions options;
  std::vector<float> logits;
  std::vector<Token> past;
  Sampler sampler;
  TokenStream stream;
  StopFilter filter;
  Generated out;
  bool done = false;

  bool step(std::string& text);
  /// The text that was held back; false if there is none.
  bool end(std::string& text, Finish finish);
};

bool Generation::Impl::end(std::string& text, Finish finish) {
  done = true;
  out.finish = finish;
  text = filter.push(stream.flush());
  if (filter.found()) {
    out.finish = Finish::stop;
  } else {
    text += filter.flush();
  }
  out.text += text;
  return !text.empty();
}

bool Generation::Impl::step(std::string& text) {
  text.clear();
  if (done) return false;
  if (out.last_unread) {
    if (out.tokens.size() == options.max_tokens) return end(text, Finish::length);
    if (sequence.positions_after(1) > engine.model().config().max_positions) {
      return end(text, Finish::positions);
    }
    engine.decode(sequence, out.tokens.back().chosen.token, logits);
    out.last_unread = false;
  }
  // The matrix may have more rows than the vocabulary has tokens; the rest has no text.
  const std::size_t known = std::min(logits.size(), tokenizer.size());
  const std::span<const float> chances = std::span(logits).first(known);
  const TokenChance chosen = sampler.sample(chances, past);
  if (tokenizer.is_end(chosen.token) && !options.ignore_end) return end(text, Finish::end);
  out.tokens.push_back({chosen, {}});
  if (options.alternatives > 0) {
    out.tokens.back().likeliest = likeliest(chances, options.alternatives);
  }
  past.push_back(chosen.token);
  out.last_unread = true;
  text = filter.push(stream.push(chosen.token));
  out.text += text;
  if (filter.found()) {
    out.finish = Finish::stop;
    done = true;
  }
  return true;
}

Generation::Generation(Engine& engine, Sequence& sequence, const Tokenizer& tokenizer,
                       std::vector<float> logits, std::span<const Token> history,
                       const GenerateOptions& options)
    : impl_(std::make_unique<Impl>(engine, sequence, tokenizer, std::move(logits), history,
                                   options)) {}
Generation::~Generation() = default;
Generation::Generation(Generation&&) noexcept = default;
Generation& Generation::operator=(Generation&&) noexcept = default;

bool Generation::step(std::string& text) { return impl_->step(text); }

void Generation::cancel() {
  if (impl_->done) return;
  impl_->done = true;
  impl_->out.finish = Finish::cancelled;
}

bool Generation::done() const { return impl_->done; }
const Generated& Generation::result() const { return impl_->out; }
std::span<const float> Generation::logits() const { return impl_->logits; }

Generated generate(Engine& engine, Sequence& sequence, const Tokenizer& tokenizer,
                   std::vector<float> logits, std::span<const Token> history,
                   const GenerateOptions& options,
                   const std::function<bool(std::string_view)>& on_text) {
  Generation generation(engine, sequence, tokenizer, std::move(logits), history, options);
  std::string text;
  while (generation.step(text)) {
    if (!text.empty() && on_text && !on_text(text)) generation.cancel();
  }
  return generation.result();
}

}  // namespace ballast
