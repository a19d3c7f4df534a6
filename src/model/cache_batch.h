// The attention of sequences that read and continue their texts.
#pragma once

#include <span>
#include <vector>

#include "ballast/engine/model.h"
#include "model/attention_port.h"
#include "model/run.h"

namespace ballast {

/// The next tokens of sequences, one cache each, which take them in.
class CacheBatch : public Attention {
 public:
  explicit CacheBatch(const Model& model) : model_(model) {}

  /// The sequence and the tokens must outlive the batch. Throws Error if the text would grow beyond
  /// the model's positions.
  void add(Sequence& sequence, std::span<const Token> tokens);
  /// For Forward::run().
  std::span<const Run> runs() const { return runs_; }

  bool wants_all_queries() const override;
  void run(const AttentionRows& rows) override;

 private:
  /// Tokens [begin, end) of the batch.
  void forward(const AttentionRows& rows, std::size_t begin, std::size_t end, bool asked);
  /// Scores what each cache has just taken, if it wants that.
  void score(const AttentionRows& rows) const;

  const Model& model_;
  std::vector<Run> runs_;
  std::vector<Cache*> caches_;
  std::vector<BatchItem> items_;
};

/// Another attention, shown layer by layer.
class WatchedAttention : public Attention {
 public:
  /// `first`: the number of the first token, for AttentionStep. `watch` may be null.
  WatchedAttention(Attention& inner, const OnAttention& watch, std::size_t first = 0)
      : inner_(inner), watch_(watch), first_(first) {}

  bool wants_all_queries() const override { return inner_.wants_all_queries(); }
  void run(const AttentionRows& rows) override;

 private:
  Attention& inner_;
  const OnAttention& watch_;
  std::size_t first_;
};

}  // namespace ballast
