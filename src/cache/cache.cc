#include "ballast/cache.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "attention/rotary.h"
#include "base/bytes.h"
#include "base/checks.h"
#include "base/fail.h"
#include "base/mapped_file.h"
#include "base/output_file.h"
#include "cache/layer_cache.h"

namespace ballast {

struct Cache::Settings {
  CacheShape shape;
  CacheOptions options;
};

std::string_view to_string(Positions positions) {
  return positions == Positions::absolute ? "absolute" : "rolling";
}

Positions parse_positions(std::string_view name) {
  for (Positions p : {Positions::absolute, Positions::rolling}) {
    if (name == to_string(p)) return p;
  }
  fail("unknown positions '{}'; known: absolute, rolling", name);
}

CacheBytes& CacheBytes::operator+=(const CacheBytes& other) {
  sink += other.sink;
  summary += other.summary;
  window += other.window;
  attention_stats += other.attention_stats;
  rotary += other.rotary;
  return *this;
}

namespace {

constexpr std::size_t kMostHeadDim = 256;

void check_shape(const CacheShape& shape) {
  require(shape.layers > 0 && shape.kv_heads > 0 && shape.queries_per_kv_head > 0,
          "a cache needs layers, KV heads and query heads; given: {}, {} and {} a KV head",
          shape.layers, shape.kv_heads, shape.queries_per_kv_head);
  for (std::size_t dim : {shape.key_dim, shape.value_dim}) {
    require(dim >= 1 && dim <= kMostHeadDim, "a head dimension of {}; supported: 1 to {}", dim,
            kMostHeadDim);
  }
  require(shape.sliding_windows.empty() || shape.sliding_windows.size() == shape.layers,
          "{} sliding windows for {} layers", shape.sliding_windows.size(), shape.layers);
  require(shape.alibi_slopes.empty() ||
              shape.alibi_slopes.size() == shape.kv_heads * shape.queries_per_kv_head,
          "{} ALiBi slopes for {} query heads", shape.alibi_slopes.size(),
          shape.kv_heads * shape.queries_per_kv_head);
  require(2 * shape.rotary.frequencies.size() <= shape.key_dim,
          "{} rotations of two numbers in a head of {}", shape.rotary.frequencies.size(),
          shape.key_dim);
}

void check_rows(ConstMatrix rows, std::size_t count, std::size_t cols, const char* name) {
  require(rows.rows == count && rows.cols == cols, "{} are {} × {}, expected {} × {}", name,
          rows.rows, rows.cols, count, cols);
  for (std::size_t t = 0; t < rows.rows; ++t) {
    const std::size_t at = first_not_finite(rows[t]);
    require(at == rows.cols, "{}: token {}, number {} is {}", name, t, at,
            rows[t][std::min(at, cols - 1)]);
  }
}

}  // namespace

void CacheOptions::Recording::include(const Policy& policy) {
  const AttentionStats::Kind kind = policy.attention_stats().kind;
  attention_sum = attention_sum || kind == AttentionStats::Kind::accumulated ||
                  kind == AttentionStats::Kind::both;
  queries = std::max(queries, policy.observed());
}

bool CacheOptions::needs_queries() const {
  return policy.attention_stats().kind != AttentionStats::Kind::nothing ||
         recording.attention_sum || recording.queries > 0;
}

Cache::Cache(const CacheShape& shape, const CacheOptions& options) : Cache(shape, options, true) {}

Cache::Cache(const CacheShape& shape, const CacheOptions& options, bool reserve)
    : settings_(new Settings{shape, options}) {
  check_shape(shape);
  const MethodInfo& info = options.policy.info();
  require(info.window_policy == WindowPolicy::all ||
              (!options.recording.attention_sum && options.recording.queries == 0),
          "only an exact cache notes attention for others, not {}", info.name);
  if (info.make_shared != nullptr) shared_ = info.make_shared(options.policy);
  if (options.positions == Positions::rolling) {
    rotations_ = std::make_unique<RotaryTable>(shape.rotary);
  }
  for (std::size_t l = 0; l < shape.layers; ++l) {
    layers_.push_back(std::make_unique<LayerCache>(settings_->shape, settings_->options, l,
                                                   shared_.get(), rotations_.get(), reserve));
  }
}

Cache::Cache(Cache&&) noexcept = default;
Cache& Cache::operator=(Cache&&) noexcept = default;
Cache::~Cache() = default;

const CacheShape& Cache::shape() const { return settings_->shape; }
const CacheOptions& Cache::options() const { return settings_->options; }

void Cache::forward(std::size_t layer, ConstMatrix keys, ConstMatrix values, ConstMatrix queries,
                    MutableMatrix out) {
  const CacheShape& s = shape();
  require(layer < s.layers, "layer {} of a cache of {} layers", layer, s.layers);
  const std::size_t query_heads = s.kv_heads * s.queries_per_kv_head;
  check_rows(keys, keys.rows, s.kv_heads * s.key_dim, "keys");
  check_rows(values, keys.rows, s.kv_heads * s.value_dim, "values");
  // Nobody asks: only a method that watches attention needs the queries then.
  const bool asked = queries.rows != 0 || keys.rows == 0 || options().needs_queries();
  const std::size_t answers = asked ? keys.rows : 0;
  check_rows(queries, answers, query_heads * s.key_dim, "queries");
  require(out.rows == answers && out.cols == query_heads * s.value_dim,
          "the output is {} × {}, expected {} × {}", out.rows, out.cols, answers,
          query_heads * s.value_dim);
  layers_[layer]->forward(keys, values, queries, out);
}

void Cache::finish_prompt(std::size_t layer) {
  require(layer < layers_.size(), "layer {} of a cache of {} layers", layer, layers_.size());
  layers_[layer]->finish_prompt();
}

void Cache::finish_prompt() {
  for (auto& layer : layers_) layer->finish_prompt();
}

Cache Cache::fork(const Policy& policy, std::uint64_t seed) const {
  CacheOptions options = settings_->options;
  require(options.policy.info().window_policy == WindowPolicy::all &&
              options.protocol == Protocol::prefill,
          "only an exact cache in prefill can be forked, not {} in {}", options.policy.info().name,
          to_string(options.protocol));
  options.policy = policy;
  options.seed = seed;
  options.recording = {};
  Cache out(shape(), options, false);
  for (std::size_t l = 0; l < layers_.size(); ++l) out.layers_[l]->copy_prompt(*layers_[l]);
  return out;
}

Matrix Cache::answer_latest(const Cache& other, std::size_t layer, std::size_t head) const {
  require(layer < layers_.size() && layer < other.layers_.size() && head < shape().kv_heads &&
              head < other.shape().kv_heads && tokens(layer) == other.tokens(layer) &&
              shape().key_dim == other.shape().key_dim &&
              shape().queries_per_kv_head == other.shape().queries_per_kv_head,
          "layer {}, KV head {}: the two caches are not of the same text", layer, head);
  return layers_[layer]->answer_latest(*other.layers_[layer], head);
}

Matrix Cache::latest_attention(std::size_t layer, std::size_t head) const {
  require(head < shape().kv_heads, "KV head {} of {}", head, shape().kv_heads);
  return layers_.at(layer)->latest_attention(head);
}

void Cache::reserve(std::size_t tokens) {
  for (auto& layer : layers_) layer->reserve(tokens);
}

std::size_t Cache::tokens(std::size_t layer) const { return layers_.at(layer)->tokens(); }
std::size_t Cache::entries(std::size_t layer) const { return layers_.at(layer)->entries(); }

CacheBytes Cache::bytes() const {
  CacheBytes bytes;
  for (const auto& layer : layers_) bytes += layer->bytes();
  if (shared_) bytes.attention_stats += shared_->bytes();
  if (rotations_) bytes.rotary = rotations_->bytes();
  return bytes;
}

std::vector<Segment> Cache::segments(std::size_t layer, std::size_t head) const {
  require(head < shape().kv_heads, "KV head {} of {}", head, shape().kv_heads);
  return layers_.at(layer)->segments(head);
}

std::vector<KeptEntry> Cache::kept(std::size_t layer, std::size_t head) const {
  require(head < shape().kv_heads, "KV head {} of {}", head, shape().kv_heads);
  return layers_.at(layer)->kept(head);
}

std::vector<std::string> Cache::reports() const {
  std::vector<std::string> out;
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    for (std::size_t h = 0; h < shape().kv_heads; ++h) {
      const Summary* summary = layers_[l]->head(h).summary.get();
      std::string text = summary ? summary->report() : std::string{};
      if (!text.empty()) out.push_back(fmt::format("layer {} head {}: {}", l, h, text));
    }
  }
  return out;
}

