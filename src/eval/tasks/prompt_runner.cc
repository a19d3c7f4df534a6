// Prefills a prompt once for several methods and generates their answers.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "ballast/engine/sampler.h"
#include "base/fail.h"
#include "base/stopwatch.h"
#include "eval/data/samples.h"
#include "eval/single_layer/head_attention.h"
#include "eval/single_layer/mean_entries.h"
#include "model/prefill_cost.h"
#include "text/question_form.h"

namespace ballast {
namespace {

/// Queries whose attention is compared with exact attention.
constexpr std::size_t kCompared = 32;

double attention_error(const Cache& exact, const Cache& cache) {
  double sum = 0;
  const CacheShape& shape = exact.shape();
  for (std::size_t l = 0; l < shape.layers; ++l) {
    for (std::size_t h = 0; h < shape.kv_heads; ++h) {
      const Matrix truth = answer_latest(exact, exact, l, h);
      const Matrix estimate = answer_latest(cache, exact, l, h);
      sum += relative_errors(estimate, truth, 1)[0];
    }
  }
  return sum / static_cast<double>(shape.layers * shape.kv_heads);
}

/// The bytes that --shares refer to: keys and values of all tokens read, in bfloat16.
std::size_t exact_bf16_bytes(const Cache& cache) {
  const CacheShape& s = cache.shape();
  return cache.tokens() * s.layers * s.kv_heads * (s.key_dim + s.value_dim) * sizeof(std::uint16_t);
}

/// The tokens of a prompt, before and after the point where it is summarized.
struct Prompt {
  std::vector<Token> before;
  std::vector<Token> after;
  bool chat = false;
  bool cut = false;
  std::size_t size() const { return before.size() + after.size(); }
};

/// Leaves out the middle of a text that is too long.
void cut_middle(std::vector<Token>& tokens, std::size_t keep) {
  const std::size_t head = keep / 2, tail = keep - head;
  const auto at = [&](std::size_t i) { return tokens.begin() + static_cast<std::ptrdiff_t>(i); };
  tokens.erase(at(head), at(tokens.size() - tail));
}

}  // namespace

/// The last prefilled text, for further variants of the same sample.
struct PromptRunner::Work {
  struct Reading {
    StorageType key_type, value_type;
    std::vector<Token> tokens;
    std::size_t expected = 0;
    Recording recording;
    Sequence sequence;
    std::vector<float> logits;
    double seconds = 0;
    double replay_seconds = 0;  ///< of the second reading, where a method asks for one
  };
  std::optional<Reading> reading;
  /// The rates found for --shares, by method, storage, share and length.
  std::map<std::string, double> rates;
};

PromptRunner::PromptRunner(Engine& engine, const Tokenizer& tokenizer, const AskOptions& options)
    : engine_(engine), tokenizer_(tokenizer), options_(options), work_(new Work) {}
PromptRunner::~PromptRunner() = default;

namespace {

/// Runs one sample.
class Question {
 public:
  Question(Engine& engine, const Tokenizer& tokenizer, const AskOptions& options,
           const Sample& sample)
      : engine_(engine), tokenizer_(tokenizer), options_(options), sample_(sample) {
    encode();
  }

  const Prompt& prompt() const { return prompt_; }
  std::size_t expected() const { return prompt_.size() + room_; }

  CacheOptions cache_options(const Variant& variant) const {
    CacheOptions out;
    out.policy = variant.policy;
    out.protocol = options_.protocol;
    out.positions = options_.positions;
    out.key_type = variant.key_type;
    out.value_type = variant.value_type;
    out.seed = variant.seed;
    out.expected_tokens = options_.protocol == Protocol::stream ? prompt_.size() : expected();
    return out;
  }

  ReplayOptions replay_options() const {
    return {replay_wording(tokenizer_, prompt_.chat), {}, {prompt_.after}};
  }

  std::vector<float> read(Sequence& sequence, std::span<const Token> tokens) const {
    PrefillOptions options;
    options.finish_prompt = false;
    return engine_.prefill(sequence, tokens, options);
  }

