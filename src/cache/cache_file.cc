#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>

#include "ballast/cache.h"
#include "ballast/row_mean.h"
#include "ballast/serialize.h"
#include "base/checks.h"
#include "base/fail.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "cache/cache_parts.h"
#include "cache/invariants.h"
#include "storage/rows_bytes.h"

// A saved cache is little-endian, without padding. [n] is an array after its u64 count, [=n] one
// whose count is known; a text is a u64 length and its bytes. A row is its payload, padded to 16
// bytes but for q4, q3 and q2, then its bf16 scales (int4: all scales, then all offsets).
//
//   8 bytes, u32     magic BALLASTC, version 4
//   5 × u64          layers, kv_heads, queries_per_kv_head, key_dim, value_dim
//   f32, f32, i32    logits: scale, softcap, sliding_window
//   i32[n]           sliding windows of the layers
//   f32[n]           ALiBi slopes
//   f32[n]           sink logits of the layers' query heads
//   u64[n]           elements of the recurrent layers' states
//   u64              rotations n: 1, or one a layer; each:
//     f32[n], f32, u8  frequencies, magnitude, pairs
//   text             method string
//   u8, u8           protocol, positions
//   u8, u8           key type, value type
//   u64, u64         seed, expected tokens
//   text             note
//   u64, f32         with recurrent layers: tokens to which truncate() can go back (0: none); the
//                    states as they were then, if there are any; the states
//                    shared state, if the method has one: SharedState::save()
//                    each layer: LayerCache::save()
//     u8, u8           state, whether the prompt is finished
//     u64              tokens seen
//     4 × u64          budget: sink, summary, window, step
//     u8, u64          whether rows of few bits are as read (bf16); tokens that their mean rests on
//                      each KV head:
//       3 × u64          capacity of the summary, tokens it expects, size of the sink
//       u8, f32          whether there is a mean of keys; the mean; the same of values
//       u64, rows, rows  first tokens as read, beside rows of few bits: count, keys, values
//       rows, rows       sink: keys, values
//       u8               whether a summary follows: Summary::save()
//       3 × u64          window: capacity, slot of the oldest row, size
//       f32              attention sums of the first tokens, if they are used and none was evicted
//       rows, rows, f32  window, a run at a time: keys, values, attention sums if they are used
//       f32              last queries, if they are used: a ring by position
//                        moments of queries, if they are used and the state is not growing: of each
//                        query head count f64, sums f64[=d], sums of products (lower triangle)
//                        f64[=d(d+1)/2]
//                    replay in stream: i32[n] ids, none now, then each layer and KV head: f32[=n]
//                    scores, f32[=n] norms (score=max only) of the n entries of its summary
//                    calibrated while it takes scores: the scores of all entries of each head
//   u32              CRC-32 of all bytes before it
//
// Summaries. *entries* are u64 n, rows[=n] keys, rows[=n] values, i32[=n] positions, f32[=n]
// log-weights.
//
//   h2o, snapkv, pyramidkv, topk, strided, fixed, spatten, dropkv
//                    entries; u64 tokens seen; f32 threshold; f32[=n] ranks; f32[=n] attention sums
//   uniform          entries; u64 tokens seen; with from=oldest u64 exact entries
//   kcenter          entries; f64[=n] cluster sizes
//   keydiff, expected-attention, triattention, attention-matching
//                    entries
//   rkv              entries; f32[=n] attention sums
//   criticalkv       entries; f32[=n] attention sums; f32[=n] norms
//   balancekv        levels; u64, u64 blocks, failures; in stream with outliers=yes: u64 keys seen,
//                    f64[=d] their mean, entries, f32[=n] scores, waiting entries, then [n] of i32
//                    position and f32 score
//   balancekv-stream levels of the numerator, then of the normaliser (no values); f64, f64 largest
//                    norm of keys and of values; 4 × u64 blocks and failures
//     levels           entries; u64 tokens; [=n] of i16 group, i16 level; f32[=n] log-normalisers.
//                      With mode=theory and a known length first: u64 mark, u64 tokens without
//                      room, [n] of i64 group, u64 tokens
//   clustergen       u8 1 while exact: entries. Else u8 0; f64 Σ|v|²; samples of values; u64 n
//                    clusters; f32 δ²; u64 growths; u64[=n] sizes; i32[=n] opened by; rows[=n]
//                    representatives; samples of keys
//     samples          entries; f32[=n] tags; u32[=slots] entry of each slot
//   calibrated, replay, kvzip, kvzip-plus
//                    each tier: u64 n, i32[=n] positions, rows[=n] keys, rows[=n] values; with
//                    rest= the sample likewise, with f32[=n] log-weights
//
// Shared states.
//
//   spatten          [n] layers: u32 layer, i32 end, [n] of i32 position and f32 sum
//   balancekv with outliers=yes
//                    [n] heads: u32 head, i32[n] positions
namespace ballast {

namespace {

constexpr std::array<char, 8> kMagic = {'B', 'A', 'L', 'L', 'A', 'S', 'T', 'C'};
constexpr std::uint32_t kVersion = 4;

class FileWriter : public ByteWriter {
 public:
  explicit FileWriter(const std::filesystem::path& path) : file_(path) {}
  void write(const void* data, std::size_t size) override {
    if (size == 0) return;  // zlib takes a null pointer as the wish to begin anew
    auto* p = static_cast<const std::byte*>(data);
    crc_ = crc32_z(crc_, reinterpret_cast<const Bytef*>(p), size);
    file_.write(std::span<const std::byte>(p, size));
  }
  void finish() {
    const auto crc = static_cast<std::uint32_t>(crc_);
    file_.write(std::as_bytes(std::span(&crc, 1)));
    file_.commit();
  }

