#include "model/weight_resolver.h"

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fail.h"
#include "base/printable.h"
#include "base/thread_pool.h"
#include "formats/json_file.h"
#include "formats/quant.h"
#include "model/families/families.h"
#include "model/packed_weights.h"
#include "model/stacked_experts.h"
#include "model/weight_shapes.h"

namespace ballast {
namespace {

constexpr std::size_t kMostLayers = 4096;  // as check_layers() has it

using Shape = std::vector<std::size_t>;

/// The weights of a fused tensor whose first weight is `first`.
std::vector<Weight> fused(Weight first) {
  if (first == Weight::query) return {Weight::query, Weight::key, Weight::value};
  return {Weight::ffn_gate, Weight::ffn_up};
}

/// The pattern with the layer in the place of its first "{}" and the expert in that of the second.
std::string stem_of(std::string_view pattern, std::size_t layer, std::size_t expert = 0) {
  std::string name(pattern);
  for (const std::size_t number : {layer, expert}) {
    const std::size_t at = name.find("{}");
    if (at != std::string::npos) name.replace(at, 2, std::to_string(number));
  }
  return name;
}
}  // namespace

std::size_t weight_slot(Weight weight, std::size_t layer, Part part, std::size_t expert) {
  return ((expert * kMostLayers + layer) * kWeights + static_cast<std::size_t>(weight)) * 2 +
         static_cast<std::size_t>(part);
}
/// Finds and checks each tensor of a family's rules and splits fused ones.
class WeightResolver {
 public:
  explicit WeightResolver(ModelFile& model)
      : model_(model), config_(model.config_), is_gguf_(model.gguf_ != nullptr) {}

  void run() {
    for (const TensorRule& rule : facts_of(config_.family).rules) {
      std::size_t count = once_a_layer(rule.first) ? config_.layers : 1;
      for (std::size_t layer = 0; layer < count; ++layer) {
        if (!has_weight(config_, layer, rule)) continue;
        if (once_an_expert(rule.first)) {
          resolve_experts(rule, layer);
          continue;
        }
        resolve(rule, layer, Part::weight, presence(rule));
        resolve(rule, layer, Part::bias, rule.bias);
      }
    }
  }

 private:
  Presence presence(const TensorRule& rule) const {
    if (rule.first == Weight::output) {
      return config_.tied_embeddings ? Presence::never : Presence::always;
    }
    if (rule.first == Weight::position_embedding) {
      return config_.learned_positions ? Presence::always : Presence::never;
    }
    return rule.weight;
  }

  /// Hugging Face omits the outermost name in models without an output layer, and calls the text
  /// model inside one that takes pictures by two longer names.
  const TensorView* look_up(const std::string& name) const {
    constexpr std::string_view kWeight = ".weight";
    if (!is_gguf_ && name.ends_with(kWeight)) {
      const TensorView* found = find_unpacked(name.substr(0, name.size() - kWeight.size()));
      if (found != nullptr) return found;
    }
    return find_used(name);
  }
  const TensorView* find_used(const std::string& name) const {
    const TensorView* found = find(name);
    if (found != nullptr) model_.used_.insert(found->name);
    return found;
  }
  /// See packed_weights.h; each matrix is unpacked once.
  const TensorView* find_unpacked(const std::string& stem) const {
    if (const auto known = unpacked_.find(stem); known != unpacked_.end()) return &known->second;
    std::optional<UnpackedMatrix> matrix =
        unpack_matrix([this](const std::string& name) { return find_used(name); }, stem,
                      [this] { return zeros_are_less_one(); }, model_.path_.string());
    if (!matrix) return nullptr;
    TensorView view;
    view.name = stem + ".weight";
    view.type = matrix->type;
    view.shape = matrix->shape;
    view.data = model_.copies_.emplace_back(std::move(matrix->data));
    return &unpacked_.emplace(stem, view).first->second;
  }
  const TensorView* find(const std::string& name) const {
    if (is_gguf_) return model_.gguf_->find_tensor(name);
    const std::string inner = name.substr(name.find('.') + 1);
    for (const std::string& full :
         {name, inner, "language_model." + name, "model.language_model." + inner}) {
      if (const TensorView* found = model_.safetensors_->find(full)) return found;
    }
    return nullptr;
  }