  /// Answers from a sequence that has read `before`, given the logits of its last token. `exact`:
  /// an exact cache of the same tokens for comparison, or null.
  Answered answer(Sequence& sequence, std::vector<float> logits, double read_seconds,
                  const Cache* exact = nullptr) const {
    Answered out;
    out.tokens = prompt_.size();
    out.cut = prompt_.cut;
    const Stopwatch compressing;
    engine_.finish_prompt(sequence, replay_options());
    out.compress_seconds = compressing.seconds();
    out.entries = mean_entries(sequence.cache());
    out.bytes = sequence.cache().bytes().used();
    out.exact_bytes = exact_bf16_bytes(sequence.cache());
    if (exact != nullptr) {
      Answered unused;  // NaN where attention has no value
      attempt(unused, [&] { out.attention_error = attention_error(*exact, sequence.cache()); });
    }
    if (!options_.show.empty() && options_.show == sample_.id) show(sequence.cache(), out);
    const Stopwatch reading;
    if (!prompt_.after.empty()) logits = read(sequence, prompt_.after);
    out.read_seconds = read_seconds + reading.seconds();
    const Stopwatch answering;
    attempt(out, [&] {
      if (sample_.choices.empty()) {
        write(sequence, std::move(logits), out);
      } else {
        choose(sequence, logits, out);
      }
    });
    out.answer_seconds = answering.seconds();
    if (!out.failure.empty()) {
      out.text.clear();
      out.choices.assign(sample_.choices.size(), -1e300);
    }
    return out;
  }

 private:
  /// A sampling method may yield an undefined estimate, which is then reported as such.
  static void attempt(Answered& out, const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      out.failure = error.what();
    }
  }
  void encode();
  void fit();
  void show(const Cache& cache, Answered& out) const;
  void write(Sequence& sequence, std::vector<float> logits, Answered& out) const;
  void choose(const Sequence& sequence, std::span<const float> logits, Answered& out) const;

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const AskOptions& options_;
  const Sample& sample_;
  Prompt prompt_;
  std::vector<std::vector<Token>> choices_;
  std::size_t room_ = 0;  ///< tokens of the answer
};

void Question::encode() {
  const bool has_template = !tokenizer_.vocabulary().chat_template.empty();
  prompt_.chat = has_template && !sample_.raw && !options_.raw;
  const QuestionForm form = prompt_.chat
                                ? QuestionForm::from_template(tokenizer_, "", sample_.context)
                                : QuestionForm::raw(sample_.context);
  if (sample_.context.empty()) {
    prompt_.before = form.whole(tokenizer_, sample_.question);
  } else {
    prompt_.before = form.begin(tokenizer_);
    prompt_.after = form.question(tokenizer_, sample_.question);
  }
  room_ = sample_.max_tokens;
  for (const std::string& choice : sample_.choices) {
    choices_.push_back(encode_more(tokenizer_, choice, false));
    require(!choices_.back().empty(), "sample {}: an empty choice", sample_.id);
    room_ = std::max(room_, choices_.back().size());
  }
  require(prompt_.size() > 0, "sample {}: an empty prompt", sample_.id);
  fit();
  if (!options_.question_later) {
    prompt_.before.insert(prompt_.before.end(), prompt_.after.begin(), prompt_.after.end());
    prompt_.after.clear();
  }
}

void Question::fit() {
  const std::size_t positions = engine_.model().config().max_positions;
  std::size_t longest = options_.longest != 0 ? options_.longest : positions;
  if (options_.positions == Positions::absolute) longest = std::min(longest, positions);
  if (expected() <= longest) return;
  if (options_.positions == Positions::rolling && options_.longest == 0) return;
  require(!options_.refuse_long,
          "sample {}: {} tokens and an answer of up to {}, but at most {} are read", sample_.id,
          prompt_.size(), room_, longest);
  require(longest > room_ + prompt_.after.size() + 1,
          "sample {}: a question of {} tokens and an answer of up to {} leave no room in {} tokens",
          sample_.id, prompt_.after.size(), room_, longest);
  cut_middle(prompt_.before, longest - room_ - prompt_.after.size());
  prompt_.cut = true;
}

/// Fills in `pieces` and `kept`.
void Question::show(const Cache& cache, Answered& out) const {
  for (const Token& token : prompt_.before) {
    out.pieces.push_back(tokenizer_.decode({&token, 1}, {.special = true, .text_start = false}));
  }
  const CacheShape& shape = cache.shape();
  for (std::size_t l = 0; l < shape.layers; ++l) {
    for (std::size_t h = 0; h < shape.kv_heads; ++h) {
      std::vector<bool> held((prompt_.before.size() + 3) / 4 * 4);
      for (const Segment& segment : cache.segments(l, h)) {
        for (std::size_t i = 0; i < segment.keys.rows; ++i) {
          const Position position = segment.positions != nullptr ? segment.positions[i]
                                    : segment.first_position >= 0
                                        ? segment.first_position + static_cast<Position>(i)
                                        : -1;
          if (position >= 0 && static_cast<std::size_t>(position) < prompt_.before.size()) {
            held[static_cast<std::size_t>(position)] = true;
          }
        }
      }
      std::string digits;
      for (std::size_t i = 0; i < held.size(); i += 4) {
        digits += "0123456789abcdef"[8 * held[i] + 4 * held[i + 1] + 2 * held[i + 2] + held[i + 3]];
      }
      out.kept.push_back(std::move(digits));
    }
  }
}

void Question::write(Sequence& sequence, std::vector<float> logits, Answered& out) const {
  GenerateOptions options;
  options.sampling.temperature = 0;
  options.max_tokens = sample_.max_tokens;
  options.stop = sample_.stop;
  options.ignore_end = sample_.whole_length;
  options.text_start = prompt_.chat;
  const Generated made = generate(engine_, sequence, tokenizer_, std::move(logits), {}, options);
  out.text = made.text;
  out.made = made.tokens.size();
}

void Question::choose(const Sequence& sequence, std::span<const float> logits,
                      Answered& out) const {
  // Each choice continues a copy of the same cache.
  for (const std::vector<Token>& choice : choices_) {
    double sum = -token_loss(logits, choice[0]);
    if (choice.size() > 1) {
      Sequence copy(engine_.model(), sequence.cache().clone());
      PrefillOptions options;
      options.finish_prompt = false;
      options.all_logits = [&](std::size_t first, ConstMatrix rows) {
        for (std::size_t i = 0; i < rows.rows; ++i) {
          sum -= token_loss(rows[i], choice[first + i + 1]);
        }
      };
      engine_.prefill(copy, std::span(choice).first(choice.size() - 1), options);
    }
    out.choices.push_back(sum);
    out.made += choice.size();
  }
}

}  // namespace

