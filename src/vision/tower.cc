#include "vision/tower.h"

#include <algorithm>
#include <cmath>

#include "ballast/attention.h"
#include "ballast/engine/gguf.h"
#include "ballast/engine/safetensors.h"
#include "base/fail.h"
#include "base/printable.h"
#include "base/thread_pool.h"
#include "formats/json_file.h"
#include "model/row_ops.h"
#include "simd/vector_math.h"

namespace ballast {

/// Where a layout has what; "{}" stands for the layer.
struct Tower::Names {
  const char *class_token, *positions, *patch;
  const char* qkv;  ///< null: three tensors
  const char *query, *key, *value, *query_norm, *key_norm, *attention_output;
  const char *norm1, *norm2, *scale1, *scale2, *up, *down;
  const char *last_norm, *projector_norm, *projector1, *projector2;
};

namespace {

namespace fs = std::filesystem;

constexpr const char* kTransformersClass = "vision_tower.embeddings.cls_token";
constexpr const char* kInternVlClass = "vision_model.embeddings.class_embedding";

std::string named(std::string_view pattern, std::size_t layer) {
  std::string name(pattern);
  const std::size_t at = name.find("{}");
  return at == name.npos ? name : name.replace(at, 2, std::to_string(layer));
}

std::size_t size_in(const SortedJson& object, const char* key, std::size_t otherwise) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return otherwise;
  const SortedJson& value = at->is_array() && !at->empty() ? at->front() : *at;
  require(value.is_number_unsigned(), "'{}' is not a number", key);
  return value.get<std::size_t>();
}

double number_in(const SortedJson& object, const char* key, double otherwise) {
  const auto at = object.find(key);
  if (at == object.end() || at->is_null()) return otherwise;
  require(at->is_number(), "'{}' is not a number", key);
  return at->get<double>();
}

std::string text_in(const SortedJson& object, const char* key, std::string otherwise) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : otherwise;
}

bool flag_in(const SortedJson& object, const char* key, bool otherwise) {
  const auto at = object.find(key);
  return at != object.end() && at->is_boolean() ? at->get<bool>() : otherwise;
}

void read_colours(const SortedJson& object, const char* key, std::array<float, 3>& out) {
  const auto at = object.find(key);
  if (at == object.end() || !at->is_array() || at->size() != 3) return;
  for (std::size_t c = 0; c < 3; ++c) {
    require((*at)[c].is_number(), "'{}' is not three numbers", key);
    out[c] = (*at)[c].get<float>();
  }
}

void add_scaled(std::span<const float> scale, ConstMatrix block, Matrix& states) {
  for (std::size_t i = 0; i < block.rows; ++i) {
    const std::span<float> to = states[i];
    const std::span<const float> from = block[i];
    for (std::size_t k = 0; k < to.size(); ++k) {
      to[k] += scale.empty() ? from[k] : scale[k] * from[k];
    }
  }
}

}  // namespace

Tower::Tower(const fs::path& path, std::size_t out_width) try : file_(path.string()) {
  config_.out_width = out_width;
  if (path.extension() == ".gguf") {
    read_gguf(path);
  } else {
    read_folder(path);
  }
} catch (const Error& error) {
  if (std::string_view(error.what()).starts_with(path.string())) rethrow_from_file(error);
  const bool bad = error.code() == ErrorCode::invalid_argument;
  fail(bad ? ErrorCode::bad_file : error.code(), "{}: {}", path.string(), error.what());
}
Tower::~Tower() = default;

bool Tower::is_in(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::is_directory(folder, ignored)) return false;
  const Safetensors tensors(folder);
  const auto has = [&](const std::string& name) { return tensors.find(name) != nullptr; };
  return has(kTransformersClass) || has(fmt::format("model.{}", kTransformersClass)) ||
         has(kInternVlClass);
}

