#include <algorithm>
#include <cmath>

#include "ballast/engine/model.h"
#include "ballast/engine/ranks.h"
#include "ballast/scoring.h"
#include "base/fail.h"
#include "base/thread_pool.h"
#include "model/cache_batch.h"
#include "model/forward.h"
#include "model/layer_share.h"

namespace ballast {
namespace {

/// Calls `work`. If numbers are not finite because the model's file holds such, the Error says so.
template <typename Work>
auto blame_weights(const Model& model, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::not_finite) model.file().require_finite();
    throw;
  }
}

/// Where layers are divided no rank sees all of them.
void require_whole(const LayerShare* share, bool asked) {
  require(share == nullptr || !asked, ErrorCode::unsupported,
          "a rank that has some layers only knows neither the attention nor the states of all");
}

/// The sampler, or whoever reads the logits, does not know the model.
void check_logits(const Model& model, MutableMatrix logits) {
  for (std::size_t r = 0; r < logits.rows; ++r) {
    const std::span<const float> row(logits.row(r), logits.cols);
    if (std::ranges::any_of(row, [](float x) { return std::isnan(x); })) {
      model.file().require_finite();
    }
  }
}

}  // namespace

Engine::Engine(const Model& model, std::shared_ptr<ThreadPool> pool)
    : pool_(std::move(pool)), forward_(std::make_unique<Forward>(model)) {}
Engine::~Engine() = default;
Engine::Engine(Engine&&) noexcept = default;
Engine& Engine::operator=(Engine&&) noexcept = default;

const Model& Engine::model() const { return forward_->model(); }

std::vector<float> Engine::prefill(Sequence& sequence, std::span<const Token> tokens,
                                   const PrefillOptions& options) {
  return blame_weights(model(), [&] { return read_prompt(sequence, tokens, options); });
}

std::vector<float> Engine::read_prompt(Sequence& sequence, std::span<const Token> tokens,
                                       const PrefillOptions& options) {
  const PoolScope scope(pool_.get());
  require(!tokens.empty(), "a prompt without tokens");
  require(options.chunk > 0, "a chunk of 0 tokens");
  const std::size_t positions = model().config().max_positions;
  // Checked before the prefill, which may take hours.
  require(sequence.positions_after(tokens.size()) <= positions, ErrorCode::over_limit,
          "{}: the prompt has {} tokens after {} already read, but the model has {} positions; "
          "a budget in --protocol stream with rolling positions reads texts of any length",
          model().file().path().string(), tokens.size(), sequence.tokens(), positions);
  const LayerShare* const share = model().layer_share();
  require_whole(share, options.all_states || options.on_attention);
  if (share != nullptr && sequence.tokens() == 0) {
    require_equal(share->ranks(), std::as_bytes(tokens), "texts");
    // What is sent at once.
    const std::size_t chunks[] = {options.chunk, scoring_of(sequence.cache()).chunk_room()};
    require_equal(share->ranks(), std::as_bytes(std::span(chunks)), "chunks or budgets");
  }
  Matrix some;
  if (options.all_logits) some = Matrix(std::min(kLogitRows, tokens.size()), vocabulary());
  std::size_t count = 0, done = 0;
  for (; done < tokens.size(); done += count) {
    Cache& cache = sequence.cache();
    if (scoring_of(cache).chunk_room() == 0 && !read_again(sequence, options.replay)) return {};
    count = std::min({options.chunk, tokens.size() - done, scoring_of(cache).chunk_room()});
    CacheBatch batch(model());
    batch.add(sequence, tokens.subspan(done, count));
    WatchedAttention attention(batch, options.on_attention, done);
    // The last layer's output matters only for tokens whose logits are wanted.
    const bool ends = done + count == tokens.size();
    const bool all = options.all_logits || options.all_states || options.on_attention;
    forward_->run(batch.runs(), attention, all ? Forward::kAll : ends ? 1 : 0);
    sequence.add(tokens.subspan(done, count));
    for (std::size_t i = 0; options.all_logits && i < count; i += kLogitRows) {
      const MutableMatrix rows = some.view().slice(0, std::min(kLogitRows, count - i));
      forward_->logits(i, rows);
      options.all_logits(done + i, rows);
    }
    if (options.all_states) options.all_states(done, forward_->states());
    if (options.progress && !options.progress(done + count, tokens.size())) return {};
  }
  if (RecurrentStates* states = sequence.cache().recurrent()) states->keep();
  std::vector<float> logits(vocabulary());
  if (options.all_logits) {
    std::ranges::copy(some[(count - 1) % kLogitRows], logits.begin());
  } else {
    forward_->logits(count - 1, {logits.data(), 1, logits.size()});
  }
  check_logits(model(), {logits.data(), 1, logits.size()});
  if (options.finish_prompt && !sequence.prompt_finished() &&
      !finish_prompt(sequence, options.replay)) {
    return {};
  }
  return logits;
}

void Engine::decode(std::span<Sequence* const> sequences, std::span<const Token> tokens,
                    MutableMatrix logits, const OnAttention& on_attention) {
  const PoolScope scope(pool_.get());
  require(sequences.size() == tokens.size() && sequences.size() == logits.rows &&
              logits.cols == vocabulary(),
          "a step of {} sequences is given {} tokens and room for {} × {} logits", sequences.size(),
          tokens.size(), logits.rows, logits.cols);
  if (sequences.empty()) return;
  require_whole(model().layer_share(), on_attention != nullptr);
  for (Sequence* sequence : sequences) {
    if (scoring_of(sequence->cache()).chunk_room() == 0) read_again(*sequence, {});
  }
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    require(std::find(sequences.begin(), sequences.begin() + static_cast<std::ptrdiff_t>(i),
                      sequences[i]) == sequences.begin() + static_cast<std::ptrdiff_t>(i),
            "a sequence stands twice in one step");
  }
  CacheBatch batch(model());
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    batch.add(*sequences[i], tokens.subspan(i, 1));
  }
  WatchedAttention attention(batch, on_attention);
  blame_weights(model(), [&] { forward_->run(batch.runs(), attention); });
  for (std::size_t i = 0; i < sequences.size(); ++i) sequences[i]->add(tokens.subspan(i, 1));
  forward_->logits(0, logits);
  check_logits(model(), logits);
}

void Engine::decode(Sequence& sequence, Token token, std::span<float> logits,
                    const OnAttention& on_attention) {
  Sequence* const sequences[] = {&sequence};
  decode(sequences, {&token, 1}, {logits.data(), 1, logits.size()}, on_attention);
}

}  // namespace ballast