std::vector<Answered> PromptRunner::ask(const Sample& sample, const std::vector<Variant>& variants,
                                        const Advance& advance) {
  const Question question(engine_, tokenizer_, options_, sample);
  const Prompt& prompt = question.prompt();
  std::vector<Answered> out(variants.size());
  std::size_t done = 0;
  const auto step = [&] {
    if (advance) advance(static_cast<double>(++done) / static_cast<double>(variants.size()));
  };
  if (options_.protocol == Protocol::stream) {
    for (const Variant& variant : variants) {
      require(variant.share == 0 || variant.exact() || variant.policy.info().whole_cache,
              "--shares needs --protocol prefill: a share is found by trying several rates");
    }
    for (std::size_t v = 0; v < variants.size(); ++v) {
      CacheOptions options = question.cache_options(variants[v]);
      if (options.policy.info().whole_cache) {
        // The share is of what is read before the cache is asked.
        options.expected_tokens = prompt.before.size();
        if (variants[v].share > 0) options.policy = fit_share(variants[v]);
      }
      Sequence sequence(engine_.model(), options);
      engine_.set_replay_wording(question.replay_options().wording);
      const Stopwatch watch;
      std::vector<float> logits = question.read(sequence, prompt.before);
      const double seconds = watch.seconds();
      out[v] = question.answer(sequence, std::move(logits), seconds);
      step();
    }
    return out;
  }
  // What all methods want from one reading. Scores of a second reading are of one kind each.
  Recording common;
  common.queries = kCompared;
  for (const Variant& variant : variants) {
    if (variant.policy.attention_stats().replay == ReplayScore::none)
      common.include(variant.policy);
  }
  for (std::size_t v = 0; v < variants.size(); ++v) {
    const Variant& variant = variants[v];
    Recording recording = common;
    recording.include(variant.policy);
    std::optional<Work::Reading>& reading = work_->reading;
    if (!reading || reading->key_type != variant.key_type ||
        reading->value_type != variant.value_type || reading->tokens != prompt.before ||
        reading->expected < question.expected() ||
        (recording.attention_sum && !reading->recording.attention_sum) ||
        recording.queries > reading->recording.queries ||
        (recording.query_moments && !reading->recording.query_moments) ||
        (recording.replay != ReplayScore::none &&
         (recording.replay != reading->recording.replay ||
          recording.replay_chunk != reading->recording.replay_chunk ||
          recording.replay_own != reading->recording.replay_own))) {
      CacheOptions options = question.cache_options(variant);
      options.policy = Policy();
      options.recording = recording;
      reading.reset();  // frees its memory first
      reading.emplace(Work::Reading{variant.key_type,
                                    variant.value_type,
                                    prompt.before,
                                    options.expected_tokens,
                                    recording,
                                    Sequence(engine_.model(), options),
                                    {},
                                    0,
                                    0});
      const Stopwatch watch;
      reading->logits = question.read(reading->sequence, prompt.before);
      reading->seconds = watch.seconds();
      const Stopwatch replaying;
      engine_.replay(reading->sequence, question.replay_options());
      reading->replay_seconds = replaying.seconds();
    }
    Policy policy = variant.policy;
    if (variant.share > 0 && !variant.exact()) {
      policy = fit_share(variant);
    }
    Sequence fork = reading->sequence.fork(policy, variant.seed);
    out[v] = question.answer(fork, reading->logits, reading->seconds, &reading->sequence.cache());
    if (policy.attention_stats().replay != ReplayScore::none) {
      out[v].compress_seconds += reading->replay_seconds;
    }
    step();
  }
  return out;
}

