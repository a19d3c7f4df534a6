// A text divided among ranks. Each reads its share through all layers, one layer at a time: the
// keys and values of a layer pass from rank to rank, each of which attends to those before its own.
// Later tokens attend to what each rank has kept of its share; what they see unites by log-sum-exp.
#include "model/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "ballast/engine/calibration.h"
#include "ballast/version.h"
#include "base/fail.h"
#include "base/fnv.h"
#include "base/thread_pool.h"
#include "model/forward.h"
#include "model/layer_pages.h"
#include "model/prefill_cost.h"

namespace ballast {
namespace {

/// Tokens whose attention one thread computes at a time.
constexpr std::size_t kTile = 32;

void check_cache(const Cache& cache) {
  const CacheOptions& o = cache.options();
  const AttentionStats stats = o.policy.attention_stats();
  require(
      !o.needs_queries() && (stats.replay == ReplayScore::none || cache.scoring().takes_scores()),
      ErrorCode::unsupported,
      "method {} needs the attention of the whole text, which no rank has; balancekv, "
      "clustergen, uniform, keydiff and calibrated need their own share; or divide the layers: "
      "--split layers",
      o.policy.info().name);
  require(o.protocol == Protocol::prefill && o.positions == Positions::absolute,
          ErrorCode::unsupported,
          "ranks that divide a text read in prefill with absolute positions; or divide the layers: "
          "--split layers");
  require(row_scales(o.key_type, 1) == 0 && row_scales(o.value_type, 1) == 0,
          ErrorCode::unsupported,
          "ranks exchange keys and values as f32, bf16 or f16; leave out --cache-type {}",
          to_string(o.key_type));
}

/// The rows of a segment as they are stored, behind `bytes`.
void append(const RowsView& rows, std::vector<std::byte>& bytes) {
  for (std::size_t i = 0; i < rows.rows; ++i) {
    const std::byte* row = rows.data + i * rows.stride;
    bytes.insert(bytes.end(), row, row + row_bytes(rows.type, rows.dim));
  }
}

/// The keys and values of one layer that a rank has read: of each head all keys, then all values.
struct Share {
  std::vector<Rows> keys, values;  ///< of each KV head
  std::size_t tokens = 0;

