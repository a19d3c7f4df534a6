// Online clusters of keys with uniform samples of each: ClusterGen's normaliser
// (Zandieh et al. 2024, Algorithm 1, UpdateSoftmaxNormalizer).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "methods/sample_slots.h"

namespace ballast {

/// At most `most` clusters, each with a representative x, a size n and t samples. A key within
/// distance δ of the nearest representative joins its cluster, another opens a new one.
///
/// When there would be a cluster too many, δ grows until a tenth of the clusters have a neighbour
/// within it, and smaller clusters join larger ones. A key is then within δ·log₂ n of its
/// representative, because each time its cluster is the smaller of two. The samples of a union are
/// drawn from the parts' samples in proportion to their sizes, so they stay independent and
/// uniform.
class KeyClusters {
 public:
  KeyClusters() = default;
  KeyClusters(const SummarySetup& setup, double delta, std::size_t samples, std::size_t most);

  /// Takes in the key of token i of the block.
  void add(const Block& block, std::size_t i);
  /// Unites with the clusters of other keys.
  void merge(const KeyClusters& other);

  /// Entries of weight n/t times their multiplicity, role normaliser.
  Segment segment() const { return samples_.store().segment(Role::normaliser, true); }
  const EntryStore& store() const { return samples_.store(); }

  std::size_t size() const { return size_; }
  std::size_t most() const { return most_; }
  double delta() const;
  std::size_t growths() const { return growths_; }
  /// Key rows held: representatives and distinct samples.
  std::size_t rows() const { return size_ + samples_.store().size(); }
  std::size_t bytes() const;

  std::uint64_t tokens_of(std::size_t cluster) const { return tokens_[cluster]; }
  /// Position of sample j of a cluster.
  Position sample(std::size_t cluster, std::size_t j) const;

  void save(ByteWriter& out) const;
  void load(ByteReader& in);

 private:
  std::size_t slot(std::size_t cluster, std::size_t j) const { return cluster * t_ + j; }
  RowsView representatives() const { return representatives_.view(0, size_, opened_by_.data()); }
  /// The cluster whose representative is nearest to key_, and its squared distance.
  std::size_t nearest(float& squared) const;
  void open(const Block& block, std::size_t i);
  void join(std::size_t cluster, const Block& block, std::size_t i);
  void grow(float newcomer);
  void find_neighbours();
  void unite_neighbours();
  void absorb_cluster(std::size_t into, std::size_t from);
  void close_gaps();
  void weigh(std::size_t cluster);
  std::size_t open_for(const KeyClusters& other, std::size_t cluster);

  RandomKey random_;
  std::size_t t_ = 1;
  std::size_t most_ = 0;
  float delta_squared_ = 0;
  std::size_t growths_ = 0;
  std::size_t size_ = 0;
  Rows representatives_;
  std::vector<std::uint64_t> tokens_;  ///< n of each cluster; 0: it has joined another
  std::vector<Position> opened_by_;    ///< position of the representative
  SampleSlots samples_;
  // Scratch.
  std::vector<float> key_;
  mutable std::vector<float> distances_;
  std::vector<float> gaps_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint8_t> stays_;
  std::vector<std::uint32_t> chosen_;
};

}  // namespace ballast
