#include "ballast/engine/generate.h"

#include <algorithm>

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

Generated generate(Engine& engine, Sequence& sequence, const Tokenizer& tokenizer,
                   std::vector<float> logits, std::span<const Token> history,
                   const GenerateOptions& options,
                   const std::function<bool(std::string_view)>& on_text) {
  Sampler sampler(options.sampling);
  TokenStream stream(tokenizer, {.text_start = options.text_start});
  StopFilter filter(options.stop);
  std::vector<Token> past(history.begin(), history.end());
  Generated out;
  auto emit = [&](const std::string& text) {
    out.text += text;
    return text.empty() || !on_text || on_text(text);
  };
  // The matrix may have more rows than the vocabulary has tokens; the rest has no text.
  const std::size_t known = std::min(logits.size(), tokenizer.size());
  while (true) {
    const std::span<const float> chances = std::span(logits).first(known);
    const TokenChance chosen = sampler.sample(chances, past);
    if (tokenizer.is_end(chosen.token) && !options.ignore_end) break;
    out.tokens.push_back({chosen, {}});
    if (options.alternatives > 0) {
      out.tokens.back().likeliest = likeliest(chances, options.alternatives);
    }
    past.push_back(chosen.token);
    out.last_unread = true;
    const bool wanted = emit(filter.push(stream.push(chosen.token)));
    if (filter.found()) {
      out.finish = Finish::stop;
      return out;
    }
    if (!wanted) {
      out.finish = Finish::cancelled;
      return out;
    }
    if (out.tokens.size() == options.max_tokens) {
      out.finish = Finish::length;
      break;
    }
    if (sequence.positions_after(1) > engine.model().config().max_positions) {
      out.finish = Finish::positions;
      break;
    }
    engine.decode(sequence, chosen.token, logits);
    out.last_unread = false;
  }
  emit(filter.push(stream.flush()));
  if (filter.found()) {
    out.finish = Finish::stop;
  } else {
    emit(filter.flush());
  }
  return out;
}

}  // namespace ballast
