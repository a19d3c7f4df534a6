// Common options of the commands that run models.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/session.h"
#include "base/stopwatch.h"
#include "formats/utf8_text.h"

namespace ballast::cli {

/// Whether the method works in protocol stream: scores of a replay pass that add up over the
/// whole text do not.
bool can_stream(const Policy& policy);

/// The bytes of an option that takes no share of a cache: "512M". Throws Error that names `option`
/// and ends with `hint`.
std::size_t parse_bytes(const std::string& text, std::string_view option,
                        std::string_view hint = "");

void add_model_option(CLI::App& app, std::string& path);

/// --method, --cache, --protocol, --cache-type, …
struct CacheFlags {
  std::string method;  ///< empty: exact, or where `cache` says how much, see choose()
  std::string cache;   ///< how much memory: see MemorySize
  std::string memory;  ///< the same with what follows the text
  std::string protocol = "prefill";
  bool protocol_given = false;
  std::string positions = "absolute";
  std::string type = "bf16";
  std::string key_type;  ///< empty: `type`
  std::string value_type;
  std::uint64_t seed = 0;

  /// `with_method`: --method, too; commands that compare methods have an option of their own.
  void add_to(CLI::App& app, bool with_method = true);
  /// --memory, for commands that call fit().
  void add_memory_to(CLI::App& app);
  /// Throws Error on an unknown name. With --memory a method has its bytes after fit() only.
  /// `guarded`: the caller has a Guard for is_auto(), and gets an exact cache; else that is
  /// refused.
  CacheOptions parse(bool guarded = false) const;
  /// Whether the size is chosen for the text: --cache auto.
  bool is_auto() const { return cache == "auto"; }
  /// Where --cache or --memory says how much and --method nothing, the method for this model
  /// (Model::policy_for) in place of replay.
  void choose(CacheOptions& options, const Model& model) const;
  /// Divides --memory between a text of `prompt` tokens and `after` tokens more: the method gets
  /// what these leave. `copies`: caches of the text that are held at once. Then makes options of
  /// prefill those of stream if the exact cache of the whole text, which prefill reads into,
  /// exceeds --memory or what is free, and says so on standard error unless `quiet`.
  void fit(CacheOptions& options, const Model& model, std::size_t prompt, std::size_t after,
           std::size_t copies, bool quiet) const;
  /// Whether a flag was given that a saved cache has a value of.
  bool given() const;
  /// Throws Error if a flag was given that a saved cache overrides: `with`, "--load-cache".
  /// `draws`: tokens are drawn, which takes a seed.
  void refuse_overridden(std::string_view with, bool draws) const;

 private:
  std::vector<const CLI::Option*> options_;  ///< that a saved cache has values of
  const CLI::Option* seed_ = nullptr;
};

/// --pack of a cache that is saved. `what`: the flag or command that saves it.
void add_pack_option(CLI::App& app, std::string& pack, const std::string& what);
/// Throws Error unless caches of the model and these options can be packed so; "off" always can.
/// Where the model has no basis for it, says so and makes both what saves bytes without one: "off",
/// and entries of four bits.
void check_pack(std::string& pack, const Model& model, CacheOptions& options, bool quiet);

/// Whether a file holds a saved cache, packed or not.
bool is_saved_cache(const std::string& path);
bool is_packed_cache(const std::string& path);

/// What reads texts of any length with this model: flags to give beside those of `options`, or in
/// place of those of `flags` that they exclude. Empty where no flags do.
std::string endless_advice(const Model& model, const CacheOptions& options,
                           const CacheFlags& flags);

/// --temperature, --max-tokens, --stop, …
struct GenerateFlags {
  GenerateOptions options;
  void add_to(CLI::App& app);
  /// Throws Error on values out of range.
  GenerateOptions parse(std::uint64_t seed) const;
};

/// Session::read, showing progress and time left unless `quiet`. Adds to `seconds` what it took.
/// Once `cancelled` is true it stops between two tokens and returns false.
bool read_tokens(Session& session, std::span<const Token> tokens, bool quiet, double& seconds,
                 const std::atomic<bool>* cancelled = nullptr);

/// Session::finish_prompt with progress unless `quiet`. Returns false, the prompt not ended, once
/// `cancelled` is true. `questions`: see ReplayOptions. `finish`: in its place, such as one that
/// measures.
bool finish_prompt(Session& session, bool quiet, const std::atomic<bool>* cancelled = nullptr,
                   std::vector<std::vector<Token>> questions = {},
                   const std::function<bool(const ReplayOptions&)>& finish = {});

}  // namespace ballast::cli