  Share(const CacheShape& shape, const CacheOptions& options, std::size_t count) : tokens(count) {
    for (std::size_t h = 0; h < shape.kv_heads; ++h) {
      keys.emplace_back(options.key_type, shape.key_dim, count);
      values.emplace_back(options.value_type, shape.value_dim, count);
    }
  }
  static std::size_t bytes(const CacheShape& shape, const CacheOptions& options,
                           std::size_t count) {
    return count * shape.kv_heads *
           (row_bytes(options.key_type, shape.key_dim) +
            row_bytes(options.value_type, shape.value_dim));
  }
  void set(std::span<const std::byte> bytes) {
    for (std::size_t h = 0; h < keys.size(); ++h) {
      for (Rows* rows : {&keys[h], &values[h]}) {
        for (std::size_t i = 0; i < tokens; ++i) {
          const std::span<std::byte> row = rows->payload(i);
          std::memcpy(row.data(), bytes.data(), row.size());
          bytes = bytes.subspan(row.size());
        }
      }
    }
  }
};

/// The rows of (token, query head) of a KV head, side by side. tokens: of `queries`.
Matrix packed(ConstMatrix queries, std::size_t kv_head, std::size_t group, std::size_t dim) {
  Matrix out(queries.rows * group, dim);
  for (std::size_t t = 0; t < queries.rows; ++t) {
    const float* from = queries.row(t) + kv_head * group * dim;
    std::copy(from, from + group * dim, out[t * group].data());
  }
  return out;
}

void unpack(const Matrix& rows, std::size_t kv_head, std::size_t group, MutableMatrix out) {
  const std::size_t dim = rows.cols();
  for (std::size_t t = 0; t < out.rows; ++t) {
    const auto from = rows[t * group];
    std::copy(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(group * dim),
              out.row(t) + kv_head * group * dim);
  }
}

/// Takes tokens in whose attention is computed elsewhere.
void take_in(Cache& cache, std::size_t layer, ConstMatrix keys, ConstMatrix values) {
  const CacheShape& s = cache.shape();
  const std::size_t heads = s.kv_heads * s.queries_per_kv_head;
  cache.forward(layer, keys, values, {nullptr, 0, heads * s.key_dim},
                {nullptr, 0, heads * s.value_dim});
}

/// Positions of the rows of tokens from `first` on, `group` rows each.
std::vector<Position> positions_of(std::size_t first, std::size_t tokens, std::size_t group) {
  std::vector<Position> out;
  for (std::size_t i = 0; i < tokens * group; ++i) {
    out.push_back(static_cast<Position>(first + i / group));
  }
  return out;
}

}  // namespace

std::vector<std::size_t> divide_text(const ModelConfig& config, std::size_t tokens,
                                     std::size_t ranks) {
  require(ranks > 0 && tokens >= ranks,
          "a text of {} tokens for {} ranks: at least a token each is needed", tokens, ranks);
  std::vector<std::size_t> begins = {0};
  for (std::size_t r = 1; r < ranks; ++r) {
    const double wanted = prefill_cost(config, static_cast<double>(tokens)) *
                          static_cast<double>(r) / static_cast<double>(ranks);
    std::size_t low = begins.back() + 1, high = tokens - (ranks - r);
    while (low < high) {
      const std::size_t middle = (low + high) / 2;
      if (prefill_cost(config, static_cast<double>(middle)) < wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    begins.push_back(low);
  }
  begins.push_back(tokens);
  return begins;
}

CacheOptions options_of_share(const CacheOptions& whole, const ModelConfig& config,
                              const Ranks& ranks, std::size_t prompt) {
  const std::vector<std::size_t> begins = divide_text(config, prompt, ranks.size());
  const std::size_t own = begins[ranks.rank() + 1] - begins[ranks.rank()];
  const double share = static_cast<double>(own) / static_cast<double>(prompt);
  CacheOptions out = whole;
  const std::size_t later = whole.expected_tokens - std::min(whole.expected_tokens, prompt);
  out.expected_tokens = own + (ranks.last() ? later : 0);
  const Policy& policy = whole.policy;
  if (policy.has("bytes") && policy.memory("bytes").unit == MemorySize::Unit::bytes) {
    const double bytes = policy.memory("bytes").amount * share;
    out.policy = policy.with("bytes", fmt::format("{}B", static_cast<std::size_t>(bytes)));
  }
  if (policy.has("budget")) {
    const double entries = static_cast<double>(policy.integer("budget")) * share;
    out.policy = policy.with("budget", fmt::format("{}", std::llround(entries)));
  }
  return out;
}

void require_equal(Ranks& ranks, std::span<const std::byte> bytes, std::string_view name) {
  Fnv hash;
  hash.add(bytes);
  const std::uint64_t mine = hash.value();
  std::vector<std::uint64_t> all(ranks.size());
  ranks.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)));
  for (std::size_t r = 0; r < all.size(); ++r) {
    require(all[r] == all[0], "ranks 0 and {} have different {}", r, name);
  }
}

CacheOptions options_of_layers(const CacheOptions& options, const ModelConfig& whole,
                               const ModelConfig& share) {
  const Policy& policy = options.policy;
  if (!policy.has("bytes") || policy.memory("bytes").unit != MemorySize::Unit::bytes)
    return options;
  const double layer =
      policy.memory("bytes").amount / static_cast<double>(whole.attending().size());
  CacheOptions out = options;
  // As many bytes a layer on every rank, so that all compress at the same token.
  out.policy = policy.with(
      "bytes", fmt::format("{}B", static_cast<std::size_t>(layer) * share.attending().size()));
  return out;
}

