// Prefills a prompt once for several methods and generates their answers.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>

#include "ballast/engine/question_form.h"
#include "ballast/engine/sampler.h"
#include "ballast/engine/vision.h"
#include "base/fail.h"
#include "base/stopwatch.h"
#include "cache/byte_budget.h"
#include "cache/mean_entries.h"
#include "experiments/attention/head_attention.h"
#include "experiments/data/packed_variant.h"
#include "experiments/data/samples.h"
#include "model/prefill_cost.h"

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
  };
  /// A copy of it that was read again.
  struct Scored {
    Recording recording;
    Sequence sequence;
    double seconds = 0;  ///< of the replay pass
  };
  std::optional<Reading> reading;
  std::optional<Scored> scored;
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
    return {replay_wording(tokenizer_, prompt_.chat), {}, {}};
  }

  std::vector<float> read(Sequence& sequence, std::span<const Token> tokens) const {
    PrefillOptions options;
    options.finish_prompt = false;
    return engine_.prefill(sequence, tokens, options);
  }

  /// Ends the prompt of a sequence that has read `before`: all of Answered that the answer has no
  /// part in. `exact`: an exact cache of the same tokens for comparison, or null.
  static Answered summarise(Engine& engine, Sequence& sequence, const ReplayOptions& replay,
                            double read_seconds, const Cache* exact = nullptr) {
    Answered out;
    out.read_seconds = read_seconds;
    const Stopwatch compressing;
    const auto finish = [&] {
      require_bytes(sequence.cache());
      engine.finish_prompt(sequence, replay);
    };
    if (!attempt_to_fit(out, finish)) return out;
    out.compress_seconds = compressing.seconds();
    const Cache& cache = sequence.cache();
    out.entries = mean_entries(cache);
    out.bytes = cache.bytes().used();
    out.exact_bytes = exact_bf16_bytes(cache.shape(), cache.tokens());
    if (exact != nullptr) {
      Answered unused;  // NaN where attention has no value
      attempt(unused, [&] { out.attention_error = attention_error(*exact, cache); });
    }
    return out;
  }

  /// In place of an answer, for a method that cannot be so small.
  Answered unfit(Answered out) const {
    out.tokens = prompt_.size();
    out.cut = prompt_.cut;
    out.choices.assign(sample_.choices.size(), -1e300);
    return out;
  }

  /// Answers from a sequence whose prompt has ended, given the logits of its last token.
  Answered answer(Sequence& sequence, std::vector<float> logits, Answered out) const {
    out.tokens = prompt_.size();
    out.cut = prompt_.cut;
    if (!options_.show.empty() && options_.show == sample_.id) show(sequence.cache(), out);
    const Stopwatch reading;
    if (!prompt_.after.empty()) logits = read(sequence, prompt_.after);
    out.read_seconds += reading.seconds();
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

  /// Whether the work is done; if not, `out` says that the method cannot be so small. Only what
  /// divides a budget may run here.
  static bool attempt_to_fit(Answered& out, const std::function<void()>& work) {
    try {
      work();
    } catch (const Error& error) {
      if (error.code() != ErrorCode::invalid_argument) throw;
      out.failure = error.what();
      out.fits = false;
    }
    return out.fits;
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
  PictureTokens picture_;
  std::vector<std::vector<Token>> choices_;
  std::size_t room_ = 0;  ///< tokens of the answer
};

void Question::encode() {
  const bool has_template = !tokenizer_.vocabulary().chat_template.empty();
  prompt_.chat = has_template && !sample_.raw && !options_.raw;
  const QuestionForm form = prompt_.chat
                                ? QuestionForm::from_template(tokenizer_, "", sample_.context)
                                : QuestionForm::raw(sample_.context);
  // Without a template the beginning of the answer goes on in the question's last word.
  const std::string question = sample_.question + (prompt_.chat ? "" : sample_.answer_start);
  if (sample_.context.empty()) {
    prompt_.before = form.whole(tokenizer_, question);
  } else {
    prompt_.before = form.begin(tokenizer_);
    prompt_.after = form.question(tokenizer_, question);
  }
  if (!sample_.picture.empty()) {
    picture_ = options_.vision->read(read_picture(sample_.picture));
    prompt_.before = options_.vision->place(prompt_.before, {&picture_, 1});
  }
  if (prompt_.chat && !sample_.answer_start.empty()) {
    // In a turn of its own it begins without a blank.
    std::string_view start = sample_.answer_start;
    start.remove_prefix(std::min(start.find_first_not_of(' '), start.size()));
    const std::vector<Token> tokens = encode_more(tokenizer_, start, false);
    std::vector<Token>& last = sample_.context.empty() ? prompt_.before : prompt_.after;
    last.insert(last.end(), tokens.begin(), tokens.end());
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
    const bool seen = token < 0;  // of a picture
    out.pieces.push_back(
        seen ? "\uFFFC" : tokenizer_.decode({&token, 1}, {.special = true, .text_start = false}));
  }
  const CacheShape& shape = cache.shape();
  for (std::size_t l = 0; l < shape.layers; ++l) {
    for (std::size_t h = 0; h < shape.kv_heads; ++h) {
      std::vector<bool> held((prompt_.before.size() + 3) / 4 * 4);
      for (const KeptEntry& entry : cache.kept(l, h)) {
        const auto position = static_cast<std::size_t>(entry.position);
        if (position < prompt_.before.size()) held[position] = true;
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
  options.text_start = prompt_.chat && sample_.answer_start.empty();
  const Generated made = generate(engine_, sequence, tokenizer_, std::move(logits), options);
  out.text = made.text;
  out.made = made.tokens.size();
}

void Question::choose(const Sequence& sequence, std::span<const float> logits,
                      Answered& out) const {
  // Each choice continues a copy of the same cache.
  for (const std::vector<Token>& choice : choices_) {
    double sum = -token_loss(logits, choice[0]);
    if (choice.size() > 1) {
      Sequence copy = sequence.clone();
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

bool PromptRunner::share_context(const Sample& a, const Sample& b) const {
  return options_.question_later && !a.context.empty() && a.context == b.context && a.raw == b.raw;
}

std::vector<Answered> PromptRunner::ask(const Sample& sample, const std::vector<Variant>& variants,
                                        const Advance& advance) {
  return std::move(ask(std::span(&sample, 1), variants, advance)[0]);
}

std::vector<std::vector<Answered>> PromptRunner::ask(std::span<const Sample> samples,
                                                     const std::vector<Variant>& variants,
                                                     const Advance& advance, const Made& made) {
  std::vector<Question> questions;
  questions.reserve(samples.size());
  std::size_t expected = 0;
  for (const Sample& sample : samples) {
    questions.emplace_back(engine_, tokenizer_, options_, sample);
    expected = std::max(expected, questions.back().expected());
  }
  std::vector<std::vector<Answered>> out(samples.size());
  const std::vector<Token>& before = questions.at(0).prompt().before;
  const auto reads_alike = [&](const Question& q) { return q.prompt().before == before; };
  if (!std::ranges::all_of(questions, reads_alike)) {
    for (std::size_t i = 0; i < samples.size(); ++i) {
      out[i] = std::move(ask(samples.subspan(i, 1), variants, advance)[0]);
    }
    for (std::size_t v = 0; made && v < variants.size(); ++v) made(v, out);
    return out;
  }
  for (auto& of_sample : out) of_sample.resize(variants.size());
  ReplayOptions replay = questions[0].replay_options();
  for (const Question& question : questions) replay.questions.push_back(question.prompt().after);
  std::size_t done = 0;
  // Every question of a sequence that has read the context; null where the method does not fit.
  const auto answer = [&](std::size_t v, Sequence* sequence, const std::vector<float>& logits,
                          const Answered& summarised) {
    for (std::size_t i = 0; i < questions.size(); ++i) {
      if (!summarised.fits) {
        out[i][v] = questions[i].unfit(summarised);
      } else if (i + 1 == questions.size()) {
        out[i][v] = questions[i].answer(*sequence, logits, summarised);
      } else {
        Sequence copy = sequence->clone();
        out[i][v] = questions[i].answer(copy, logits, summarised);
      }
    }
    if (made) made(v, out);
    if (advance) advance(static_cast<double>(++done) / static_cast<double>(variants.size()));
  };
  if (options_.protocol == Protocol::stream) {
    for (const Variant& variant : variants) {
      require(variant.pack.empty(), "method {}: packing needs --protocol prefill", variant.method);
    }
    for (std::size_t v = 0; v < variants.size(); ++v) {
      CacheOptions options = questions[0].cache_options(variants[v]);
      // A share is of what is read before the cache is asked.
      if (options.policy.has("bytes")) options.expected_tokens = before.size();
      Answered summarised;
      std::vector<float> logits;
      std::optional<Sequence> sequence;
      const CacheShape shape = engine_.model().cache_shape(expected);
      Question::attempt_to_fit(summarised,
                               [&] { require_bytes(shape, options, options.expected_tokens); });
      if (summarised.fits) {
        sequence.emplace(engine_.model(), options);
        engine_.set_replay_wording(replay.wording);
        const Stopwatch watch;
        const auto work = [&] { logits = questions[0].read(*sequence, before); };
        if (options.policy.info().global_budget) {
          Question::attempt_to_fit(summarised, work);
        } else {
          work();
        }
        if (summarised.fits) {
          summarised = Question::summarise(engine_, *sequence, replay, watch.seconds());
        }
      }
      answer(v, sequence ? &*sequence : nullptr, logits, summarised);
    }
    return out;
  }
  // Variants of the same storage one after another, since they share a reading.
  std::vector<std::size_t> order;
  for (std::size_t v = 0; v < variants.size(); ++v) {
    for (std::size_t u = v; u < variants.size(); ++u) {
      if (variants[u].same_types(variants[v]) && std::ranges::find(order, u) == order.end()) {
        order.push_back(u);
      }
    }
  }
  for (std::size_t v : order) {
    const Variant& variant = variants[v];
    // What all methods of this storage want from one reading.
    Recording recording;
    recording.queries = kCompared;
    for (const Variant& other : variants) {
      if (!other.same_types(variant)) continue;
      if (recording.replay != ReplayScore::none || other.policy.needs().reads_again()) {
        recording.include_attention(other.policy);
      } else {
        recording.include(other.policy);
      }
    }
    std::optional<Work::Reading>& reading = work_->reading;
    std::optional<Work::Scored>& scored = work_->scored;
    if (!reading || reading->key_type != variant.key_type ||
        reading->value_type != variant.value_type || reading->tokens != before ||
        reading->expected < expected ||
        (recording.attention_sum && !reading->recording.attention_sum) ||
        recording.queries > reading->recording.queries ||
        (recording.query_moments && !reading->recording.query_moments) ||
        (recording.replay != ReplayScore::none && reading->recording.replay == ReplayScore::none)) {
      CacheOptions options = questions[0].cache_options(variant);
      options.policy = Policy();
      options.recording = recording;
      options.expected_tokens = expected;
      scored.reset();  // frees their memory first
      reading.reset();
      reading.emplace(Work::Reading{variant.key_type,
                                    variant.value_type,
                                    before,
                                    options.expected_tokens,
                                    recording,
                                    Sequence(engine_.model(), options),
                                    {},
                                    0});
      const Stopwatch watch;
      reading->logits = questions[0].read(reading->sequence, before);
      reading->seconds = watch.seconds();
    }
    const bool again = variant.policy.needs().reads_again();
    if (again) {
      // A replay pass finds scores of one kind.
      Recording wanted = reading->recording;
      wanted.replay = ReplayScore::none;
      wanted.include(variant.policy);
      const auto same_kind = [&](const Recording& x) {
        return x.replay == wanted.replay && x.replay_chunk == wanted.replay_chunk &&
               x.replay_own == wanted.replay_own;
      };
      if (!scored || !same_kind(scored->recording)) {
        scored.reset();
        scored.emplace(Work::Scored{wanted, reading->sequence.fork(wanted), 0});
        const Stopwatch watch;
        engine_.replay(scored->sequence, replay);
        scored->seconds = watch.seconds();
      }
    }
    const Sequence& read = again ? scored->sequence : reading->sequence;
    Sequence fork = read.fork(variant.policy, variant.seed);
    // The reading in bf16 has other queries than one in fewer bits.
    const Cache* exact = variant.storage_only() ? nullptr : &reading->sequence.cache();
    Answered summarised = Question::summarise(engine_, fork, replay, reading->seconds, exact);
    if (again) summarised.compress_seconds += scored->seconds;
    if (!variant.pack.empty()) {
      const Stopwatch watch;
      Unpacked unpacked = through_packing(engine_.model(), fork, variant.pack);
      summarised.compress_seconds += watch.seconds();
      summarised.bytes = unpacked.bytes;
      answer(v, &unpacked.sequence, reading->logits, summarised);
      continue;
    }
    answer(v, &fork, reading->logits, summarised);
  }
  return out;
}

double PromptRunner::cost(const Sample& sample) const {
  constexpr double kBytesPerToken = 3;  // between records of numbers and prose
  const double tokens =
      static_cast<double>(sample.context.size() + sample.question.size()) / kBytesPerToken;
  return prefill_cost(engine_.model().config(), tokens + 1);
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
  if (!fits) json["fits"] = false;
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
  out.fits = json.value("fits", true);
  if (json.contains("pieces")) json["pieces"].get_to(out.pieces);
  if (json.contains("kept")) json["kept"].get_to(out.kept);
  return out;
}

}  // namespace ballast