 private:
  OutputFile file_;
  uLong crc_ = crc32_z(0, nullptr, 0);
};

void put_settings(ByteWriter& out, const CacheShape& shape, const CacheOptions& options) {
  for (std::size_t n :
       {shape.layers, shape.kv_heads, shape.queries_per_kv_head, shape.key_dim, shape.value_dim}) {
    out.put<std::uint64_t>(n);
  }
  out.put(shape.logits.scale);
  out.put(shape.logits.softcap);
  out.put(shape.logits.sliding_window);
  out.put<std::uint64_t>(shape.sliding_windows.size());
  out.put_all<Position>(shape.sliding_windows);
  out.put<std::uint64_t>(shape.alibi_slopes.size());
  out.put_all<float>(shape.alibi_slopes);
  out.put<std::uint64_t>(shape.sink_logits.size());
  out.put_all<float>(shape.sink_logits);
  out.put<std::uint64_t>(shape.recurrent.size());
  for (std::size_t n : shape.recurrent) out.put<std::uint64_t>(n);
  const std::size_t rotations = std::max<std::size_t>(shape.rotations.size(), 1);
  out.put<std::uint64_t>(rotations);
  for (std::size_t l = 0; l < rotations; ++l) {
    const Rotary& rotary = shape.rotary_of(l);
    out.put<std::uint64_t>(rotary.frequencies.size());
    out.put_all<float>(rotary.frequencies);
    out.put(rotary.magnitude);
    out.put<std::uint8_t>(rotary.pairs);
  }
  out.put_text(options.policy.to_string());
  out.put(options.protocol);
  out.put(options.positions);
  out.put(options.key_type);
  out.put(options.value_type);
  out.put(options.seed);
  out.put<std::uint64_t>(options.expected_tokens);
}

template <typename Enum>
Enum get_enum(ByteReader& in, Enum last, const char* name) {
  auto value = in.get<std::uint8_t>();
  require(value <= static_cast<std::uint8_t>(last), "{}: unknown {} {}", in.what(), name, value);
  return static_cast<Enum>(value);
}

void get_settings(ByteReader& in, CacheShape& shape, CacheOptions& options) {
  // A layer and a head cost bytes each, which bounds what a hostile file can make us allocate.
  shape.layers = in.get_count(in.left(), "the number of layers");
  shape.kv_heads = in.get_count(in.left(), "the number of KV heads");
  require(shape.layers == 0 || shape.kv_heads <= in.left() / shape.layers,
          "{}: {} layers of {} KV heads cannot be in {} bytes", in.what(), shape.layers,
          shape.kv_heads, in.left());
  shape.queries_per_kv_head = in.get_count(1 << 16, "the number of query heads a KV head");
  shape.key_dim = in.get_count(kMaxHeadDim, "the key dimension");
  shape.value_dim = in.get_count(kMaxHeadDim, "the value dimension");
  shape.logits.scale = in.get<float>();
  shape.logits.softcap = in.get<float>();
  shape.logits.sliding_window = in.get<Position>();
  shape.sliding_windows.resize(in.get_count(std::min(shape.layers, in.left() / sizeof(Position)),
                                            "the number of sliding windows"));
  in.get_all<Position>(shape.sliding_windows);
  shape.alibi_slopes.resize(
      in.get_count(std::min(shape.kv_heads * shape.queries_per_kv_head, in.left() / sizeof(float)),
                   "the number of slopes"));
  in.get_all<float>(shape.alibi_slopes);
  const std::size_t query_heads = shape.kv_heads * shape.queries_per_kv_head;
  shape.sink_logits.resize(
      in.get_count(std::min(shape.layers * query_heads, in.left() / sizeof(float)), "sink logits"));
  in.get_all<float>(shape.sink_logits);
  shape.recurrent.resize(in.get_count(in.left() / sizeof(std::uint64_t), "recurrent layers"));
  for (std::size_t& n : shape.recurrent) {
    n = in.get_count(in.left() / sizeof(float), "the elements of a state");
  }
  const std::size_t rotations = in.get_count(shape.layers, "the number of rotations");
  require(rotations == 1 || rotations == shape.layers, "{}: {} rotations for {} layers", in.what(),
          rotations, shape.layers);
  for (std::size_t l = 0; l < rotations; ++l) {
    Rotary& rotary = rotations == 1 ? shape.rotary : shape.rotations.emplace_back();
    rotary.frequencies.resize(
        in.get_count(std::min(kMaxHeadDim, in.left() / sizeof(float)), "frequencies"));
    in.get_all<float>(rotary.frequencies);
    rotary.magnitude = in.get<float>();
    rotary.pairs = in.get<std::uint8_t>() != 0;
  }
  options.policy = Policy::parse(in.get_text());
  options.protocol = get_enum(in, Protocol::stream, "protocol");
  options.positions = get_enum(in, Positions::rolling, "positions");
  options.key_type = get_enum(in, StorageType::q2, "key type");
  options.value_type = get_enum(in, StorageType::q2, "value type");
  options.seed = in.get<std::uint64_t>();
  options.expected_tokens = in.get_count(std::numeric_limits<Position>::max(), "the length");
}

}  // namespace

void LayerCache::save(ByteWriter& out) const {
  out.put(state_);
  out.put(prompt_ended_);
  out.put<std::uint64_t>(tokens());
  for (std::size_t part : {budget_.sink, budget_.summary, budget_.window, budget_.step}) {
    out.put<std::uint64_t>(part);
  }
  out.put(as_read_);
  out.put<std::uint64_t>(rounded_);
  for (const HeadCache& head : heads_) {
    out.put<std::uint64_t>(head.setup.capacity);
    out.put<std::uint64_t>(head.setup.tokens);
    out.put<std::uint64_t>(head.sink);
    for (const auto* mean : {head.setup.key_mean.get(), head.setup.value_mean.get()}) {
      out.put<std::uint8_t>(mean != nullptr);
      if (mean != nullptr) out.put_all<float>(mean->mean());
    }
    out.put<std::uint64_t>(head.first);
    save_rows(out, head.first_keys.view(0, head.first));
    save_rows(out, head.first_values.view(0, head.first));
    save_rows(out, head.sink_keys.view(0, head.sink));
    save_rows(out, head.sink_values.view(0, head.sink));
    out.put<std::uint8_t>(head.summary != nullptr);
    if (head.summary) head.summary->save(out);
    // What is recorded for forks stays out: the loaded cache does not record.
    const bool recorded = options_.recording.any();
    head.window.save(out, !recorded, state_ == State::sliding);
    if (recorded) continue;
    head.queries.save(out);
  }
}

void LayerCache::load(ByteReader& in, std::size_t& room) {
  loaded_ = true;
  const auto state = in.get<std::uint8_t>();
  require(state <= static_cast<std::uint8_t>(State::sliding), "{}: layer {} has state {}",
          in.what(), layer_, state);
  state_ = static_cast<State>(state);
  prompt_ended_ = in.get<std::uint8_t>() != 0;
  constexpr std::size_t most = std::numeric_limits<Position>::max();
  tokens_ = in.get_count(most, "the number of tokens");
  for (std::size_t* part : {&budget_.sink, &budget_.summary, &budget_.window, &budget_.step}) {
    *part = in.get_count(most, "a share of the budget");
  }
  as_read_ = in.get<std::uint8_t>() != 0;
  rounded_ = in.get_count(kFirstTokens + kMeanTokens, "the tokens of a mean");
  for (HeadCache& head : heads_) load_head(head, in, room);
  skip();
}

void LayerCache::load_head(HeadCache& head, ByteReader& in, std::size_t& room) {
  const auto take = [&](std::size_t bytes, const char* part) {
    require(bytes <= room,
            "{}: layer {}: {} would take {} bytes, far more than the file holds for it", in.what(),
            layer_, part, bytes);
    room -= bytes;
  };
  head.setup.capacity =
      in.get_count(budget_.summary * (adapts() ? heads_.size() : 1), "the capacity of a summary");
  head.setup.tokens = in.get_count(std::numeric_limits<Position>::max(), "the length of a text");
  head.sink = in.get_count(std::min(budget_.sink, in.left()), "the size of a sink");
  const auto load_mean = [&](std::size_t dim) {
    std::vector<float> mean(in.get<std::uint8_t>() != 0 ? dim : 0);
    in.get_all<float>(mean);
    require(first_not_finite(mean) == mean.size(), "{}: a mean of rows is not finite", in.what());
    return mean;
  };
  if (auto mean = load_mean(shape_.key_dim); !mean.empty()) {
    head.setup.key_mean = std::make_shared<const RowMean>(std::move(mean), attention_.rotary());
  }
  if (auto mean = load_mean(shape_.value_dim); !mean.empty()) {
    head.setup.value_mean = std::make_shared<const RowMean>(RowMean::for_values(std::move(mean)));
  }
  head.first = in.get_count(kFirstTokens, "the first tokens held as read");
  head.setup.sink = head.ahead();
  head.first_keys = Rows(ballast::as_read(options_.key_type), shape_.key_dim, head.first);
  head.first_values = Rows(ballast::as_read(options_.value_type), shape_.value_dim, head.first);
  load_rows(in, head.first_keys, 0, head.first);
  load_rows(in, head.first_values, 0, head.first);
  head.sink_keys = Rows(options_.key_type, shape_.key_dim, head.sink);
  head.sink_values = Rows(options_.value_type, shape_.value_dim, head.sink);
  head.sink_keys.set_mean(head.setup.key_mean);
  head.sink_values.set_mean(head.setup.value_mean);
  load_rows(in, head.sink_keys, 0, head.sink);
  load_rows(in, head.sink_values, 0, head.sink);
  // A summary of one budget for the whole cache takes what it reads.
  const bool as_large_as_read = global_ != nullptr;
  const std::size_t taken = as_large_as_read ? 0 : summary_bytes(head.setup, head.setup.capacity);
  if (in.get<std::uint8_t>() != 0) {
    take(taken, "a summary");
    head.summary = make_summary(head.setup);
    require(head.summary != nullptr, "{}: layer {} holds a summary, method {} has none", in.what(),
            layer_, options_.policy.info().name);
    head.summary->load(in);
  } else if (state_ != State::whole) {
    take(taken, "a summary");  // that may be missing
  }
  const auto row_of = [&](StorageType type, std::size_t dim) {
    return stored_row_bytes(as_read_ ? ballast::as_read(type) : type, dim);
  };
  const std::size_t row = row_of(options_.key_type, shape_.key_dim) +
                          row_of(options_.value_type, shape_.value_dim) + sizeof(float);
  const std::size_t rows =
      head.window.load(head.setup, accumulates(), state_ == State::sliding, as_read_,
                       state_ == State::whole ? head.first : 0, room / row, in);
  take(rows * row, "a window");
  if (state_ == State::growing) head.queries.forget_moments();
  head.queries.load(in);
}

void CacheParts::write(ByteWriter& out, std::string_view note) const {
  require(!joined, "a joined cache is not saved: save its documents");
  for (const auto& layer : layers) {
    require(layer->tokens() == tokens() && layer->prompt_ended() == layers[0]->prompt_ended(),
            "a cache is saved once each layer has read the same tokens");
  }
  out.put(kMagic);
  out.put(kVersion);
  put_settings(out, shape, options);
  out.put_text(note);
  if (recurrent) recurrent->save(out, tokens());
  if (shared) shared->save(out);
  for (const auto& layer : layers) layer->save(out);
  if (global) global->save(out);
}

void Cache::save(const std::filesystem::path& path, std::string_view note) const {
  FileWriter out(path);
  parts_->write(out, note);
  out.finish();
}

std::vector<std::byte> Cache::to_bytes(std::string_view note) const {
  MemoryWriter out;
  // Little more than what the cache holds: growing by doubling would take twice as much.
  out.bytes.reserve(bytes().total() + note.size());
  parts_->write(out, note);
  const uLong crc = crc32_z(crc32_z(0, nullptr, 0),
                            reinterpret_cast<const Bytef*>(out.bytes.data()), out.bytes.size());
  out.put(static_cast<std::uint32_t>(crc));
  return std::move(out.bytes);
}

namespace {

/// The content of a file behind its version.
std::unique_ptr<CacheParts> parse_body(ByteReader& in, std::string* note);

}  // namespace

Cache Cache::load(const std::filesystem::path& path, std::string* note) {
  MappedFile file(path);
  return parse(file.bytes(), path.string(), note);
}

Cache Cache::parse(std::span<const std::byte> bytes, const std::string& name,
                   std::string* note) try {
  constexpr std::size_t head = sizeof(kMagic) + sizeof(kVersion);
  require(bytes.size() >= head + sizeof(std::uint32_t) &&
              std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0,
          "{}: not a saved Ballast cache", name);
  const auto body = bytes.first(bytes.size() - sizeof(std::uint32_t));
  ByteReader in(body.subspan(sizeof(kMagic)), name);
  const auto version = in.get<std::uint32_t>();
  require(version == kVersion, ErrorCode::unsupported,
          "{}: a saved cache of version {}, this program reads version {}: read the text again",
          name, version, kVersion);
  std::uint32_t stored = 0;
  std::memcpy(&stored, bytes.data() + body.size(), sizeof(stored));
  const uLong crc =
      crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(body.data()), body.size());
  require(stored == crc, "{}: damaged: its checksum is {:08x}, its content gives {:08x}", name,
          stored, static_cast<std::uint32_t>(crc));
  return Cache(parse_body(in, note));
} catch (const Error& error) {
  rethrow_from_file(error);
}

