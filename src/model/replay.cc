// Replay passes: a text is read again, so that its cache knows which entries are looked at.
#include <algorithm>
#include <cmath>
#include <functional>

#include "ballast/engine/generate.h"
#include "ballast/engine/question_form.h"
#include "ballast/scoring.h"
#include "base/fail.h"
#include "base/os/memory.h"
#include "base/thread_pool.h"
#include "model/forward.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

/// Tokens before a chunk that its replay pass begins with.
constexpr std::size_t kOverlap = 8;

/// For each query head W_O^T W_O of its columns of the output projection, one below the other.
/// Where a norm follows the projection (Gemma 2), its weights scale the rows; its divisor is left
/// out.
Matrix output_grams(const ModelConfig& config, const LayerWeights& weights) {
  const std::size_t dim = config.value_dim;
  Matrix grams(config.heads * dim, dim);
  const Norm& norm = weights.post_attention_norm;
  std::vector<float> row(config.heads * dim);
  // In blocks of rows, so that the heads share what is decoded.
  constexpr std::size_t kRows = 64;
  Matrix block(kRows, row.size());
  for (std::size_t begin = 0; begin < config.width; begin += kRows) {
    const std::size_t count = std::min(kRows, config.width - begin);
    for (std::size_t i = 0; i < count; ++i) {
      weights.attention_output.decode_row(begin + i, block[i]);
      if (norm.there()) {
        for (float& x : block[i]) x *= norm.weight[begin + i];
      }
    }
    parallel_for(config.heads, [&](std::size_t h) {
      for (std::size_t i = 0; i < count; ++i) {
        const std::span<const float> part = block[i].subspan(h * dim, dim);
        for (std::size_t a = 0; a < dim; ++a) kernels::axpy(part[a], part, grams[h * dim + a]);
      }
    });
  }
  return grams;
}

/// chunk= of the method, or of the recording for another method's sake.
std::size_t chunk_of(const CacheOptions& options) {
  return options.policy.info().global_budget
             ? static_cast<std::size_t>(options.policy.integer("chunk"))
             : options.recording.replay_chunk;
}

/// The caller of a replay pass wants it to end.
struct Stopped {};

/// Tokens that see what a cache has read, and score it. Nothing of them stays.
class ReplayAttention : public Attention {
 public:
  /// `read`: Scoring::replay or Scoring::replay_question. `tell`: called after each layer.
  ReplayAttention(Cache& cache, decltype(&Scoring::replay) read, std::function<void()> tell)
      : cache_(cache), read_(read), tell_(std::move(tell)) {}

  /// Tokens behind the text, or as far behind its start as the model's positions allow.
  Run run_of(std::span<const Token> tokens, std::size_t positions) {
    return {.tokens = tokens,
            .first = std::min(cache_.tokens(), positions - tokens.size()),
            .shape = &cache_.shape(),
            .states = cache_.recurrent(),
            .keeps_states = false};
  }

  bool wants_all_queries() const override { return true; }
  void run(const AttentionRows& rows) override {
    weights_.resize(rows.residual.rows);
    for (std::size_t t = 0; t < weights_.size(); ++t) {
      const float square = kernels::dot(rows.residual[t], rows.residual[t]);
      weights_[t] = square > 0.0f ? 1.0f / std::sqrt(square) : 0.0f;
    }
    (scoring_of(cache_).*read_)(rows.layer, rows.keys, rows.values, rows.queries, weights_,
                                rows.outputs);
    if (tell_) tell_();
  }

 private:
  Cache& cache_;
  decltype(&Scoring::replay) read_;
  std::function<void()> tell_;
  std::vector<float> weights_;  ///< 1 / |residual| of each token
};

}  // namespace

ReplayWording replay_wording(const Tokenizer& tokenizer, bool chat) {
  ReplayWording out;
  if (!chat || tokenizer.vocabulary().chat_template.empty()) {
    out.first = out.later = encode_more(tokenizer, "\n", false);
    return out;
  }
  out.first = encode_more(tokenizer, "\n\nRepeat the previous context exactly.", false);
  out.later = encode_more(
      tokenizer, "\n\nRepeat the part of the previous context exactly, starting with", false);
  out.after = encode_more(tokenizer, QuestionForm::from_template(tokenizer, "", "").after, true);
  return out;
}

void Engine::set_replay_wording(ReplayWording wording) { replay_wording_ = std::move(wording); }

bool Engine::replay(Sequence& sequence, const ReplayOptions& options) {
  const PoolScope scope(pool_.get());
  const Cache& cache = sequence.cache();
  const bool due = scoring_of(cache).needs_replay() || scoring_of(cache).chunk_room() == 0;
  return !due || read_again(sequence, options);
}