  void resolve(const TensorRule& rule, std::size_t layer, Part part, Presence presence) {
    std::string name = stem_of(is_gguf_ ? rule.gguf : rule.hf, layer);
    if (presence == Presence::never || name.empty()) return;
    const bool bare = rule.hf_bare && !is_gguf_;
    if (!bare) name += part == Part::weight ? ".weight" : ".bias";
    const TensorView* tensor = look_up(name);
    // llama.cpp's converter takes some of these for biases, and some for neither.
    for (const char* suffix : {".bias", ""}) {
      if (tensor != nullptr || !is_gguf_ || !rule.hf_bare) break;
      tensor = look_up(stem_of(rule.gguf, layer) + suffix);
    }
    if (tensor == nullptr) {
      require(presence == Presence::optional, "{}: the tensor '{}' is missing",
              model_.path_.string(), name);
      return;
    }
    check_numbers(*tensor);
    TensorView turned;
    if (rule.hf_transposed && !is_gguf_ && part == Part::weight) {
      turned = transposed(*tensor);
      tensor = &turned;
    }
    switch (is_gguf_ ? rule.gguf_fusion : rule.hf_fusion) {
      case Fusion::none:
      case Fusion::experts:
      case Fusion::turns:
        return add(rule.first, layer, part, *tensor);
      case Fusion::rows:
        return add_rows(rule.first, layer, part, *tensor);
      case Fusion::rows_per_head:
        return add_groups(config_.kv_heads,
                          {{Weight::query, config_.heads / config_.kv_heads * config_.key_dim},
                           {Weight::key, config_.key_dim},
                           {Weight::value, config_.value_dim}},
                          layer, part, *tensor);
      case Fusion::gated_heads:
        return add_groups(
            config_.heads,
            {{Weight::query, config_.key_dim}, {Weight::attention_gate, config_.value_dim}}, layer,
            part, *tensor);
      case Fusion::key_heads:
        return add_groups(config_.delta_key_heads, of_key_head(rule.first), layer, part, *tensor);
    }
  }

  /// Rows of a weight in a fused tensor, in each of its groups.
  struct Rows {
    Weight weight;
    std::size_t count;
  };

  std::vector<Rows> of_key_head(Weight first) const {
    const std::size_t values = config_.delta_value_heads / config_.delta_key_heads;
    if (first == Weight::delta_beta) {
      return {{Weight::delta_beta, values}, {Weight::delta_decay, values}};
    }
    return {{Weight::conv_in, config_.delta_key_dim},  // queries, keys, values
            {Weight::conv_in, config_.delta_key_dim},
            {Weight::conv_in, values * config_.delta_value_dim},
            {Weight::delta_gate, values * config_.delta_value_dim}};
  }

  /// The experts of a layer: GGUF files, and some folders, have them one after another in one
  /// tensor.
  void resolve_experts(const TensorRule& rule, std::size_t layer) {
    if (!is_gguf_ && rule.hf.empty()) return;  // inside another's tensor
    if (!is_gguf_ && rule.hf_fusion != Fusion::none) return resolve_stacked(rule, layer);
    if (!is_gguf_ && resolve_rows_of_experts(rule, layer)) return;
    const Shape one = shape_of(rule.first, config_);
    for (std::size_t e = 0; e < config_.experts; ++e) {
      add_expert(rule, layer, e, Part::weight, one);
      if (rule.bias == Presence::always) add_expert(rule, layer, e, Part::bias, {one[0]});
    }
  }