// --- Saved caches: magic, version, settings, note, layers, CRC-32 of all before it ---

namespace {

constexpr std::array<char, 8> kMagic = {'B', 'A', 'L', 'L', 'A', 'S', 'T', 'C'};
constexpr std::uint32_t kVersion = 1;

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
  out.put<std::uint64_t>(shape.rotary.frequencies.size());
  out.put_all<float>(shape.rotary.frequencies);
  out.put(shape.rotary.magnitude);
  out.put<std::uint8_t>(shape.rotary.pairs);
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
  shape.key_dim = in.get_count(kMostHeadDim, "the key dimension");
  shape.value_dim = in.get_count(kMostHeadDim, "the value dimension");
  shape.logits.scale = in.get<float>();
  shape.logits.softcap = in.get<float>();
  shape.logits.sliding_window = in.get<Position>();
  shape.sliding_windows.resize(in.get_count(shape.layers, "the number of sliding windows"));
  in.get_all<Position>(shape.sliding_windows);
  shape.alibi_slopes.resize(
      in.get_count(shape.kv_heads * shape.queries_per_kv_head, "the number of slopes"));
  in.get_all<float>(shape.alibi_slopes);
  shape.rotary.frequencies.resize(in.get_count(kMostHeadDim, "the number of rotations"));
  in.get_all<float>(shape.rotary.frequencies);
  shape.rotary.magnitude = in.get<float>();
  shape.rotary.pairs = in.get<std::uint8_t>() != 0;
  options.policy = Policy::parse(in.get_text());
  options.protocol = get_enum(in, Protocol::stream, "protocol");
  options.positions = get_enum(in, Positions::rolling, "positions");
  options.key_type = get_enum(in, StorageType::int4, "key type");
  options.value_type = get_enum(in, StorageType::int4, "value type");
  options.seed = in.get<std::uint64_t>();
  options.expected_tokens = in.get_count(std::numeric_limits<Position>::max(), "the length");
}

}  // namespace

