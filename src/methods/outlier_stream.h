// Outliers of a stream: tokens whose keys point away from the others, kept exactly in a bounded
// store, the streaming form of what outliers.h finds in a whole prompt.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ballast/entry_store.h"

namespace ballast {

/// A running mean m of the keys: key number n moves it by (k - m) / min(n, block). When tokens have
/// come in together, at most `block`, those with <k, m> <= 0 are outliers of that score. A token's
/// score is the least of the outliers at most `dilate` tokens away, before it or behind it. `most`
/// tokens are kept, those with the least scores; of equal ones the older. The last `dilate` tokens
/// wait here until it is known what comes behind them. So at most most + dilate entries are held,
/// whatever the length of the stream.
class OutlierStream {
 public:
  /// Takes a token that is no outlier, or no longer: token i of a block.
  using Release = std::function<void(const Block& block, std::size_t i)>;

  /// `most`, `dilate`: see above; both 0: every token is released at once.
  OutlierStream(const SummarySetup& setup, std::size_t most, std::size_t dilate, std::size_t block);

  void absorb(const Block& block, const Release& release);
  /// Takes in the other's tokens: those that it keeps with their scores, those that wait as no
  /// outliers. The mean becomes that of both.
  void merge(const OutlierStream& other, const Release& release);

  std::size_t size() const { return kept_.size() + waiting_.size(); }
  std::size_t bytes() const;
  /// Weight 1 in both sums.
  void segments(std::vector<Segment>& out) const;
  void kept(std::vector<KeptEntry>& out) const;

  void save(ByteWriter& out) const;
  void load(ByteReader& in);

 private:
  struct Outlier {
    Position position;
    float score;
  };

  void absorb_part(const Block& block, const Release& release);
  void find(const Block& block);
  float score_at(Position position) const;
  void settle(const Block& block, std::size_t i, float score, const Release& release);

  std::size_t dilate_;
  std::size_t block_;
  std::uint64_t tokens_ = 0;
  std::vector<double> mean_;
  EntryStore kept_;
  std::vector<float> scores_;   // of the slots of kept_
  EntryStore waiting_;          // a ring by position: token p in slot p mod dilate
  std::vector<Outlier> found_;  // by position; those that may reach a token that is not settled
  std::vector<float> key_;
};

}  // namespace ballast
