// Synthetic queries, keys and values with the statistics of real ones.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "ballast/engine/tensor.h"
#include "ballast/random.h"
#include "experiments/data/kv_source.h"

namespace ballast {

/// The norms are those of Table 3 of the BalanceKV paper (Llama-3.1-8B on TriviaQA, head dimension
/// 128), after the mean of the keys is subtracted.
struct SynthOptions {
  std::size_t tokens = 16384;
  std::size_t layers = 1;
  std::size_t heads = 8;
  std::size_t kv_heads = 2;
  std::size_t dim = 128;
  std::size_t clusters = 64;  ///< of keys, in each head
  std::uint64_t seed = 0;
  double query_norm = 15;
  double key_norm = 15.5;
  double value_norm = 3.3;
  std::size_t sink = 4;  ///< first tokens, which attract about as much attention as all others
  /// The needle's position as a fraction of the text. Its key is nearly parallel to the last
  /// token's query in the last head. Negative: none.
  double needle = -1;
};

/// The elements of a token depend only on the seed and their place, so any part can be generated
/// alone and in any order.  A token belongs to a cluster, the same in all heads of a layer: mostly
/// that of a recent token, otherwise one from a long-tailed distribution, so that themes persist as
/// in text. A key is its cluster's centre plus a slowly turning code of its position plus noise, a
/// value its cluster's mean plus noise. A query looks for the cluster of its own token and of two
/// earlier ones, and for what is near; heads differ in how much. The rest of its length lies along
/// one direction that only the sink's keys share.
class Synth : public KvSource {
 public:
  using KvSource::read;

  /// Throws Error on sizes of 0 or out of range, heads that are no multiple of kv_heads.
  explicit Synth(const SynthOptions& options);

  void read(Part part, std::size_t layer, std::size_t head, std::size_t first,
            MutableMatrix out) const override;
  bool made_up() const override { return true; }

  const SynthOptions& options() const { return options_; }
  /// The needle's position; tokens if there is none.
  std::size_t needle() const { return needle_; }
  /// The cluster of a token.
  std::size_t cluster(std::size_t layer, std::size_t token) const {
    return cluster_of_[layer][token];
  }

 private:
  struct Head;
  Head make_head(std::size_t layer, std::size_t kv_head) const;
  void make_clusters(std::size_t layer);
  void make_key(const Head& head, std::size_t layer, std::size_t t, std::span<float> out) const;
  void make_value(const Head& head, std::size_t layer, std::size_t t, std::span<float> out) const;
  void make_query(const Head& head, std::size_t layer, std::size_t query_head, std::size_t t,
                  std::span<float> out) const;

  SynthOptions options_;
  std::size_t needle_;
  std::vector<double> popularity_;  ///< of the clusters, cumulative
  std::vector<std::vector<std::uint32_t>> cluster_of_;
};

/// Writes tensors layer.{i}.q|k|v of the type, holding a few thousand tokens of one head in memory.
void write_source(const KvSource& source, const std::map<std::string, std::string>& metadata,
                  const std::filesystem::path& path, TensorType type, const Advance& advance = {});

/// The same, with the options as metadata.
void write_synth(const Synth& synth, const std::filesystem::path& path, TensorType type,
                 const Advance& advance = {});

}  // namespace ballast
