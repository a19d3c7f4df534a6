// The source of queries, keys and values of an experiment.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/data/kv_source.h"
#include "experiments/data/synth.h"
#include "experiments/parameters.h"

namespace ballast {

/// Tokens, layers, … of synthetic streams.
void describe_synth(Parameters& parameters, SynthOptions& options);

/// "0,2,5-7" as numbers, ascending. Throws Error; `what` names the option.
std::vector<std::size_t> parse_selection(std::string_view text, std::string_view what);

/// FILE or synth, seed, select-layers, select-kv-heads.
struct KvParameters {
  std::string file;
  bool synth = false;
  SynthOptions synth_options;
  std::string layers;
  std::string kv_heads;

  /// `seed_help`: help text of --seed. `folders`: whether a folder of files is taken, too.
  void describe(Parameters& parameters, const char* seed_help = "Seed of the made-up stream",
                bool folders = false);
  /// Throws Error unless exactly one of FILE and --synth was given. Messages begin with `command`.
  std::unique_ptr<KvSource> open(const std::string& command) const;
  /// The parameters once for each file of a folder, by name; themselves where FILE is no folder.
  /// Throws Error if a folder has no safetensors file.
  std::vector<KvParameters> each() const;
  /// Layers as the source counts them; all if none were named.
  std::vector<std::size_t> selected_layers(const KvSource& source) const;
  std::vector<std::size_t> selected_kv_heads(const KvSource& source) const;
  /// Everything that determines the source's elements.
  Json settings(const KvSource& source) const;
  /// The same plus the state of the file.
  Json identity(const KvSource& source) const;
};

/// "stream.safetensors: 8,192 tokens, 2 layers, 8 of 8 query heads, dimension 128".
std::string describe(const KvSource& source, std::size_t layers, std::size_t kv_heads);

}  // namespace ballast
