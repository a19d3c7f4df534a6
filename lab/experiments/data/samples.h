// Runs questions on texts with several methods at equal memory: the base of most of the papers'
// experiments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ballast/engine/generate.h"
#include "ballast/engine/model.h"
#include "ballast/engine/tokenizer.h"
#include "experiments/data/kv_source.h"
#include "experiments/result_log.h"
#include "pages/result.h"
#include "report/json.h"

namespace ballast {

class Ranks;
class VisionModel;

/// One question and the data that scores its answer.
struct Sample {
  std::string id;                    ///< unique in the experiment
  Json group = Json::object();       ///< what results are grouped by: {"task": "qasper"}
  std::string context;               ///< may be empty
  std::string picture = {};          ///< a file whose place is in the text before the question
  std::string question;              ///< follows the context; the answer follows it
  std::string answer_start;          ///< the beginning of the answer, which is given
  std::vector<std::string> choices;  ///< continuations to be compared; empty: text is generated
  Json expected;                     ///< for the scorer
  std::size_t max_tokens = 32;       ///< of the answer
  std::vector<std::string> stop;
  bool raw = false;           ///< without chat template, whatever the model
  bool whole_length = false;  ///< the answer goes on after the model's end, to max_tokens
};

/// A method at one memory size and one seed.
struct Variant {
  std::string method;      ///< as given, without memory
  double rate = 0;         ///< entries kept / entries read; 0: not set
  std::size_t budget = 0;  ///< entries kept; 0: not set
  std::string cache;       ///< memory of the whole cache, as given: "1/8"; empty: not set
  double share = 0;        ///< the same, where it is a share of the exact bf16 cache
  std::uint64_t seed = 0;
  Policy policy;  ///< with its memory
  std::string
      pack;  ///< "1/16": the exact cache as it comes back from such a file; empty: not packed
  StorageType key_type = StorageType::bf16;
  StorageType value_type = StorageType::bf16;

  /// Whether the method keeps everything, so that no memory size applies.
  bool exact() const { return policy.info().window_policy == WindowPolicy::all; }
  /// Whether it keeps everything in a type of its own: smaller than the exact cache, at whatever
  /// size that gives.
  bool storage_only() const { return exact() && (policy.has("type") || !pack.empty()); }
  bool same_types(const Variant& other) const {
    return key_type == other.key_type && value_type == other.value_type;
  }
  std::string name() const;  ///< "balancekv 0.25"
  /// Whether `row`, one of score_rows(), is of this variant; seeds share a row.
  bool is_of_row(const Json& row) const;
};

/// The memory sizes of the methods: at most one list is not empty.
struct Memory {
  std::vector<double> rates = {};
  std::vector<std::size_t> budgets = {};
  std::vector<std::string> caches = {};  ///< see MemorySize

  bool empty() const { return rates.empty() && budgets.empty() && caches.empty(); }
};

/// Every method at every memory size and seed; exact once. Throws Error if both or neither of a
/// method string and `memory` set the size.
std::vector<Variant> make_variants(const std::vector<std::string>& methods, const Memory& memory,
                                   std::size_t seeds, std::uint64_t first_seed,
                                   StorageType key_type, StorageType value_type);

struct AskOptions {
  Protocol protocol = Protocol::prefill;
  Positions positions = Positions::absolute;
  /// Summarizes the context before the question is read. Otherwise both are one prompt, summarized
  /// at its end.
  bool question_later = false;
  bool raw = false;  ///< without chat template
  /// The limit of prompt plus answer. A longer prompt loses its middle (as in LongBench) or, with
  /// `refuse_long`, raises an Error that names the sample. 0: the model's positions.
  std::size_t longest = 0;
  bool refuse_long = false;
  const VisionModel* vision = nullptr;  ///< reads pictures
  std::string show = {};  ///< the id of a sample of which Answered::kept is filled in; empty: none
};

/// The result of one sample with one variant.
struct Answered {
  std::string text;
  std::vector<double> choices;  ///< log-probability of each, summed over its tokens
  std::size_t tokens = 0;       ///< read before the answer
  bool cut = false;             ///< whether the prompt lost its middle
  std::size_t entries = 0;      ///< kept after summarizing, per KV head
  std::size_t bytes = 0;        ///< of the cache then, without spare capacity
  std::size_t exact_bytes = 0;  ///< of an exact bf16 cache then
  /// Relative error of attention after the prefill, for the queries of the prompt's last 32 tokens:
  /// ‖Z − Z_exact‖_F / ‖Z_exact‖_F, mean over KV heads and layers. NaN: undefined or not measured
  /// (in stream).
  double attention_error = std::numeric_limits<double>::quiet_NaN();
  std::size_t made = 0;         ///< tokens of the answer
  double read_seconds = 0;      ///< to read the prompt; shared by all methods in prefill
  double compress_seconds = 0;  ///< to summarise it
  double answer_seconds = 0;    ///< to make the answer
  std::string failure;          ///< why there is no answer, which scores 0; empty: there is one
  bool fits = true;             ///< false: the method cannot be as small as it was to be
  /// Where AskOptions::show is the sample: the pieces of text whose tokens were summarized, and for
  /// each layer and KV head which of them are kept, four tokens a hexadecimal digit, the first one
  /// the highest bit.
  std::vector<std::string> pieces;
  std::vector<std::string> kept;