void Tower::read_folder(const fs::path& path) {
  static constexpr Names transformers = {kTransformersClass,
                                         "vision_tower.embeddings.position_embeddings",
                                         "vision_tower.embeddings.patch_embeddings.projection",
                                         nullptr,
                                         "vision_tower.encoder.layer.{}.attention.q_proj",
                                         "vision_tower.encoder.layer.{}.attention.k_proj",
                                         "vision_tower.encoder.layer.{}.attention.v_proj",
                                         "vision_tower.encoder.layer.{}.attention.q_norm",
                                         "vision_tower.encoder.layer.{}.attention.k_norm",
                                         "vision_tower.encoder.layer.{}.attention.projection_layer",
                                         "vision_tower.encoder.layer.{}.layernorm_before",
                                         "vision_tower.encoder.layer.{}.layernorm_after",
                                         "vision_tower.encoder.layer.{}.lambda_1",
                                         "vision_tower.encoder.layer.{}.lambda_2",
                                         "vision_tower.encoder.layer.{}.mlp.fc1",
                                         "vision_tower.encoder.layer.{}.mlp.fc2",
                                         "vision_tower.layernorm",
                                         "multi_modal_projector.layer_norm",
                                         "multi_modal_projector.linear_1",
                                         "multi_modal_projector.linear_2"};
  static constexpr Names own = {kInternVlClass,
                                "vision_model.embeddings.position_embedding",
                                "vision_model.embeddings.patch_embedding",
                                "vision_model.encoder.layers.{}.attn.qkv",
                                "",
                                "",
                                "",
                                "vision_model.encoder.layers.{}.attn.q_norm",
                                "vision_model.encoder.layers.{}.attn.k_norm",
                                "vision_model.encoder.layers.{}.attn.proj",
                                "vision_model.encoder.layers.{}.norm1",
                                "vision_model.encoder.layers.{}.norm2",
                                "vision_model.encoder.layers.{}.ls1",
                                "vision_model.encoder.layers.{}.ls2",
                                "vision_model.encoder.layers.{}.mlp.fc1",
                                "vision_model.encoder.layers.{}.mlp.fc2",
                                "",
                                "mlp1.0",
                                "mlp1.1",
                                "mlp1.3"};
  safetensors_ = std::make_unique<Safetensors>(path);
  const SortedJson json = read_json(path / "config.json");
  require(json.is_object() && json.contains("vision_config") && json["vision_config"].is_object(),
          "config.json has no vision_config");
  const SortedJson& vision = json["vision_config"];
  config_.layers = size_in(vision, "num_hidden_layers", 0);
  config_.width = size_in(vision, "hidden_size", 0);
  config_.heads = size_in(vision, "num_attention_heads", 0);
  config_.ffn_width = size_in(vision, "intermediate_size", 0);
  config_.norm =
      text_in(vision, "norm_type", "layer_norm") == "rms_norm" ? NormKind::rms : NormKind::layer;
  config_.norm_epsilon = static_cast<float>(number_in(vision, "layer_norm_eps", 1e-6));
  require(text_in(vision, "hidden_act", "gelu") == "gelu", ErrorCode::unsupported,
          "a vision tower with the activation '{}'; only gelu is supported",
          printable(text_in(vision, "hidden_act", "")));
  const double ratio = number_in(json, "downsample_ratio", 0.5);
  require(ratio > 0.0 && ratio <= 1.0, "a downsample_ratio of {}", ratio);
  config_.shuffle = static_cast<std::size_t>(std::lround(1.0 / ratio));
  const bool last = number_in(json, "select_layer", -1) == -1 &&
                    number_in(json, "vision_feature_layer", -1) == -1;
  require(last && text_in(json, "ps_version", "v2") == "v2", ErrorCode::unsupported,
          "only the last layer's states and ps_version v2 are supported");
  TileOptions& tiles = config_.tiles;
  tiles.size = size_in(vision, "image_size", 448);
  tiles.patch = size_in(vision, "patch_size", 14);
  tiles.least = size_in(json, "min_dynamic_patch", 1);
  tiles.most = size_in(json, "max_dynamic_patch", 12);
  tiles.thumbnail = flag_in(json, "use_thumbnail", true);
  if (fs::exists(path / "preprocessor_config.json")) {
    const SortedJson prepared = read_json(path / "preprocessor_config.json");
    if (prepared.is_object()) {
      tiles.least = size_in(prepared, "min_patches", tiles.least);
      tiles.most = size_in(prepared, "max_patches", tiles.most);
      read_colours(prepared, "image_mean", tiles.mean);
      read_colours(prepared, "image_std", tiles.deviation);
    }
  }
  if (safetensors_->find(fmt::format("model.{}", kTransformersClass)) != nullptr) {
    prefix_ = "model.";
  }
  read_weights(find(kInternVlClass) != nullptr ? own : transformers);
}

