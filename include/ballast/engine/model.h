// Running models: a model, the sequences that it reads and continues, and the engine that moves
// them forward, alone or many at once.
//
//   Model model("model.gguf");
//   Engine engine(model);
//   Sequence sequence(model, options);
//   std::vector<float> logits = engine.prefill(sequence, prompt);
//   for (...) {
//     Token token = sampler.sample(logits, ...);
//     engine.decode(sequence, token, logits);
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ballast/cache.h"
#include "ballast/engine/model_config.h"
#include "ballast/engine/model_file.h"
#include "ballast/engine/tokenizer.h"
#include "ballast/matrix.h"
#include "ballast/threads.h"

namespace ballast {

struct ModelWeights;
class Calibration;
class Forward;
class LayerPages;
class LayerShare;
class Ranks;

/// Bytes that running a model will take.
struct MemoryEstimate {
  std::size_t weights = 0;  ///< in memory, shared by all sequences
  std::size_t cache = 0;    ///< of one sequence, at its largest
  std::size_t kept = 0;     ///< of it, what is held once the prompt has been summarised
  std::size_t scratch = 0;  ///< of the engine, and of the method while it summarises a layer
  std::size_t total() const { return weights + cache + scratch; }
};

/// Bytes that this process may still take: of the machine or of its control group, whichever is
/// less. The largest number there is when neither can be found out.
std::size_t available_memory();

/// Throws Error with the figures when the estimate exceeds `available`. `what` names what it is of.
void require_memory(const MemoryEstimate& estimate, std::size_t available, std::string_view what);

/// A model ready to run. Weights stay in the file's type, mapped from disk; only norms and biases
/// are copied. Any number of engines and threads may use it. Copies share everything and cost a few
/// reference counts; a model that was moved from may only be assigned to.
class Model {
 public:
  /// `path`: see ModelFile, whose errors this throws. Where the memory available does not hold the
  /// weights, half of it does: see limit_weights().
  explicit Model(const std::filesystem::path& path);

  /// Keeps at most `bytes` of the weights in memory, or the least that is possible (see
  /// estimate()): layers that find no room are read from disk each time, while those before them
  /// work. Engines and copies made later do so.
  void limit_weights(std::size_t bytes);

  const ModelConfig& config() const;
  const ModelFile& file() const;
  /// What a cache for this model looks like, for texts of up to `context` tokens.
  CacheShape cache_shape(std::size_t context = 0) const;
  /// What a sequence of these options makes its cache with: in a stream of calibrated rolling
  /// positions are absolute ones with reach= the model's positions. Others stay as they are.
  CacheOptions cache_options(CacheOptions options) const;
  /// Whether keys and queries of two places differ by a rotation alone, so that texts may go on
  /// beyond the model's positions.
  bool turns_only() const;
  /// Of a sequence that will have a prompt of `prompt` tokens and `after` tokens more, of which at
  /// most `chunk` are read at once. Each thread of `options.pool` (null: of the shared pool) has
  /// memory to work in.
  MemoryEstimate estimate(const CacheOptions& options, std::size_t prompt, std::size_t after = 0,
                          std::size_t chunk = 256) const;
  /// What the cache of the same tokens takes without a method, in the same storage.
  std::size_t exact_bytes(const Cache& cache) const;

  /// What the method `calibrated` scores entries with, found when the model was opened (see
  /// find_calibration()); null: there is none.
  const Calibration* calibration() const { return calibration_.get(); }
  void set_calibration(std::shared_ptr<const Calibration> calibration) {
    calibration_ = std::move(calibration);
  }
  /// The method for a cache of a given size: calibrated, or without a calibration replay, with
  /// bytes= this.
  Policy policy_for(std::string_view bytes) const;

  /// Divides the layers among processes: this model, and engines and copies made of it later, have
  /// this rank's layers alone. All ranks make the same calls and know the same logits. Texts may be
  /// read in any way, and one rank reads on while the next follows. A method divides its budget
  /// among the layers of a rank. Throws Error if a rank runs another model or version, or would
  /// have no layer that attends.
  void split_layers(std::shared_ptr<Ranks> ranks);
  /// Null: this process has all layers.
  const LayerShare* layer_share() const { return share_.get(); }

  /// For the engine.
  const ModelWeights& weights() const { return *weights_; }
  /// Null: all weights are in memory.
  const LayerPages* pages() const { return pages_.get(); }

 private:
  /// Reads layers from disk where memory does not hold them all.
  void fit_weights();

