// SoftmaxBalance: halving a set of tokens so that both halves look alike to every query
// (BalanceKV, arXiv:2502.07861, Algorithm 2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ballast/attention.h"
#include "ballast/random.h"
#include "ballast/storage.h"

namespace ballast {

class ByteReader;
class ByteWriter;

/// Tokens with weights, in order of position. Keys and values stay where they are stored.
struct WeightedTokens {
  RowsView keys;
  RowsView values;                     ///< dim 0: every value is the number 1 (the normaliser)
  std::vector<std::uint32_t> rows;     ///< of each token in keys and values
  std::vector<Position> positions;     ///< of each token, ascending
  std::vector<float> log_weights;      ///< in the numerator
  std::vector<float> log_normalisers;  ///< in the normaliser

  std::size_t size() const { return rows.size(); }
  /// Allocates for `tokens` tokens.
  void reserve(std::size_t tokens);
  void clear();
  void add(std::uint32_t row, Position position, float log_weight, float log_normaliser);
  /// Removes the tokens whose mark is not 0.
  void remove(std::span<const std::uint8_t> dropped);
  std::size_t bytes() const;
};

/// A rule that evicts tokens and lets others stand for them.
class HalvingRule {
 public:
  virtual ~HalvingRule() = default;
  /// Marks at least `drop` ≤ ⌈n/2⌉ tokens to evict (dropped[i] != 0) and raises the weights of
  /// others to stand for them. `round` names the random draws: a token meets each round once.
  virtual void reduce(WeightedTokens& tokens, std::size_t drop, std::uint32_t round,
                      std::span<std::uint8_t> dropped) = 0;
};

/// How SoftmaxBalance works.
struct BalanceOptions {
  /// practical: evicts exactly `drop` tokens. theory: the paper's constants; the smaller sign class
  /// of each block stays, with twice its weight.
  enum class Mode : std::uint8_t { practical, theory };
  /// The weights of a token after practical rounds. consistent: the same in both sums, and all
  /// weights add up to the number of tokens. authors: a round doubles the weight in the numerator
  /// of tokens that stand for another, and the weight in the normaliser of all.
  enum class Weights : std::uint8_t { consistent, authors };

  Mode mode = Mode::practical;
  Weights weights = Weights::consistent;
  std::size_t block = 256;  ///< tokens balanced at a time
  double gamma = 4.0;       ///< P(η = +1) = 1/2 − gamma·a
  double tau = 1.0;         ///< times the logit in the kernel's exponent
  double beta = 0.0;        ///< subtracted from it
  double offset = 0.025;    ///< added to <v_i,v_j>: stands for the normaliser
  double delta = 0.01;      ///< theory: probability of failure
  double scale = 1.0;       ///< of attention logits
  RandomKey random;
  std::uint32_t stream = 0;  ///< tells apart summaries of one head that draw separately
};

/// The rule. It keeps no scratch between calls.
class SoftmaxBalance : public HalvingRule {
 public:
  explicit SoftmaxBalance(const BalanceOptions& options) : options_(options) {}

  void reduce(WeightedTokens& tokens, std::size_t drop, std::uint32_t round,
              std::span<std::uint8_t> dropped) override;

  const BalanceOptions& options() const { return options_; }
  std::uint64_t blocks() const { return blocks_; }      ///< walked over so far
  std::uint64_t failures() const { return failures_; }  ///< theory: of these, FAIL
  void add_counts(const SoftmaxBalance& other) {
    blocks_ += other.blocks_;
    failures_ += other.failures_;
  }
  void save(ByteWriter& out) const;
  void load(ByteReader& in);

 private:
  struct Workspace;

  std::span<const float> walk(const WeightedTokens& tokens, std::size_t first, std::size_t count,
                              std::uint32_t round, Workspace& work);
  void reduce_practical(WeightedTokens& tokens, std::size_t drop, std::uint32_t round,
                        std::span<std::uint8_t> dropped, Workspace& work);
  void reduce_theory(WeightedTokens& tokens, std::size_t drop, std::uint32_t round,
                     std::span<std::uint8_t> dropped, Workspace& work);

  BalanceOptions options_;
  std::uint64_t blocks_ = 0;
  std::uint64_t failures_ = 0;
};

}  // namespace ballast