  void add_expert(const TensorRule& rule, std::size_t layer, std::size_t e, Part part,
                  const Shape& one) {
    TensorView view = require_tensor(stem_of(is_gguf_ ? rule.gguf : rule.hf, layer, e) +
                                     (part == Part::weight ? ".weight" : ".bias"));
    check_numbers(view);
    if (is_gguf_) {
      Shape all = one;
      all.insert(all.begin(), config_.experts);
      check_shape(view, all);
      const std::size_t rows = part == Part::weight ? one[0] : 1;
      const std::size_t bytes = rows * row_bytes_of(view, one.back());
      view.shape = one;
      view.data = view.data.subspan(e * bytes, bytes);
    }
    check_shape(view, one);
    model_.tensors_.emplace(weight_slot(rule.first, layer, part, e), loaded(view));
  }

  const TensorView& require_tensor(const std::string& name) const {
    const TensorView* tensor = look_up(name);
    require(tensor != nullptr, "{}: the tensor '{}' is missing", model_.path_.string(), name);
    return *tensor;
  }

  /// Folders that have the experts as transformers holds them: of each expert the rows of its gate,
  /// then those of the other; in a second tensor those that lead out. Whether this one does.
  bool resolve_rows_of_experts(const TensorRule& rule, std::size_t layer) {
    constexpr std::string_view kExperts = ".experts.";
    std::string name = stem_of(rule.hf, layer) + ".weight";
    if (const std::size_t at = name.find(kExperts); at != std::string::npos) {
      name.resize(at + kExperts.size());
      name += rule.first == Weight::expert_down ? "down_proj" : "gate_up_proj";
    }
    const TensorView* found = look_up(name);
    if (found == nullptr) return false;
    if (rule.first == Weight::expert_up) return true;  // with the gate
    const TensorView& all = *found;
    check_numbers(all);
    const Shape one = shape_of(rule.first, config_);
    std::vector<Weight> parts = {rule.first};
    if (rule.first == Weight::expert_gate) parts.push_back(Weight::expert_up);
    check_shape(all, {config_.experts, parts.size() * one[0], one[1]});
    const std::size_t bytes = one[0] * row_bytes_of(all, one[1]);
    TensorView view = all;
    view.shape = one;
    for (std::size_t i = 0; i < config_.experts * parts.size(); ++i) {
      view.data = all.data.subspan(i * bytes, bytes);
      const std::size_t expert = i / parts.size();
      model_.tensors_.emplace(weight_slot(parts[i % parts.size()], layer, Part::weight, expert),
                              loaded(view));
    }
    return true;
  }

  void resolve_stacked(const TensorRule& rule, std::size_t layer) {
    const std::string stem = stem_of(rule.hf, layer);
    const Shape one = shape_of(rule.first, config_);
    const bool turns = rule.hf_fusion == Fusion::turns;
    const std::size_t each = turns ? 2 : 1;
    StackedExperts stacked{config_.experts, each * one[0], one[1]};
    const TensorView& bias = require_tensor(stem + "_bias");
    check_shape(bias, {config_.experts, stacked.rows});
    if (look_up(stem + "_blocks") != nullptr) {
      stacked.blocks = require_tensor(stem + "_blocks");
      stacked.scales = require_tensor(stem + "_scales");
    } else {
      stacked.numbers = require_tensor(stem);
    }
    stacked.check(model_.path_.string());
    for (std::size_t e = 0; e < config_.experts; ++e) {
      for (std::size_t part = 0; part < each; ++part) {
        const Weight weight = part == 0 ? rule.first : Weight::expert_up;
        std::vector<std::byte> rows;
        TensorView view;
        view.name = stem;
        view.type = stacked.take(e, part, each, rows);
        view.shape = one;
        view.data = rows;
        view = loaded(view);
        if (view.data.data() == rows.data())
          view.data = model_.copies_.emplace_back(std::move(rows));
        model_.tensors_.emplace(weight_slot(weight, layer, Part::weight, e), view);
        view = bias;
        view.shape = {one[0]};
        view.data = model_.copies_.emplace_back(stacked.take_bias(bias, e, part, each));
        model_.tensors_.emplace(weight_slot(weight, layer, Part::bias, e), view);
      }
    }
  }