void Tower::read_gguf(const fs::path& path) {
  static constexpr Names names = {"v.class_embd",
                                  "v.position_embd.weight",
                                  "v.patch_embd",
                                  nullptr,
                                  "v.blk.{}.attn_q",
                                  "v.blk.{}.attn_k",
                                  "v.blk.{}.attn_v",
                                  "v.blk.{}.attn_q_norm",
                                  "v.blk.{}.attn_k_norm",
                                  "v.blk.{}.attn_out",
                                  "v.blk.{}.ln1",
                                  "v.blk.{}.ln2",
                                  "v.blk.{}.ls1.weight",
                                  "v.blk.{}.ls2.weight",
                                  "v.blk.{}.ffn_up",
                                  "v.blk.{}.ffn_down",
                                  "",
                                  "mm.model.mlp.0",
                                  "mm.model.mlp.1",
                                  "mm.model.mlp.3"};
  gguf_ = std::make_unique<Gguf>(path);
  const auto kind = gguf_->find<std::string_view>("clip.projector_type").value_or("none");
  require(kind == "internvl", ErrorCode::unsupported,
          "a vision tower of the type '{}'; only internvl is supported", printable(kind));
  const auto size = [&](const char* key) {
    return static_cast<std::size_t>(gguf_->get<std::uint64_t>(key));
  };
  config_.layers = size("clip.vision.block_count");
  config_.width = size("clip.vision.embedding_length");
  config_.heads = size("clip.vision.attention.head_count");
  config_.ffn_width = size("clip.vision.feed_forward_length");
  config_.norm_epsilon = gguf_->get<float>("clip.vision.attention.layer_norm_epsilon");
  // The file does not say which norm: only that of layers has a bias.
  if (gguf_->find_tensor("v.blk.0.ln1.bias") == nullptr) config_.norm = NormKind::rms;
  config_.shuffle = static_cast<std::size_t>(
      gguf_->find<std::uint64_t>("clip.vision.projector.scale_factor").value_or(2));
  TileOptions& tiles = config_.tiles;
  tiles.size = size("clip.vision.image_size");
  tiles.patch = size("clip.vision.patch_size");
  for (auto [key, out] : {std::pair{"clip.vision.preproc_min_tiles", &tiles.least},
                          std::pair{"clip.vision.preproc_max_tiles", &tiles.most}}) {
    *out = static_cast<std::size_t>(gguf_->find<std::uint64_t>(key).value_or(*out));
  }
  for (auto [key, out] : {std::pair{"clip.vision.image_mean", &tiles.mean},
                          std::pair{"clip.vision.image_std", &tiles.deviation}}) {
    const auto found = gguf_->find<std::vector<float>>(key);
    if (found && found->size() == 3) std::ranges::copy(*found, out->begin());
  }
  read_weights(names);
}

void Tower::check_config() const {
  const TowerConfig& c = config_;
  const TileOptions& t = c.tiles;
  const auto within = [](std::size_t n, std::size_t most) { return n >= 1 && n <= most; };
  require(within(c.layers, 256) && within(c.width, 1 << 15) && within(c.heads, 1 << 10) &&
              within(c.ffn_width, 1 << 17) && c.width % c.heads == 0 && c.width / c.heads <= 256,
          "a vision tower of {} layers, width {}, {} heads and {} neurons", c.layers, c.width,
          c.heads, c.ffn_width);
  require(within(t.size, 4096) && within(t.patch, t.size) && within(c.shuffle, 8) &&
              t.size % (t.patch * c.shuffle) == 0,
          "tiles of {} pixels cannot be cut into patches of {} and these joined {} by {}", t.size,
          t.patch, c.shuffle, c.shuffle);
  require(within(t.most, 64) && within(t.least, t.most), "from {} to {} tiles a picture", t.least,
          t.most);
  require(c.norm_epsilon > 0.0f && std::isfinite(c.norm_epsilon), "a norm's epsilon of {}",
          c.norm_epsilon);
  for (std::size_t i = 0; i < 3; ++i) {
    require(std::isfinite(t.mean[i]) && std::isfinite(t.deviation[i]) && t.deviation[i] > 0.0f,
            "a mean of {} and a deviation of {} of a colour", t.mean[i], t.deviation[i]);
  }
}