  std::shared_ptr<const ModelFile> file_;
  std::shared_ptr<const ModelWeights> weights_;
  std::shared_ptr<const Calibration> calibration_;
  std::shared_ptr<const LayerPages> pages_;
  std::shared_ptr<const LayerShare> share_;
};

/// Whether a text may be longer than the model's positions: they are rolling, or the method has
/// reach=.
bool is_endless(const CacheOptions& options);

/// The words with which a text is read again, around each of its chunks.
struct ReplayWording {
  std::vector<Token> first;  ///< before the first chunk
  std::vector<Token> later;  ///< before the last tokens of the chunk before
  std::vector<Token> after;  ///< between these and the chunk: the turn of the assistant
  bool empty() const { return first.empty() && later.empty() && after.empty(); }
};

/// One text being read and continued: its cache and its place. Keeps no pointer to the model.
class Sequence {
 public:
  /// Throws Error on bad options, and with the figure when memory for `options.expected_tokens`
  /// tokens is not there. expected_tokens decides between a model's short and long rotary factors
  /// where it has both. With rolling positions the text may be longer than the model's positions,
  /// the entries kept may not; models with learned positions have no rolling ones. See
  /// Model::cache_options().
  Sequence(const Model& model, const CacheOptions& options);
  /// Goes on from a saved cache. `text`: the last tokens that it has read, which replay passes in
  /// stream and penalties need; all of them, or fewer where they are not known. Throws Error if the
  /// cache is of another model's shape.
  Sequence(const Model& model, Cache cache, std::vector<Token> text = {});

  /// See fork_of(); the prompt of the fork is not finished either.
  Sequence fork(const Policy& policy, std::uint64_t seed) const;
  Sequence fork(const Recording& recording) const;
  /// See Cache::clone; the copy's prompt has ended if this one's has.
  Sequence clone() const;

  const Cache& cache() const { return cache_; }
  Cache& cache() { return cache_; }
  /// Read so far.
  std::size_t tokens() const { return cache_.tokens(); }
  /// Positions of the model that will have been used once `more` tokens are read: all of them, or
  /// with rolling positions those inside the cache, with reach= at most that.
  std::size_t positions_after(std::size_t more) const;
  bool prompt_finished() const { return prompt_finished_; }
  /// The last tokens read: all of them, unless it goes on from a cache whose text was not given.
  std::span<const Token> text() const { return text_; }
  /// See Cache::truncate.
  void truncate(std::size_t tokens);
  /// Says that the prompt has ended: see Cache::finish_prompt. Once at most.
  void finish_prompt();

 private:
  friend class Engine;
  /// A copy of `other` with another cache.
  Sequence(Cache cache, const Sequence& other)
      : cache_(std::move(cache)),
        prompt_finished_(other.prompt_finished_),
        text_(other.text_),
        unknown_(other.unknown_) {}
  void add(std::span<const Token> read) { text_.insert(text_.end(), read.begin(), read.end()); }

  Cache cache_;
  bool prompt_finished_ = false;
  std::vector<Token> text_;
  std::size_t unknown_ = 0;  ///< tokens read before `text_`
};

/// What one layer's attention was given and gave, for consecutive tokens: rows of heads side by
/// side. Keys are as they enter the cache: turned, unless positions are rolling.
struct AttentionStep {
  std::size_t layer = 0;  ///< of the cache: counted among those that attend
  std::size_t first = 0;  ///< the first row's token, counted through the call
  ConstMatrix queries;    ///< tokens × (heads · key dimension)
  ConstMatrix keys;       ///< tokens × (KV heads · key dimension)
  ConstMatrix values;     ///< tokens × (KV heads · value dimension)
  ConstMatrix outputs;    ///< tokens × (heads · value dimension)
  ConstMatrix inputs;     ///< tokens × width: what enters the layer, after its norm
};
using OnAttention = std::function<void(const AttentionStep& step)>;

/// A replay pass before a prompt ends.
struct ReplayOptions {
  ReplayWording wording;  ///< empty: that of the engine
  /// Called after each layer of each chunk, which takes seconds in large models, with the tokens
  /// read again and the total; false stops there, and the reading must begin anew. The total comes
  /// once, after the last token; in stream the budget is divided after that.
  std::function<bool(std::size_t done, std::size_t total)> progress = {};
  /// Questions that are known, as they will follow the text: for methods that take them into
  /// account (see Scoring::replay_question), others ignore them.
  std::vector<std::vector<Token>> questions = {};
};

struct PrefillOptions {
  /// Tokens read at once. Smaller takes less memory and notices cancellation sooner; results do not
  /// depend on it.
  std::size_t chunk = 256;
  /// Whether the prompt ends here. More may follow in other calls otherwise.
  bool finish_prompt = true;
  /// Called after each chunk with the tokens done and the total of this call; false stops there,
  /// between two tokens, with an empty result.
  std::function<bool(std::size_t done, std::size_t total)> progress = {};
  /// The replay pass before the prompt ends, for methods that need one.
  ReplayOptions replay = {};
  /// When set, receives the logits of every token: rows of consecutive tokens, the first of which
  /// is number `first` of this call.
  std::function<void(std::size_t first, ConstMatrix logits)> all_logits = {};
  /// The same of every token's state after the last layer and its norm, of the model's width.
  std::function<void(std::size_t first, ConstMatrix states)> all_states = {};
  /// When set, is shown every layer's attention as it happens, chunk by chunk.
  OnAttention on_attention = {};
};

/// Moves sequences forward. Holds the scratch memory of one forward pass, so an engine does one
/// thing at a time; engines in several threads run in parallel. Same tokens, same logits to the
/// last bit, however a prompt is cut, however sequences are batched, and with any number of
/// threads.
class Engine {
 public:
  /// Rows of logits made at once when all are wanted: vocabularies are large.
  static constexpr std::size_t kLogitRows = 32;

