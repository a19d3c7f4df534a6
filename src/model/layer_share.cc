#include "model/layer_share.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/fail.h"

namespace ballast {
namespace {

/// The same with layers [first, end) alone.
ModelConfig layers_of(const ModelConfig& whole, std::size_t first, std::size_t end) {
  ModelConfig out = whole;
  const auto cut = [&](auto& of_layers) {
    if (of_layers.empty()) return;
    of_layers.erase(of_layers.begin() + static_cast<std::ptrdiff_t>(end), of_layers.end());
    of_layers.erase(of_layers.begin(), of_layers.begin() + static_cast<std::ptrdiff_t>(first));
  };
  cut(out.kinds);
  cut(out.sliding_windows);
  cut(out.takes_second_rope);
  out.dense_layers -= std::min(out.dense_layers, first);
  out.layers = end - first;
  return out;
}

std::vector<std::byte> packed(ConstMatrix rows) {
  std::vector<std::byte> out(rows.rows * rows.cols * sizeof(float));
  for (std::size_t i = 0; i < rows.rows; ++i) {
    std::memcpy(out.data() + i * rows.cols * sizeof(float), rows.row(i), rows.cols * sizeof(float));
  }
  return out;
}

void receive_rows(Ranks& ranks, std::size_t from, MutableMatrix rows) {
  std::vector<std::byte> bytes(rows.rows * rows.cols * sizeof(float));
  ranks.receive(from, bytes);
  for (std::size_t i = 0; i < rows.rows; ++i) {
    std::memcpy(rows.row(i), bytes.data() + i * rows.cols * sizeof(float),
                rows.cols * sizeof(float));
  }
}

}  // namespace

LayerShare::LayerShare(const ModelConfig& whole, std::shared_ptr<Ranks> ranks)
    : ranks_(std::move(ranks)) {
  const std::size_t size = ranks_->size();
  for (std::size_t r = 0; r < size; ++r) {
    const std::size_t first = whole.layers * r / size, end = whole.layers * (r + 1) / size;
    ModelConfig config = layers_of(whole, first, end);
    require(!config.attending().empty(), ErrorCode::unsupported,
            "{} layers for {} ranks: each needs one that attends; start fewer", whole.layers, size);
    if (r != ranks_->rank()) continue;
    first_ = first;
    config_ = std::move(config);
  }
}

void LayerShare::receive_states(MutableMatrix rows) const {
  if (!begins()) receive_rows(*ranks_, ranks_->rank() - 1, rows);
}

void LayerShare::send_states(ConstMatrix rows) const {
  if (!ends()) ranks_->send(ranks_->rank() + 1, packed(rows));
}

void LayerShare::share_logits(MutableMatrix rows) const {
  if (!ends()) return receive_rows(*ranks_, ranks_->size() - 1, rows);
  for (std::size_t r = 0; r + 1 < ranks_->size(); ++r) ranks_->send(r, packed(rows));
}

}  // namespace ballast
