// The source of queries, keys and values of an experiment.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "eval/data/kv_source.h"
#include "eval/data/synth.h"
#include "report/json.h"

namespace ballast::cli {

/// FILE or --synth, --seed, --select-layers, --select-kv-heads.
struct KvOptions {
  std::string file;
  bool synth = false;
  SynthOptions synth_options;
  std::string layers;
  std::string kv_heads;

  /// `seed_help`: help text of --seed. `folders`: whether the command takes a folder of files.
  void add_to(CLI::App& app, const char* seed_help = "Seed of the made-up stream",
              bool folders = false);
  /// Throws Error unless exactly one of FILE and --synth was given. Messages begin with `command`.
  std::unique_ptr<KvSource> open(const std::string& command) const;
  /// The options once for each file of a folder, by name; themselves where FILE is no folder.
  /// Throws Error if a folder has no safetensors file.
  std::vector<KvOptions> each() const;
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

}  // namespace ballast::cli
