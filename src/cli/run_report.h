// Tables and JSON of a run.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/generate.h"
#include "ballast/engine/guard.h"
#include "report/citations.h"
#include "report/json.h"

namespace ballast::cli {

/// Tokens that the model read and their time.
struct Work {
  std::size_t tokens = 0;
  double seconds = 0;
  double rate() const { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
};

/// A cache at one moment.
struct CacheReport {
  std::size_t tokens = 0;   ///< read
  std::size_t entries = 0;  ///< kept, per KV head of the first layer
  CacheBytes bytes;
  std::size_t exact = 0;  ///< bytes of the same tokens without a method; no room for others
  double ratio() const {
    return bytes.used() > 0 ? static_cast<double>(exact) / static_cast<double>(bytes.used()) : 1;
  }
};

CacheReport report_of(const Cache& cache);

struct Answer {
  std::string question;
  Generated generated;
  CacheReport cache;     ///< at its end
  bool repeats = false;  ///< it was cut for that
  std::vector<Citation> citations;
};

struct RunReport {
  std::string model;
  std::string context;  ///< what was read, for people; empty: no context
  CacheOptions options;
  Work pictures;  ///< what the vision tower made of them; tokens are part of the prompt
  Work prompt;
  double compress_seconds = 0;
  Work question;
  Work answer;
  CacheReport after_prompt;
  std::optional<GaugeReading> gauge;  ///< of it, where it could be measured
  std::optional<Guarded> guarded;     ///< with --cache auto
  MemoryEstimate estimate;
  std::size_t program = 0;  ///< the program itself, the tokenizer, the questions
  std::size_t peak_memory = 0;
  std::vector<Answer> answers;
  bool logprobs = false;
  bool cite = false;
  float unsure_below = 0;  ///< of the model (ModelConfig)
};

/// What the help of commands that answer says of it.
inline constexpr std::string_view kUnsureHelp =
    "Where a model's file says below which probability of a token its answers are mostly wrong, a "
    "note names such an answer.\n\n";

/// Whether a token of an answer is less probable than `unsure_below` (ModelConfig).
bool is_unsure(const Generated& answer, float unsure_below);
/// Says in a line on standard error which of `count` answers the model is unsure of; `numbers` from
/// 1, perhaps none.
void tell_unsure(std::span<const std::size_t> numbers, std::size_t count);
/// Says in a line on standard error that the cache of a text takes no less than the exact one,
/// where a method was to make it smaller.
void tell_if_not_smaller(const CacheReport& cache, const Policy& policy);

/// What was read, kept and answered, and how long it took, in a line.
std::string to_line(const RunReport& report);
/// Tables for --stats.
std::string to_text(const RunReport& report);
Json to_json(const RunReport& report, const Tokenizer& tokenizer);
Json to_json(const MemoryEstimate& estimate, std::size_t program);
Json to_json(const CacheBytes& bytes);

/// Bytes of this process besides pages of the model's files, plus an allowance for a run.
std::size_t program_memory(const Model& model);

}  // namespace ballast::cli