void require_same_model(const Model& model, Ranks& ranks) {
  const std::string runs =
      fmt::format("{} {} {}", calibration_key(model), model.file().bytes(), BALLAST_VERSION);
  require_equal(ranks, std::as_bytes(std::span(runs)), "models or versions");
}

void Model::set_ranks(std::shared_ptr<Ranks> ranks) {
  if (ranks) {
    const ModelConfig& c = config();
    require(std::ranges::all_of(c.sliding_windows, [](auto w) { return w == 0; }) &&
                c.alibi_max_bias == 0.0f && c.kinds.empty() && !c.attention_sinks,
            ErrorCode::unsupported,
            "{}: ranks divide texts for models whose layers all attend to the whole text, without "
            "sliding windows, ALiBi, sinks or recurrent layers; divide the layers: --split layers",
            file().path().string());
    require_same_model(*this, *ranks);
  }
  ranks_ = std::move(ranks);
}

void Forward::attend_over_ranks(std::size_t layer, const Run& run) {
  Ranks& ranks = *model_.ranks();
  Cache& cache = run.sequence->cache();
  const CacheShape& shape = cache.shape();
  const std::size_t group = shape.queries_per_kv_head, width = shape.value_dim + 2;
  const std::size_t before = cache.tokens(layer), asked = tokens_ - from_;
  if (ranks.last()) {
    take_in(cache, layer, scratch_.key.view().slice(0, tokens_),
            scratch_.value.view().slice(0, tokens_));
  }
  const std::size_t rows = asked * group, head = rows * width;
  std::vector<float> mine(shape.kv_heads * head), all(mine.size() * ranks.size());
  const std::vector<Position> positions = positions_of(before + from_, asked, group);
  parallel_for(shape.kv_heads, [&](std::size_t h) {
    const Matrix queries = packed(this->rows(scratch_.query), h, group, shape.key_dim);
    PartialAttention part(rows, shape.value_dim);
    attend_partial({queries.view(), positions, {}}, cache.segments(layer, h), shape.logits, part);
    float* out = mine.data() + h * head;
    for (std::size_t i = 0; i < rows; ++i, out += width) {
      std::ranges::copy(part.numerator[i], out);
      out[width - 2] = part.max_logit[i];
      out[width - 1] = part.normaliser[i];
    }
  });
  ranks.gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(all)));
  parallel_for(shape.kv_heads, [&](std::size_t h) {
    PartialAttention whole(rows, shape.value_dim), part(rows, shape.value_dim);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const float* in = all.data() + r * mine.size() + h * head;
      for (std::size_t i = 0; i < rows; ++i, in += width) {
        std::copy(in, in + shape.value_dim, part.numerator[i].begin());
        part.max_logit[i] = in[width - 2];
        part.normaliser[i] = in[width - 1];
      }
      whole.merge(part);
    }
    Matrix out(rows, shape.value_dim);
    whole.finish(out.view());
    unpack(out, h, group, this->rows(scratch_.attended));
  });
}