double PromptRunner::cost(const Sample& sample) const {
  constexpr double kBytesPerToken = 3;  // between records of numbers and prose
  const double tokens =
      static_cast<double>(sample.context.size() + sample.question.size()) / kBytesPerToken;
  return prefill_cost(engine_.model().config(), tokens + 1);
}

/// The policy at the largest rate whose bytes are within the share of an exact cache. Texts of
/// similar length use the same rate.
Policy PromptRunner::fit_share(const Variant& variant) {
  if (variant.policy.info().whole_cache) {
    return variant.policy.with("bytes", fmt::format("{:.6f}", variant.share));
  }
  const Work::Reading& reading = *work_->reading;
  const std::string key = fmt::format(
      "{}/{}/{}/{}/{}", variant.method, static_cast<int>(variant.key_type),
      static_cast<int>(variant.value_type), variant.share, (reading.tokens.size() + 128) / 256);
  const auto at_rate = [&](double rate) {
    return variant.policy.with("rate", fmt::format("{:.6f}", rate));
  };
  const auto found = work_->rates.find(key);
  if (found != work_->rates.end()) return at_rate(found->second);
  const double allowed =
      variant.share * static_cast<double>(exact_bf16_bytes(reading.sequence.cache()));
  const auto used_at = [&](double rate) {
    Sequence fork = reading.sequence.fork(at_rate(rate), variant.seed);
    fork.finish_prompt();
    return static_cast<double>(fork.cache().bytes().used()) / allowed;
  };
  // Bytes are nearly linear in the rate, with steps. The secant method ends at a rate below the
  // target.
  double rate = variant.share, best = 0, least = HUGE_VAL, last_rate = 0, last_used = 0;
  for (int i = 0; i < 10; ++i) {
    const double used = used_at(rate);
    least = std::min(least, used * variant.share);
    if (used <= 1) best = std::max(best, rate);
    if (used <= 1 && used > 0.985) break;
    const double slope =
        i == 0 || used == last_used ? used / rate : (used - last_used) / (rate - last_rate);
    last_rate = rate;
    last_used = used;
    const double next = rate + (0.993 - used) / slope;
    rate = std::clamp(std::isfinite(next) ? next : rate / 2, 1e-6, 1.0);
    if (rate == last_rate) break;
  }
  require(
      best > 0,
      "method {}: of {} tokens it keeps {:.2f} of an exact cache's bytes at least, more than the "
      "share of {}; ask for a larger share or longer texts",
      variant.method, reading.tokens.size(), least, variant.share);
  work_->rates[key] = best;
  return at_rate(best);
}

Json Answered::to_json() const {
  Json json = {{"text", text},
               {"tokens", tokens},
               {"cut", cut},
               {"entries", entries},
               {"bytes", bytes},
               {"exact_bytes", exact_bytes},
               {"attention_error", std::isfinite(attention_error) ? Json(attention_error) : Json()},
               {"made", made},
               {"read_seconds", read_seconds},
               {"compress_seconds", compress_seconds},
               {"answer_seconds", answer_seconds}};
  if (!choices.empty()) json["choices"] = choices;
  if (!failure.empty()) json["failure"] = failure;
  if (!kept.empty()) {
    json["pieces"] = pieces;
    json["kept"] = kept;
  }
  return json;
}

Answered Answered::from_json(const Json& json) {
  Answered out;
  json.at("text").get_to(out.text);
  json.at("tokens").get_to(out.tokens);
  json.at("cut").get_to(out.cut);
  json.at("entries").get_to(out.entries);
  json.at("bytes").get_to(out.bytes);
  json.at("exact_bytes").get_to(out.exact_bytes);
  if (const Json& error = json.at("attention_error"); !error.is_null()) {
    error.get_to(out.attention_error);
  }
  json.at("made").get_to(out.made);
  json.at("read_seconds").get_to(out.read_seconds);
  json.at("compress_seconds").get_to(out.compress_seconds);
  json.at("answer_seconds").get_to(out.answer_seconds);
  if (json.contains("choices")) json["choices"].get_to(out.choices);
  if (json.contains("failure")) json["failure"].get_to(out.failure);
  if (json.contains("pieces")) json["pieces"].get_to(out.pieces);
  if (json.contains("kept")) json["kept"].get_to(out.kept);
  return out;
}

}  // namespace ballast
