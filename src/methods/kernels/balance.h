// The self-balancing walk over a block of tokens, which computes the block's kernel matrix as it
// goes.
//
// Token i is the vector e^{scale·<k_i,·>} ⊗ (v_i, o_i) of a Hilbert space; the inner product of two
// is  y_ij = e^{scale·<k_i,k_j>}·(<v_i,v_j> + o_i·o_j).  The walk gives token j a sign by looking
// at a = Σ_{i<j} y_ij η_i  (BalanceKV, Algorithm 2 and 3).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ballast/attention.h"
#include "ballast/matrix.h"
#include "ballast/random.h"

namespace ballast::kernels {

/// P(η_j = +1) = 1/2 − gain·e^{−shift}·a, cut to [0, 1].
struct SignRule {
  float scale = 1.0f;  ///< of <k_i,k_j> in the exponent, not negative
  double gain = 1.0;
  double shift = 0.0;
  bool first_plus = false;  ///< the first sign is +1; else a coin
  RandomKey key;            ///< draws are named by key, position of the token, stream, round
  std::uint32_t stream = 0;
  std::uint32_t round = 0;
};

/// The rows of the next block, prefetched during the walk.
struct PrefetchTokens {
  RowsView keys, values;
  std::span<const std::uint32_t> rows;
};

/// The tokens of one block in the walk's layout: groups of 16 tokens, each group transposed. Reused
/// from block to block; grows, never shrinks.
class BalanceBlock {
 public:
  /// Tokens in a group.
  static constexpr std::size_t kGroup = 16;

  /// Room for `tokens` tokens. value_dim may be 0: then <v_i,v_j> = 0.
  void resize(std::size_t tokens, std::size_t key_dim, std::size_t value_dim);

  std::size_t tokens() const { return tokens_; }
  /// Sets the tokens of a group (from token 16·group on, at most 16). keys[i] points to key_dim
  /// floats, values[i] to value_dim floats, which are multiplied by weights[i].
  void set_group(std::size_t group, std::span<const float* const> keys,
                 std::span<const float* const> values, std::span<const float> weights);
  /// o_i; zeros until set.
  std::span<float> offsets() { return {offsets_.get(), tokens_}; }

  /// Subtracts the mean of the keys from each: attention does not change.
  void center();
  /// The largest ‖k_i‖² and, with o_i as one more coordinate, ‖(v_i, o_i)‖².
  double largest_key_square() const;
  double largest_value_square() const;

  /// Walks over the tokens and sets their signs; call once, as it may round the elements. Returns
  /// the number of tokens at which gain·e^{−shift}·|a| exceeded 1/2. Norms of any size do not
  /// overflow: a is kept as a sum times e^{largest exponent of the row}. With AVX512_BF16, centred
  /// keys of modest norms are rounded to bf16, and the values with them. The walk then balances
  /// tokens whose rounding error matters less than the choice among them.
  std::size_t walk(const SignRule& rule, std::span<const Position> positions,
                   const PrefetchTokens& next = {});

  /// +1 or −1 for each token, after walk().
  std::span<const float> signs() const { return {signs_.get(), tokens_}; }

 private:
  double largest_square(const float* packed, std::size_t dim, bool with_offsets) const;

  std::size_t tokens_ = 0;
  std::size_t key_dim_ = 0;
  std::size_t value_dim_ = 0;
  std::size_t room_tokens_ = 0;   // allocated
  std::size_t room_numbers_ = 0;  // allocated in keys_ and values_ together
  AlignedArray<float> packed_;    // groups of keys, then groups of values: [group][dim][16]
  float square_bound_ = 0;        // on ‖k_i‖², once centred; else infinite
  std::size_t room_dim_ = 0;      // allocated in sums_
  AlignedArray<float> sums_;      // of each coordinate of the keys, in 16 parts
  AlignedArray<float> offsets_;
  AlignedArray<float> signs_;
  AlignedArray<float> panel_;  // logits and value products of the rows at work
  float* keys() const { return packed_.get(); }
  float* values() const;
};

}  // namespace ballast::kernels
