#include "experiments/speed/timed_batch.h"

#include "base/stopwatch.h"
#include "base/thread_pool.h"
#include "cache/byte_budget.h"

namespace ballast {
namespace {

const ReplayWording wording{{0}, {0}, {}};

}  // namespace
std::vector<Token> made_up_tokens(std::size_t count, std::size_t vocabulary, std::uint64_t text) {
  std::vector<Token> tokens(count);
  std::uint64_t state = 1 + text;
  for (Token& token : tokens) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    token = static_cast<Token>((state >> 33) % vocabulary);
  }
  return tokens;
}

TimedBatch::TimedBatch(const Model& model, const CacheOptions& options)
    : model_(model), options_(options), engine_(model), logits_(1, engine_.vocabulary()) {
  sequences_.emplace_back(model, options);
  samplers_.emplace_back(SamplingOptions{});
  next_ = {0};
}

double TimedBatch::read(std::size_t tokens) { return read(0, tokens); }

double TimedBatch::read(std::size_t sequence, std::size_t tokens) {
  if (tokens == 0) return 0;
  const std::vector<Token> text = made_up_tokens(tokens, engine_.vocabulary(), sequence);
  PrefillOptions options;
  options.finish_prompt = false;
  options.replay.wording = wording;
  const Stopwatch watch;
  const std::vector<float> logits = engine_.prefill(sequences_[sequence], text, options);
  next_[sequence] = samplers_[sequence].sample(logits, {}).token;
  return watch.seconds();
}

double TimedBatch::finish_prompt() { return finish_prompt(0); }

double TimedBatch::finish_prompt(std::size_t sequence) {
  require_bytes(sequences_[sequence].cache());
  const Stopwatch watch;
  engine_.finish_prompt(sequences_[sequence], {wording, {}});
  return watch.seconds();
}

double TimedBatch::add_read(std::size_t tokens) {
  const std::size_t sequence = sequences_.size();
  sequences_.emplace_back(model_, options_);
  samplers_.emplace_back(SamplingOptions{});
  next_.push_back(0);
  logits_ = Matrix(sequences_.size(), engine_.vocabulary());
  const double reading = read(sequence, tokens);
  return reading + finish_prompt(sequence);
}

void TimedBatch::copy_to(std::size_t batch) {
  while (sequences_.size() < batch) {
    Cache copy = sequences_[0].cache().clone();
    copy.reserve(copy.options().expected_tokens);
    sequences_.emplace_back(model_, std::move(copy));
    samplers_.emplace_back(SamplingOptions{});
    next_.push_back((next_[0] + static_cast<Token>(sequences_.size())) %
                    static_cast<Token>(engine_.vocabulary()));
  }
  logits_ = Matrix(batch, engine_.vocabulary());
}

double TimedBatch::generate(std::size_t tokens) {
  pointers_.clear();
  for (Sequence& sequence : sequences_) pointers_.push_back(&sequence);
  const Stopwatch watch;
  for (std::size_t t = 0; t < tokens; ++t) {
    engine_.decode(pointers_, next_, logits_.view());
    parallel_for(next_.size(),
                 [&](std::size_t i) { next_[i] = samplers_[i].sample(logits_[i], {}).token; });
  }
  return watch.seconds();
}

}  // namespace ballast