  /// Keeps a copy of the model, so that `model` may move or end. Loops run on `pool`; null: on
  /// ThreadPool::shared(). A cache with a pool of its own uses that.
  explicit Engine(const Model& model, std::shared_ptr<ThreadPool> pool = nullptr);
  ~Engine();
  Engine(Engine&&) noexcept;
  Engine& operator=(Engine&&) noexcept;

  const Model& model() const;
  std::size_t vocabulary() const { return model().config().vocabulary; }

  /// Reads tokens; returns the logits of the last. Throws Error when there are none, on ids outside
  /// the vocabulary, and when the sequence would grow beyond the model's positions.
  std::vector<float> prefill(Sequence& sequence, std::span<const Token> tokens,
                             const PrefillOptions& options = {});

  /// The words of replay passes for which ReplayOptions give none. In stream prefill() and
  /// decode() read each full chunk again, so set them before the first token.
  void set_replay_wording(ReplayWording wording);

  /// Reads a sequence's text a second time, chunk= tokens at a time, so that its cache scores the
  /// entries: see Scoring::replay. Does nothing where no replay pass is due. Chunks are cut from
  /// the start of the text, however it was read. In stream it reads what Scoring::end_chunk() waits
  /// for and calls that; prefill() and decode() do so whenever a chunk is full, unless the caller
  /// was sooner (Scoring::chunk_room() is 0). Returns false if `progress` stopped it.
  bool replay(Sequence& sequence, const ReplayOptions& options);
  /// Divides `bytes` among all that a stream with one budget holds, in place of the method's
  /// budget: see Cache::compact. The tokens read since the last division are read again where the
  /// method wants that. Nothing changes where the exact cache would take no more. Returns false,
  /// with nothing changed, if the reading was stopped.
  bool compact(Sequence& sequence, std::size_t bytes, const ReplayOptions& options = {});
  /// Ends the prompt: a replay pass if one is due, then Sequence::finish_prompt(). Returns
  /// false, with the prompt not ended, if the reading was stopped.
  bool finish_prompt(Sequence& sequence, const ReplayOptions& options);

  /// One step of several different sequences, a token each, which share one pass over the weights.
  /// Sequences may join and leave between steps. logits: sequences × vocabulary. `on_attention` is
  /// shown every layer's attention, a row a sequence. Errors as above.
  void decode(std::span<Sequence* const> sequences, std::span<const Token> tokens,
              MutableMatrix logits, const OnAttention& on_attention = {});
  /// The same for one.
  void decode(Sequence& sequence, Token token, std::span<float> logits,
              const OnAttention& on_attention = {});

 private:
  std::vector<float> read_prompt(Sequence& sequence, std::span<const Token> tokens,
                                 const PrefillOptions& options);
  /// The replay pass itself, whether it is due or not. In stream the budget is divided then;
  /// `bytes`: in its place, unless 0.
  bool read_again(Sequence& sequence, const ReplayOptions& options, std::size_t bytes = 0);

  std::shared_ptr<ThreadPool> pool_;
  std::unique_ptr<Forward> forward_;
  ReplayWording replay_wording_;
  /// Of each layer, what Scoring::start_replay takes. Kept once a stream has read a chunk again:
  /// every chunk wants them. Empty before.
  std::vector<Matrix> output_grams_;
};

}  // namespace ballast