const TensorView* Tower::find(const std::string& name) const {
  return gguf_ ? gguf_->find_tensor(name) : safetensors_->find(prefix_ + name);
}

std::vector<float> Tower::numbers(const std::string& name, std::size_t count, bool optional) {
  const TensorView* tensor = find(name);
  if (tensor == nullptr && optional) return {};
  require(tensor != nullptr, "the tensor '{}' is missing", name);
  require(tensor->size() == count, "the tensor '{}' has shape {}, but {} numbers are needed", name,
          to_string(tensor->shape), count);
  return to_float(*tensor);
}

Norm Tower::norm(const std::string& name, std::size_t count, bool optional) {
  return {numbers(name + ".weight", count, optional), numbers(name + ".bias", count, true)};
}

Linear Tower::linear(const std::string& name, std::size_t rows, std::size_t cols, std::size_t part,
                     std::size_t parts) {
  const TensorView* tensor = find(name + ".weight");
  require(tensor != nullptr, "the tensor '{}.weight' is missing", name);
  require(tensor->size() == parts * rows * cols && tensor->shape.front() == parts * rows,
          "the tensor '{}.weight' has shape {}, but {} × {} is needed", name,
          to_string(tensor->shape), parts * rows, cols);
  const TensorType type = tensor->type;
  const bool multiplied = type == TensorType::f32 || type == TensorType::f16 ||
                          type == TensorType::bf16 || is_quantized(type);
  require(multiplied && loaded_as(type) == type && cols % block_size(type) == 0,
          ErrorCode::unsupported, "the tensor '{}.weight' has the type {}, which is not supported",
          name, to_string(type));
  TensorView view = *tensor;
  view.shape = {rows, cols};
  const std::size_t bytes = tensor_bytes(type, rows * cols);
  view.data = view.data.subspan(part * bytes, bytes);
  Linear out(view);
  std::vector<float> bias = numbers(name + ".bias", parts * rows, true);
  if (!bias.empty()) {
    biases_.emplace_back(bias.begin() + static_cast<std::ptrdiff_t>(part * rows),
                         bias.begin() + static_cast<std::ptrdiff_t>((part + 1) * rows));
    out.bias = biases_.back().data();
  }
  return out;
}

void Tower::read_weights(const Names& n) {
  check_config();
  const TowerConfig& c = config_;
  const std::size_t across = c.patches_across(), w = c.width;
  class_token_ = numbers(n.class_token, w);
  positions_ = numbers(n.positions, (across * across + 1) * w);
  patch_ = linear(n.patch, w, 3 * c.tiles.patch * c.tiles.patch);
  for (std::size_t l = 0; l < c.layers; ++l) {
    const auto name = [&](const char* pattern) { return named(pattern, l); };
    Layer& layer = layers_.emplace_back();
    layer.norm1 = norm(name(n.norm1), w);
    layer.norm2 = norm(name(n.norm2), w);
    layer.query_norm = norm(name(n.query_norm), w, true);
    layer.key_norm = norm(name(n.key_norm), w, true);
    const bool fused = n.qkv != nullptr;
    layer.query = linear(name(fused ? n.qkv : n.query), w, w, 0, fused ? 3 : 1);
    layer.key = linear(name(fused ? n.qkv : n.key), w, w, fused ? 1 : 0, fused ? 3 : 1);
    layer.value = linear(name(fused ? n.qkv : n.value), w, w, fused ? 2 : 0, fused ? 3 : 1);
    layer.attention_output = linear(name(n.attention_output), w, w);
    layer.scale1 = numbers(name(n.scale1), w, true);
    layer.scale2 = numbers(name(n.scale2), w, true);
    layer.up = linear(name(n.up), c.ffn_width, w);
    layer.down = linear(name(n.down), w, c.ffn_width);
  }
  const std::size_t joined = w * c.shuffle * c.shuffle;
  last_norm_ = norm(n.last_norm, w, true);
  projector_norm_ = norm(n.projector_norm, joined);
  projector1_ = linear(n.projector1, c.out_width, joined);
  projector2_ = linear(n.projector2, c.out_width, c.out_width);
}

