// Tokens whose keys are anti-correlated with the rest. BalanceKV's needle-in-a-haystack version
// keeps them exactly: it finds them on one layer and keeps them on the layers after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "ballast/summary.h"
#include "methods/entry_budget.h"

namespace ballast {

/// Shared by the heads and layers of one sequence.
class OutlierMemory : public BoundedState {
 public:
  /// Marks at most `most` tokens of the block: outliers of this head and their neighbours, the most
  /// anti-correlated first. On the outlier layer they are found (token i of a block is one if the
  /// mean over the block of <k_i,k_j> is not positive) and remembered; before it none are marked.
  /// A model with fewer layers finds them on its last one.
  /// Throws Error on a later layer if the outlier layer has not been summarised yet.
  void mark(const SummarySetup& setup, const Block& block, std::size_t most,
            std::span<std::uint8_t> marks);

  std::size_t bytes() const override;
  std::size_t most_bytes(Protocol protocol, std::size_t layers, std::size_t heads,
                         std::size_t entries, std::size_t tokens) const override;
  void save(ByteWriter& out) const override;
  void load(ByteReader& in) override;

 private:
  mutable std::mutex mutex_;  // heads run on several threads
  /// Of each head, the outliers, the most anti-correlated first.
  std::map<std::uint32_t, std::vector<Position>> found_;
};

}  // namespace ballast
