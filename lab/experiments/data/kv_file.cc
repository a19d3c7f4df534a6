#include "experiments/data/kv_file.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <string>

#include "ballast/attention.h"
#include "base/checks.h"
#include "base/fail.h"
#include "base/printable.h"
#include "cache/head_elements.h"

namespace ballast {
namespace {

struct Name {
  std::size_t layer;
  KvSource::Part part;
};

/// Parses "layer.{i}.q", ".k" or ".v".
std::optional<Name> parse_name(std::string_view name) {
  constexpr std::string_view prefix = "layer.";
  if (!name.starts_with(prefix)) return {};
  name.remove_prefix(prefix.size());
  std::size_t layer = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || layer > std::numeric_limits<std::int32_t>::max()) return {};
  const std::string_view part(end, static_cast<std::size_t>(name.data() + name.size() - end));
  for (auto p : {KvSource::Part::query, KvSource::Part::key, KvSource::Part::value}) {
    if (part.size() == 2 && part[0] == '.' && part.substr(1) == to_string(p)) {
      return Name{layer, p};
    }
  }
  return {};
}

bool is_float(TensorType type) {
  return type == TensorType::f32 || type == TensorType::f64 || type == TensorType::f16 ||
         type == TensorType::bf16;
}

}  // namespace

Logits KvFile::logits() const {
  Logits out = KvSource::logits();
  auto read = [&](const char* key, float& value, bool zero) {
    const auto found = file_.metadata().find(key);
    if (found == file_.metadata().end()) return;
    const std::string& text = found->second;
    float number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    require(error == std::errc() && end == text.data() + text.size() && std::isfinite(number) &&
                (number > 0 || (zero && number == 0)),
            "{}: the metadata say that the {} is '{}'; a positive number was expected", name_, key,
            printable(text));
    value = number;
  };
  read("scale", out.scale, false);
  read("softcap", out.softcap, true);
  return out;
}

Rotary KvFile::rotary() const {
  const auto found = file_.metadata().find("rotary");
  if (found == file_.metadata().end()) return {};
  Rotary out;
  std::istringstream text(found->second);
  std::string pairs;
  text >> pairs >> out.magnitude;
  for (float frequency = 0; text >> frequency;) out.frequencies.push_back(frequency);
  const auto finite = [](float x) { return std::isfinite(x); };
  require((pairs == "adjacent" || pairs == "apart") && text.eof() && finite(out.magnitude) &&
              out.magnitude > 0 && std::ranges::all_of(out.frequencies, finite) &&
              2 * out.frequencies.size() <= shape().key_dim,
          "{}: the metadata say that the rotary is '{}'; 'adjacent' or 'apart', the magnitude and "
          "a frequency a pair were expected",
          name_, printable(found->second));
  out.pairs = pairs == "adjacent";
  return out;
}

KvFile::KvFile(const std::filesystem::path& path) try : file_(path) {
  name_ = path.string();
  find_layers();
  shape_ = check_layer(layers_[0]);
  shape_.layers = layers_.size();
  for (std::size_t i = 1; i < layers_.size(); ++i) {
    const KvShape s = check_layer(layers_[i]);
    require(s.heads == shape_.heads && s.kv_heads == shape_.kv_heads && s.tokens == shape_.tokens &&
                s.key_dim == shape_.key_dim && s.value_dim == shape_.value_dim,
            "{}: layer {} and layer {} differ in shape: q {} and {}", name_, layers_[0].number,
            layers_[i].number, to_string(layers_[0].parts[0]->shape),
            to_string(layers_[i].parts[0]->shape));
  }
} catch (const Error& error) {
  rethrow_from_file(error);
}

std::string KvFile::score_name() const {
  const auto found = file_.metadata().find("score");
  return found == file_.metadata().end() ? std::string() : found->second;
}

std::vector<float> KvFile::scores(std::size_t layer, std::size_t kv_head) const {
  const std::string name = fmt::format("layer.{}.scores", layer_number(layer));
  const TensorView* tensor = file_.find(name);
  if (tensor == nullptr) return {};
  require(tensor->type == TensorType::f32 && tensor->shape.size() == 2 &&
              tensor->shape[0] == shape_.kv_heads && tensor->shape[1] == shape_.tokens,
          "{}: tensor '{}' is {} {}, expected F32 [{}, {}]", name_, name, to_string(tensor->type),
          to_string(tensor->shape), shape_.kv_heads, shape_.tokens);
  require(kv_head < shape_.kv_heads, "{}: there is no KV head {}", name_, kv_head);
  std::vector<float> out(shape_.tokens);
  const std::size_t bytes = out.size() * sizeof(float);
  decode(tensor->type, tensor->data.subspan(kv_head * bytes, bytes), out);
  for (std::size_t t = 0; t < out.size(); ++t) {
    require(out[t] >= 0 && std::isfinite(out[t]),
            "{}: tensor '{}', KV head {}, token {} is {}; a score is a number from 0", name_, name,
            kv_head, t, out[t]);
  }
  return out;
}