bool Engine::compact(Sequence& sequence, std::size_t bytes, const ReplayOptions& options) {
  const PoolScope scope(pool_.get());
  Cache& cache = sequence.cache();
  if (model().exact_bytes(cache) <= bytes) return true;
  if (scoring_of(cache).chunk_tokens() > 0) return read_again(sequence, options, bytes);
  scoring_of(cache).compact(bytes);
  return true;
}

bool Engine::read_again(Sequence& sequence, const ReplayOptions& options, std::size_t bytes) try {
  Cache& cache = sequence.cache();
  const auto divide = [&] {
    bytes == 0 ? scoring_of(cache).end_chunk() : scoring_of(cache).compact(bytes);
  };
  if (scoring_of(cache).takes_scores()) {  // scored as it was read
    divide();
    return true;
  }
  const ModelConfig& config = model().config();
  const bool streams = cache.options().protocol == Protocol::stream;
  const std::size_t due = streams ? scoring_of(cache).chunk_tokens() : sequence.tokens();
  require(sequence.text().size() >= due,
          "a replay pass needs all {} tokens of the text, of which {} are known", due,
          sequence.text().size());
  const std::span<const Token> text =
      sequence.text().last(std::min(sequence.text().size(), due + kOverlap));
  const std::size_t chunk = chunk_of(cache.options());
  std::size_t done = text.size() - due;
  const auto tell = [&] {
    if (options.progress && !options.progress(done, text.size())) throw Stopped{};
  };
  std::vector<Matrix>& kept = output_grams_;
  for (std::size_t l = 0; l < cache.shape().layers; ++l) {
    const LayerWeights& weights = model().weights().attention(l);
    if (streams && kept.size() == l) kept.push_back(output_grams(config, weights));
    scoring_of(cache).start_replay(
        l, l < kept.size() ? kept[l].view() : output_grams(config, weights).view());
    tell();
  }
  ReplayAttention attention(cache, &Scoring::replay, tell);
  const ReplayWording& wording = options.wording.empty() ? replay_wording_ : options.wording;
  std::vector<Token> tokens;
  while (done < text.size()) {
    const std::size_t end = std::min(done + chunk, text.size());
    const std::span<const Token> before =
        text.subspan(done - std::min(done, kOverlap), std::min(done, kOverlap));
    const std::vector<Token>& words = done == 0 ? wording.first : wording.later;
    tokens.assign(words.begin(), words.end());
    tokens.insert(tokens.end(), before.begin(), before.end());
    tokens.insert(tokens.end(), wording.after.begin(), wording.after.end());
    tokens.insert(tokens.end(), text.begin() + static_cast<std::ptrdiff_t>(done),
                  text.begin() + static_cast<std::ptrdiff_t>(end));
    require(tokens.size() <= config.max_positions, ErrorCode::over_limit,
            "a chunk of {} tokens is read again, but the model has {} positions", tokens.size(),
            config.max_positions);
    const Run run = attention.run_of(tokens, config.max_positions);
    forward_->run({&run, 1}, attention, 0);
    done = end;
    tell();
  }
  if (streams) {
    divide();
    trim_heap();  // what a chunk was read with leaves holes
  }
  return true;
} catch (const Stopped&) {
  scoring_of(sequence.cache()).discard_replay();
  return false;
}

bool Engine::finish_prompt(Sequence& sequence, const ReplayOptions& options) {
  const PoolScope scope(pool_.get());
  const Cache& cache = sequence.cache();
  if (const LayerShare* share = model().layer_share()) {
    const bool due = scoring_of(cache).needs_replay();
    require_equal(share->ranks(), std::as_bytes(std::span(&due, 1)), "budgets");
  }
  if (scoring_of(cache).needs_replay() && !replay(sequence, options)) return false;
  const bool scored = !scoring_of(cache).scores(0, 0).empty();
  for (const std::vector<Token>& question : options.questions) {
    if (!scored || !cache.options().policy.needs().question || question.empty()) break;
    const std::size_t positions = model().config().max_positions;
    require(question.size() <= positions, ErrorCode::over_limit,
            "a question of {} tokens, but the model has {} positions", question.size(), positions);
    ReplayAttention attention(sequence.cache(), &Scoring::replay_question, {});
    const Run run = attention.run_of(question, positions);
    forward_->run({&run, 1}, attention, 0);
  }
  sequence.finish_prompt();
  return true;
}

}  // namespace ballast