  void check_numbers(const TensorView& tensor) const {
    const bool whole = tensor.type >= TensorType::i64 && tensor.type <= TensorType::boolean;
    require(
        !whole, ErrorCode::unsupported,
        "{}: the tensor '{}' holds quantized weights ({}) of an unknown form (quantization_config "
        "in config.json; FP8, compressed-tensors, GPTQ and AWQ are read); use the model in BF16, "
        "or "
        "as a GGUF file",
        model_.path_.string(), printable(tensor.name), to_string(tensor.type));
  }

  Shape expected_shape(Weight weight, Part part, std::size_t layer = 0) const {
    Shape shape = shape_of(weight, config_, layer);
    if (part == Part::bias) shape.resize(1);
    return shape;
  }

  void check_shape(const TensorView& tensor, const Shape& expected) const {
    require(tensor.shape == expected, "{}: the tensor '{}' has shape {}, but the model needs {}",
            model_.path_.string(), printable(tensor.name), to_string(tensor.shape),
            to_string(expected));
  }

  void add(Weight weight, std::size_t layer, Part part, const TensorView& tensor) {
    TensorView view = tensor;
    // PyTorch's convolutions of one channel each have a dimension more.
    if (weight == Weight::conv && view.shape.size() == 3 && view.shape[1] == 1) {
      view.shape.erase(view.shape.begin() + 1);
    }
    check_shape(view, expected_shape(weight, part, layer));
    model_.tensors_.emplace(weight_slot(weight, layer, part, 0), loaded(view));
  }

  /// A copy in another type, if the tensor's is not one that is multiplied.
  TensorView loaded(const TensorView& tensor) {
    const TensorType type = loaded_as(tensor.type);
    if (type == tensor.type) return tensor;
    const std::size_t columns = tensor.shape.back(), rows = tensor.size() / columns;
    const std::size_t from = tensor_bytes(tensor.type, columns), to = tensor_bytes(type, columns);
    std::vector<std::byte>& copy = model_.copies_.emplace_back(rows * to);
    parallel_for(rows, [&](std::size_t r) {
      if (tensor.type == TensorType::iq4_xs) {
        for (std::size_t b = 0; b < columns / block_size(tensor.type); ++b) {
          iq4_nl_of_iq4_xs(
              reinterpret_cast<const std::uint8_t*>(tensor.data.data()) + r * from +
                  b * block_bytes(tensor.type),
              reinterpret_cast<std::uint8_t*>(copy.data()) + r * to + b * 8 * block_bytes(type));
        }
        return;
      }
      if (tensor.type == TensorType::mxfp4) {
        const std::size_t blocks = columns / block_size(tensor.type);
        std::size_t b = 0;
        while (b < blocks &&
               fp4_of_mxfp4(
                   reinterpret_cast<const std::uint8_t*>(tensor.data.data()) + r * from +
                       b * block_bytes(tensor.type),
                   reinterpret_cast<std::uint8_t*>(copy.data()) + r * to + b * block_bytes(type))) {
          ++b;
        }
        if (b == blocks) return;
      }
      thread_local std::vector<float> row;
      row.resize(columns);
      decode(tensor.type, tensor.data.subspan(r * from, from), row);
      encode(type, row, std::span(copy).subspan(r * to, to));
    });
    TensorView out = tensor;
    out.type = type;
    out.data = copy;
    return out;
  }