std::size_t Forward::read_share(Sequence& sequence, std::span<const Token> share,
                                std::span<const std::size_t> begins, std::size_t chunk,
                                const std::function<void(std::size_t)>& progress) {
  Ranks& ranks = *model_.ranks();
  Cache& cache = sequence.cache();
  check_cache(cache);
  const CacheShape& shape = cache.shape();
  const CacheOptions& options = cache.options();
  const std::size_t n = share.size(), group = shape.queries_per_kv_head, me = ranks.rank();
  Matrix residual(n, config_.width), query(n, config_.heads * config_.key_dim);
  // Sets the pass to tokens [at, at + tokens_) of the share; whether there are any.
  const auto take = [&](std::size_t at) {
    if (at >= n) return false;
    tokens_ = std::min(chunk, n - at);
    from_ = 0;
    if (tokens_ > scratch_.tokens) scratch_ = ForwardScratch(config_, tokens_);
    positions_.resize(tokens_);
    shapes_.assign(tokens_, &shape);
    for (std::size_t i = 0; i < tokens_; ++i) {
      positions_[i] = begins[me] + at + i;
      std::ranges::copy(residual[at + i], scratch_.residual[i].begin());
    }
    return true;
  };
  const auto put = [&](std::size_t at) {
    for (std::size_t i = 0; i < tokens_; ++i) {
      std::ranges::copy(scratch_.residual[i], residual[at + i].begin());
    }
  };
  for (std::size_t at = 0; take(at); at += chunk) {
    for (std::size_t i = 0; i < tokens_; ++i) embed(share[at + i], positions_[i], i);
    put(at);
  }
  for (std::size_t l = 0; l < config_.layers; ++l) {
    const LayerWeights& w = weights_.layers[l];
    if (model_.pages() != nullptr) model_.pages()->enter(l);
    for (std::size_t at = 0; take(at); at += chunk) {
      find_rotations();
      normalise_rows(w.attention_norm, scratch_.residual, scratch_.normed);
      const Product products[] = {{&w.query, rows(scratch_.query)},
                                  {&w.key, rows(scratch_.key)},
                                  {&w.value, rows(scratch_.value)}};
      multiply(rows(scratch_.normed), products);
      place_heads(l, l);
      take_in(cache, l, rows(scratch_.key), rows(scratch_.value));
      note_scores(l, cache, 0, tokens_);
      for (std::size_t i = 0; i < tokens_; ++i) {
        std::ranges::copy(scratch_.query[i], query[at + i].begin());
      }
    }
    // My own share goes to the next rank first, then those of the ranks before me, nearest first.
    if (!ranks.last()) {
      std::vector<std::byte> own;
      own.reserve(Share::bytes(shape, options, n));
      for (std::size_t h = 0; h < shape.kv_heads; ++h) {
        const std::vector<Segment> segments = cache.segments(l, h);
        for (const Segment& s : segments) append(s.keys, own);
        for (const Segment& s : segments) append(s.values, own);
      }
      ranks.send(me + 1, std::move(own));
    }
    std::vector<Share> earlier;
    for (std::size_t r = me; r-- > 0;) {
      earlier.emplace_back(shape, options, begins[r + 1] - begins[r]);
      std::vector<std::byte> bytes(Share::bytes(shape, options, earlier.back().tokens));
      ranks.receive(me - 1, bytes);
      earlier.back().set(bytes);
      if (!ranks.last()) ranks.send(me + 1, std::move(bytes));
    }
    for (std::size_t at = 0; take(at); at += chunk) {
      // Of the last layer the text's last token alone is wanted.
      if (l + 1 == config_.layers && !(ranks.last() && at + tokens_ == n)) continue;
      const std::size_t tiles = (tokens_ + kTile - 1) / kTile;
      parallel_for(shape.kv_heads * tiles, [&](std::size_t task) {
        const std::size_t h = task / tiles, first = task % tiles * kTile;
        const std::size_t count = std::min(kTile, tokens_ - first);
        std::vector<Segment> segments;
        for (std::size_t r = earlier.size(); r-- > 0;) {
          const Share& s = earlier[r];
          segments.push_back({s.keys[h].view(0, s.tokens), s.values[h].view(0, s.tokens)});
        }
        for (const Segment& s : cache.segments(l, h)) segments.push_back(s);
        const Matrix asked = packed(query.view().slice(at + first, count), h, group, shape.key_dim);
        Matrix out(asked.rows(), shape.value_dim);
        ballast::attend({asked.view(), positions_of(at + first, count, group), {}}, segments,
                        shape.logits, out.view());
        unpack(out, h, group, scratch_.attended.view().slice(first, count));
      });
      multiply(rows(scratch_.attended), w.attention_output, rows(scratch_.block));
      if (config_.parallel_residual) {
        normalise_rows(w.attention_norm, scratch_.residual, scratch_.normed);
      }
      finish_layer(l);
      put(at);
    }
    if (model_.pages() != nullptr) model_.pages()->leave(l);
    if (progress) progress(l + 1);
  }
  cache.scoring().note_text(share);
  return tokens_ - 1;
}

}  // namespace ballast