void Tower::attend_all(ConstMatrix query, ConstMatrix key, ConstMatrix value,
                       MutableMatrix out) const {
  constexpr std::size_t kQueries = 128;  // a task's
  const std::size_t dim = config_.width / config_.heads;
  const std::size_t blocks = (query.rows + kQueries - 1) / kQueries;
  const auto head = [&](auto matrix, std::size_t h) {
    matrix.data += h * dim;
    matrix.cols = dim;
    return matrix;
  };
  const Logits logits{.scale = 1.0f / std::sqrt(static_cast<float>(dim))};
  parallel_for(config_.heads * blocks, [&](std::size_t i) {
    const std::size_t h = i / blocks, begin = i % blocks * kQueries;
    const std::size_t count = std::min(kQueries, query.rows - begin);
    const Segment segment{.keys = view_f32(head(key, h)), .values = view_f32(head(value, h))};
    attend({head(query, h).slice(begin, count), {}, {}}, {&segment, 1}, logits,
           head(out, h).slice(begin, count));
  });
}

Matrix Tower::shuffled(const Matrix& states) const {
  const std::size_t across = config_.patches_across(), side = config_.shuffle, w = config_.width;
  Matrix out(config_.tokens(), side * side * w);
  for (std::size_t t = 0; t < out.rows(); ++t) {
    float* to = out[t].data();
    for (std::size_t y = 0; y < side; ++y) {
      for (std::size_t x = 0; x < side; ++x, to += w) {
        const std::size_t row = t / (across / side) * side + y,
                          column = t % (across / side) * side + x;
        std::ranges::copy(states[1 + row * across + column], to);
      }
    }
  }
  return out;
}

void Tower::see(const Picture& tile, MutableMatrix out) const {
  const TowerConfig& c = config_;
  const Matrix patches = patches_of(tile, c.tiles);
  const std::size_t tokens = patches.rows() + 1, w = c.width;
  Matrix states(tokens, w), normed(tokens, w), block(tokens, w), up(tokens, c.ffn_width);
  Matrix query(tokens, w), key(tokens, w), value(tokens, w);
  std::ranges::copy(class_token_, states[0].begin());
  multiply(patches.view(), patch_, states.view().slice(1, tokens - 1));
  kernels::axpy(1.0f, positions_, {states.data(), tokens * w});
  const auto normalise_all = [&](NormKind kind, const Norm& norm, const Matrix& from, Matrix& to) {
    parallel_for(from.rows(),
                 [&](std::size_t i) { normalise(kind, norm, c.norm_epsilon, from[i], to[i]); });
  };
  for (const Layer& layer : layers_) {
    normalise_all(c.norm, layer.norm1, states, normed);
    const Product products[] = {
        {&layer.query, query.view()}, {&layer.key, key.view()}, {&layer.value, value.view()}};
    multiply(normed.view(), products);
    if (layer.query_norm.there()) normalise_all(NormKind::rms, layer.query_norm, query, query);
    if (layer.key_norm.there()) normalise_all(NormKind::rms, layer.key_norm, key, key);
    attend_all(query.view(), key.view(), value.view(), normed.view());
    multiply(normed.view(), layer.attention_output, block.view());
    add_scaled(layer.scale1, block.view(), states);
    normalise_all(c.norm, layer.norm2, states, normed);
    multiply(normed.view(), layer.up, up.view());
    parallel_for(tokens, [&](std::size_t i) { activate(Activation::gelu, {}, up[i]); });
    multiply(up.view(), layer.down, block.view());
    add_scaled(layer.scale2, block.view(), states);
  }
  if (last_norm_.there()) normalise_all(c.norm, last_norm_, states, states);
  Matrix joined = shuffled(states);
  Matrix hidden(joined.rows(), c.out_width);
  for (std::size_t i = 0; i < joined.rows(); ++i) {
    normalise(NormKind::layer, projector_norm_, 1e-5f, joined[i], joined[i]);
  }
  multiply(joined.view(), projector1_, hidden.view());
  parallel_for(hidden.rows(), [&](std::size_t i) { activate(Activation::gelu, {}, hidden[i]); });
  multiply(hidden.view(), projector2_, out);
}

}  // namespace ballast