namespace {

std::unique_ptr<CacheParts> parse_body(ByteReader& in, std::string* note) {
  CacheShape shape;
  CacheOptions options;
  get_settings(in, shape, options);
  check_shape(shape);
  std::string text = in.get_text();
  const std::size_t recent = options.policy.observed() * shape.queries_per_kv_head * shape.key_dim;
  require(recent <= in.left() / sizeof(float) / shape.layers / shape.kv_heads,
          "{}: {} remembered queries a head cannot be in {} bytes", in.what(),
          options.policy.observed() * shape.queries_per_kv_head, in.left());
  // What the file holds decides how much is allocated, not what it says of a text to come.
  std::size_t room = load_limit(in.left());
  const bool moments = options.policy.needs().query_moments;
  const std::size_t of_head =
      sizeof(HeadCache) + (moments ? shape.queries_per_kv_head * (shape.key_dim + 1) *
                                         (shape.key_dim + 2) / 2 * sizeof(double)
                                   : 0);
  const std::size_t empty = sizeof(LayerCache) + shape.kv_heads * of_head;
  require(empty <= room / shape.layers, "{}: {} layers of {} KV heads cannot be in {} bytes",
          in.what(), shape.layers, shape.kv_heads, in.left());
  room -= shape.layers * empty;
  std::size_t states = 0;
  for (std::size_t n : shape.recurrent) states += n;
  require(states <= in.left() / sizeof(float), "{}: recurrent states of {} elements in {} bytes",
          in.what(), states, in.left());
  auto cache = std::make_unique<CacheParts>(shape, options, false);
  if (cache->recurrent) cache->recurrent->load(in);
  if (cache->shared) cache->shared->load(in);
  for (auto& layer : cache->layers) layer->load(in, room);
  if (cache->recurrent) cache->recurrent->set_tokens(cache->tokens(), in.what());
  if (cache->global) cache->global->load(in);
  require(in.left() == 0, "{}: {} bytes too many", in.what(), in.left());
  check_invariants(cache->shape, cache->options, cache->layers, in.what());
  cache->reach_rotations();
  if (note != nullptr) *note = std::move(text);
  return cache;
}

}  // namespace

}  // namespace ballast