void Cache::write(ByteWriter& out, std::string_view note) const {
  out.put(kMagic);
  out.put(kVersion);
  put_settings(out, shape(), options());
  out.put_text(note);
  if (shared_) shared_->save(out);
  for (const auto& layer : layers_) layer->save(out);
}

void Cache::save(const std::filesystem::path& path, std::string_view note) const {
  FileWriter out(path);
  write(out, note);
  out.finish();
}

std::vector<std::byte> Cache::to_bytes(std::string_view note) const {
  MemoryWriter out;
  // Little more than what the cache holds: growing by doubling would take twice as much.
  out.bytes.reserve(bytes().total() + note.size());
  write(out, note);
  const uLong crc = crc32_z(crc32_z(0, nullptr, 0),
                            reinterpret_cast<const Bytef*>(out.bytes.data()), out.bytes.size());
  out.put(static_cast<std::uint32_t>(crc));
  return std::move(out.bytes);
}

Cache Cache::load(const std::filesystem::path& path, std::string* note) {
  MappedFile file(path);
  return parse(file.bytes(), path.string(), note);
}

Cache Cache::parse(std::span<const std::byte> bytes, const std::string& name, std::string* note) {
  constexpr std::size_t head = sizeof(kMagic) + sizeof(kVersion);
  require(bytes.size() >= head + sizeof(std::uint32_t) &&
              std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0,
          "{}: not a saved Ballast cache", name);
  const auto body = bytes.first(bytes.size() - sizeof(std::uint32_t));
  ByteReader in(body.subspan(sizeof(kMagic)), name);
  const auto version = in.get<std::uint32_t>();
  require(version == kVersion, "{}: a saved cache of version {}, this program reads version {}",
          name, version, kVersion);
  std::uint32_t stored = 0;
  std::memcpy(&stored, bytes.data() + body.size(), sizeof(stored));
  const uLong crc =
      crc32_z(crc32_z(0, nullptr, 0), reinterpret_cast<const Bytef*>(body.data()), body.size());
  require(stored == crc, "{}: damaged: its checksum is {:08x}, its content gives {:08x}", name,
          stored, static_cast<std::uint32_t>(crc));
  return parse_body(in, note);
}

Cache Cache::parse_body(ByteReader& in, std::string* note) {
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
  Cache cache(shape, options, false);
  if (cache.shared_) cache.shared_->load(in);
  for (auto& layer : cache.layers_) layer->load(in);
  require(in.left() == 0, "{}: {} bytes too many", in.what(), in.left());
  if (cache.rotations_) {
    std::size_t most = 0;
    for (const auto& layer : cache.layers_) most = std::max(most, layer->entries());
    if (most > 0) cache.rotations_->reach(most + 1);  // as it was, for bytes() to say
  }
  if (note != nullptr) *note = std::move(text);
  return cache;
}

}  // namespace ballast