void KvFile::find_layers() {
  std::map<std::size_t, Layer> found;
  for (const TensorView& tensor : file_.tensors()) {
    const auto name = parse_name(tensor.name);
    if (!name) continue;
    Layer& layer = found[name->layer];
    layer.number = name->layer;
    layer.parts[static_cast<std::size_t>(name->part)] = &tensor;
  }
  if (found.empty()) {
    fail("{}: no tensors layer.0.q, layer.0.k, layer.0.v in it{}", name_,
         file_.tensors().empty()
             ? "; it holds none at all"
             : fmt::format("; its first is '{}'", printable(file_.tensors()[0].name)));
  }
  for (auto& [number, layer] : found) {
    for (auto part : {Part::query, Part::key, Part::value}) {
      require(layer.parts[static_cast<std::size_t>(part)] != nullptr,
              "{}: layer {} has no tensor 'layer.{}.{}'", name_, number, number, to_string(part));
    }
    layers_.push_back(layer);
  }
}

KvShape KvFile::check_layer(const Layer& layer) const {
  for (const TensorView* tensor : layer.parts) {
    const auto& s = tensor->shape;
    require(s.size() == 3, "{}: tensor '{}' has shape {}, expected [heads, tokens, dim]", name_,
            tensor->name, to_string(s));
    require(is_float(tensor->type), "{}: tensor '{}' holds {}, expected F32, F16, BF16 or F64",
            name_, tensor->name, to_string(tensor->type));
    require(s[0] > 0, "{}: tensor '{}' has no heads: its shape is {}", name_, tensor->name,
            to_string(s));
    require(s[1] > 0, "{}: tensor '{}' has no tokens: its shape is {}", name_, tensor->name,
            to_string(s));
    require(s[1] <= std::numeric_limits<Position>::max(), "{}: tensor '{}' has {} tokens, over {}",
            name_, tensor->name, s[1], std::numeric_limits<Position>::max());
    require(s[2] >= 1 && s[2] <= kMaxHeadDim,
            "{}: tensor '{}' has a head dimension of {}; supported: 1 to {}", name_, tensor->name,
            s[2], kMaxHeadDim);
  }
  const auto [q, k, v] = layer.parts;
  for (const TensorView* other : {q, v}) {
    require(other->shape[1] == k->shape[1], "{}: '{}' has {} tokens, '{}' has {}", name_, k->name,
            k->shape[1], other->name, other->shape[1]);
  }
  require(v->shape[0] == k->shape[0], "{}: '{}' has {} heads, '{}' has {}", name_, k->name,
          k->shape[0], v->name, v->shape[0]);
  require(q->shape[0] % k->shape[0] == 0,
          "{}: '{}' has {} heads, which is no multiple of the {} heads of '{}'", name_, q->name,
          q->shape[0], k->shape[0], k->name);
  require(q->shape[2] == k->shape[2], "{}: '{}' has dimension {}, '{}' has {}", name_, q->name,
          q->shape[2], k->name, k->shape[2]);
  return {0, q->shape[0], k->shape[0], k->shape[1], k->shape[2], v->shape[2]};
}

void KvFile::read(Part part, std::size_t layer, std::size_t head, std::size_t first,
                  MutableMatrix out) const {
  const TensorView& tensor = *layers_.at(layer).parts[static_cast<std::size_t>(part)];
  const std::size_t tokens = tensor.shape[1], dim = tensor.shape[2];
  require(
      head < tensor.shape[0] && first <= tokens && out.rows <= tokens - first && out.cols == dim,
      "{}: '{}' {}: head {}, tokens {} to {} of dimension {} are not in it", name_, tensor.name,
      to_string(tensor.shape), head, first, first + out.rows, out.cols);
  const std::size_t row_bytes = tensor_bytes(tensor.type, dim);
  for (std::size_t t = 0; t < out.rows; ++t) {
    const std::size_t row = head * tokens + first + t;
    decode(tensor.type, tensor.data.subspan(row * row_bytes, row_bytes), out[t]);
    const std::size_t bad = first_not_finite(out[t]);
    if (bad < dim) {
      fail(ErrorCode::not_finite,
           "{}: tensor '{}', head {}, token {}, number {} is {}; every number must be finite",
           name_, tensor.name, head, first + t, bad, out[t][bad]);
    }
  }
}

}  // namespace ballast