  void add_rows(Weight first, std::size_t layer, Part part, const TensorView& tensor) {
    std::size_t rows = 0;
    for (Weight weight : fused(first)) rows += expected_shape(weight, part, layer)[0];
    check_rows(tensor, rows, part);
    const std::size_t row_bytes = row_bytes_of(tensor, part);
    std::size_t begin = 0;
    for (Weight weight : fused(first)) {
      TensorView view = tensor;
      view.shape = expected_shape(weight, part, layer);
      view.data = tensor.data.subspan(begin * row_bytes, view.shape[0] * row_bytes);
      begin += view.shape[0];
      add(weight, layer, part, view);
    }
  }

  /// Of a fused tensor.
  void check_rows(const TensorView& tensor, std::size_t rows, Part part) const {
    check_shape(tensor, part == Part::bias ? Shape{rows} : Shape{rows, config_.width});
  }

  std::size_t row_bytes_of(const TensorView& tensor, Part part) const {
    return row_bytes_of(tensor, part == Part::bias ? 1 : config_.width);
  }

  std::size_t row_bytes_of(const TensorView& tensor, std::size_t row) const {
    require(row % block_size(tensor.type) == 0,
            "{}: the tensor '{}' of type {} cannot be split into its rows", model_.path_.string(),
            printable(tensor.name), to_string(tensor.type));
    return tensor_bytes(tensor.type, row);
  }

  /// A fused tensor of groups of rows: those of a weight come together. Where a group has a weight
  /// several times, the first rows of all groups precede the second.
  void add_groups(std::size_t groups, const std::vector<Rows>& group, std::size_t layer, Part part,
                  const TensorView& tensor) {
    std::size_t rows = 0;
    for (const Rows& some : group) rows += some.count;
    check_rows(tensor, groups * rows, part);
    const std::size_t row_bytes = row_bytes_of(tensor, part);
    std::size_t begin = 0;
    std::map<Weight, std::vector<std::byte>> together;
    for (const Rows& some : group) {
      std::vector<std::byte>& to = together[some.weight];
      to.reserve(expected_shape(some.weight, part, layer)[0] * row_bytes);
      for (std::size_t g = 0; g < groups; ++g) {
        const auto from =
            tensor.data.subspan((g * rows + begin) * row_bytes, some.count * row_bytes);
        to.insert(to.end(), from.begin(), from.end());
      }
      begin += some.count;
    }
    for (auto& [weight, bytes] : together) {
      TensorView view = tensor;
      view.shape = expected_shape(weight, part, layer);
      view.data = model_.copies_.emplace_back(std::move(bytes));
      add(weight, layer, part, view);
    }
  }

  TensorView transposed(const TensorView& tensor) {
    require(tensor.shape.size() == 2 && !is_quantized(tensor.type),
            "{}: the tensor '{}' of type {} and shape {} cannot be transposed",
            model_.path_.string(), printable(tensor.name), to_string(tensor.type),
            to_string(tensor.shape));
    const std::size_t rows = tensor.shape[1], columns = tensor.shape[0];
    const std::size_t bytes = block_bytes(tensor.type);
    std::vector<std::byte>& copy = model_.copies_.emplace_back(tensor.data.size());
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t c = 0; c < columns; ++c) {
        std::memcpy(copy.data() + (r * columns + c) * bytes,
                    tensor.data.data() + (c * rows + r) * bytes, bytes);
      }
    }
    TensorView out = tensor;
    out.shape = {rows, columns};
    out.data = copy;
    return out;
  }

  /// Of GPTQ's files, but for those that say that they are of the second version.
  bool zeros_are_less_one() const {
    const SortedJson config = read_json(model_.folder_ / "config.json");
    const auto found = config.find("quantization_config");
    return found == config.end() || !found->is_object() ||
           found->value("checkpoint_format", SortedJson("")) != "gptq_v2";
  }

  ModelFile& model_;
  const ModelConfig& config_;
  bool is_gguf_;
  mutable std::map<std::string, TensorView> unpacked_;  ///< by stem
};
void resolve_weights(ModelFile& model) { WeightResolver(model).run(); }

}  // namespace ballast
