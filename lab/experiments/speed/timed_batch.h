// Timed prefill and decode of a batch of sequences on synthetic tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ballast/engine/model.h"
#include "ballast/engine/sampler.h"

namespace ballast {

/// Pseudorandom token ids, equal in every run; another text for each `text`.
std::vector<Token> made_up_tokens(std::size_t count, std::size_t vocabulary,
                                  std::uint64_t text = 0);

/// Starts with one sequence; add_read() adds others, copy_to() copies. All functions return
/// seconds.
class TimedBatch {
 public:
  /// Throws Error as Sequence does.
  TimedBatch(const Model& model, const CacheOptions& options);

  /// Reads that many tokens more, to the logits of the last, into the only sequence.
  double read(std::size_t tokens);
  /// Ends the prompt, at which methods summarize.
  double finish_prompt();
  /// Adds a sequence that reads a text of its own, as read() and finish_prompt() do.
  double add_read(std::size_t tokens);
  /// Makes sequences that have read the same, each with memory of its own, as room for as many
  /// tokens as the first one expects.
  void copy_to(std::size_t batch);
  /// Decodes every sequence greedily.
  double generate(std::size_t tokens);

  const Cache& cache() const { return sequences_[0].cache(); }
  std::size_t size() const { return sequences_.size(); }

 private:
  double read(std::size_t sequence, std::size_t tokens);
  double finish_prompt(std::size_t sequence);

  const Model& model_;
  CacheOptions options_;
  Engine engine_;
  std::vector<Sequence> sequences_;
  std::vector<Token> next_;  ///< of each sequence, not read yet
  std::vector<Sequence*> pointers_;
  Matrix logits_;
  std::vector<Sampler> samplers_;  ///< always the likeliest, as programs choose it
};

}  // namespace ballast