  Json to_json() const;
  static Answered from_json(const Json& json);
};

/// Runs samples through a model. In protocol prefill, variants of the same storage share one
/// prefill.
class PromptRunner {
 public:
  /// All must outlive it.
  PromptRunner(Engine& engine, const Tokenizer& tokenizer, const AskOptions& options);
  ~PromptRunner();

  /// One answer a variant. Throws Error that names the sample.
  std::vector<Answered> ask(const Sample& sample, const std::vector<Variant>& variants,
                            const Advance& advance = {});
  /// The same for several samples: [sample][variant]. Where they have one context and the question
  /// comes later, each method reads and summarises it once. `made`: called once all samples have
  /// their answers of a variant, with that variant's index and the answers so far.
  using Made =
      std::function<void(std::size_t variant, const std::vector<std::vector<Answered>>& answers)>;
  std::vector<std::vector<Answered>> ask(std::span<const Sample> samples,
                                         const std::vector<Variant>& variants,
                                         const Advance& advance = {}, const Made& made = {});
  /// Whether ask() reads the context of these two once.
  bool share_context(const Sample& a, const Sample& b) const;
  /// The cost of a sample beside others, from the length of its text.
  double cost(const Sample& sample) const;

 private:
  struct Work;
  Engine& engine_;
  const Tokenizer& tokenizer_;
  AskOptions options_;
  std::unique_ptr<Work> work_;
};

/// 0 to 1, unless the metric defines another range.
using Scorer = std::function<double(const Sample&, const Answered&)>;

/// Runs all samples with all variants: [sample][variant]. Results in the log are not computed
/// again. With ranks, each asks of its part of the texts and all get all answers.
std::vector<std::vector<Answered>> ask_all(PromptRunner& runner, const std::vector<Sample>& samples,
                                           const std::vector<Variant>& variants, ResultLog& log,
                                           const Advance& advance = {}, Ranks* ranks = nullptr);

/// Whether losses are against it, if it is the first: it keeps everything as it is.
bool is_baseline(const Variant& variant);

/// Result rows, one a group and variant (seeds merged), in the order of samples, then of variants.
/// Keys: the group's columns, method, rate or budget or share or cache, samples, score and its
/// standard error over samples (seeds averaged first, missing answers score 0), Wilson's 95%
/// interval score_low and score_high where every answer scores 0 or 1, scores and answers (of each
/// sample, in their order, answers with the first seed; not of the group "all"), chance (of the
/// right choice by guessing), failures if any, entries, cache_bytes, exact_bytes, ratio,
/// attention_error, read_seconds, compress_seconds, seconds_per_token; of methods beside an exact
/// one loss, what the first baseline scores more on the same samples, and its 95% interval loss_low
/// and loss_high: tango() where every score is 0 or 1, else the mean ± 1.96 standard errors of the
/// differences. storage_only if so. Where no sample fits, fits is false and the numbers are null.
/// `overall` adds a group "all", whose score is the mean of the groups' means, as benchmarks
/// average tasks.
std::vector<Json> score_rows(const std::vector<Sample>& samples,
                             const std::vector<Variant>& variants,
                             const std::vector<std::vector<Answered>>& answers,
                             const Scorer& scorer, bool overall = false);

/// The columns of these rows; those of the group come first. `loss`: with that column.
std::vector<ResultColumn> score_columns(const std::vector<ResultColumn>& group,
                                        const Memory& memory, std::string_view score_title,
                                        Unit score_unit, bool loss);

/// A fingerprint of the samples, for ResultLog's identity.
std::string fingerprint(const std::vector<Sample>& samples);

}  // namespace ballast
