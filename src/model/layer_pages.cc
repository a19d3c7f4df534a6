#include "model/layer_pages.h"

#include <algorithm>

#include "base/mapped_file.h"

namespace ballast {
namespace {

/// Layers that are read while one works.
constexpr std::size_t kAhead = 2;

constexpr Weight kOfExperts[] = {Weight::expert_gate, Weight::expert_up, Weight::expert_down};

using Parts = std::vector<std::span<const std::byte>>;

/// Tensors that lie side by side are read as one.
Parts united(Parts parts) {
  std::ranges::sort(parts, {}, [](const auto& part) { return part.data(); });
  Parts out;
  for (const auto& part : parts) {
    constexpr std::ptrdiff_t kGap = 64 << 10;
    if (!out.empty() && part.data() - (out.back().data() + out.back().size()) < kGap) {
      out.back() = {out.back().data(), part.data() + part.size()};
    } else {
      out.push_back(part);
    }
  }
  return out;
}

void add(Parts& parts, const TensorView* tensor) {
  if (tensor != nullptr && mapped_path(tensor->data.data()) != nullptr) {
    parts.push_back(tensor->data);
  }
}

std::size_t bytes_of(const Parts& parts) {
  std::size_t bytes = 0;
  for (const auto& part : parts) bytes += part.size();
  return bytes;
}

}  // namespace

LayerPages::Layer LayerPages::layer_of(const ModelFile& file, std::size_t l) {
  Layer layer;
  for (int w = static_cast<int>(Weight::attention_norm); w < kWeights; ++w) {
    const auto weight = static_cast<Weight>(w);
    if (std::ranges::find(kOfExperts, weight) != std::end(kOfExperts)) continue;
    for (Part part : {Part::weight, Part::bias}) add(layer.parts, file.find(weight, l, part));
  }
  layer.parts = united(std::move(layer.parts));
  layer.bytes = bytes_of(layer.parts);
  for (std::size_t e = 0; e < file.config().experts; ++e) {
    Parts parts;
    for (Weight weight : kOfExperts) {
      add(parts, file.find(weight, l, Part::weight, e));
    }
    layer.experts.push_back(united(std::move(parts)));
    layer.bytes += bytes_of(layer.experts.back());
  }
  return layer;
}

std::size_t LayerPages::bytes(const ModelFile& file, std::size_t layer) {
  return layer_of(file, layer).bytes;
}

LayerPages::LayerPages(const ModelFile& file, const ModelConfig& config, std::size_t first,
                       std::size_t whole, std::size_t bytes) {
  std::size_t dense = 0, most = 0;  // of one layer: what is read ahead, and all of it
  std::size_t layers = 0;           // bytes of all
  for (std::size_t l = first; l < first + config.layers; ++l) {
    Layer layer = layer_of(file, l);
    dense = std::max(dense, bytes_of(layer.parts));
    most = std::max(most, layer.bytes);
    layers += layer.bytes;
    layers_.push_back(std::move(layer));
  }
  std::size_t held = whole - std::min(whole, layers) + most + kAhead * dense;
  while (resident_ < layers_.size() && held + layers_[resident_].bytes <= bytes) {
    held += layers_[resident_++].bytes;
  }
  spared_ = whole - std::min(whole, held);
}

void LayerPages::enter(std::size_t layer) const {
  for (std::size_t i = 1; i <= kAhead; ++i) {
    const std::size_t next = layer + i;
    // After the last layer the pass begins again, with the first that does not stay.
    const std::size_t l = next < layers_.size() ? next : resident_ + (next - layers_.size());
    if (l >= layers_.size() || l == layer || stays(l)) continue;
    for (const auto& part : layers_[l].parts) read_ahead(part);
  }
  if (stays(layer)) return;
  for (const auto& part : layers_[layer].parts) read_now(part);
}

void LayerPages::leave(std::size_t layer) const {
  if (stays(layer)) return;
  for (const auto& part : layers_[layer].parts) drop_pages(part);
  for (const Parts& expert : layers_[layer].experts) {
    for (const auto& part : expert) drop_pages(part);
  }
}

void LayerPages::enter_expert(std::size_t layer, std::size_t expert) const {
  if (stays(layer)) return;
  for (const auto& part : layers_[layer].experts[expert]) read_ahead(part);
}

}  // namespace ballast
