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
  const std::vector<std::size_t> attending = whole.attending();
  const std::size_t size = ranks_->size(), rank = ranks_->rank();
  require(size <= attending.size(), ErrorCode::unsupported,
          "{} ranks for {} layers that attend: each needs one; start fewer", size,
          attending.size());
  const auto behind = [&](std::size_t r) {  // the layers of rank r
    return r + 1 == size ? whole.layers : attending[attending.size() * (r + 1) / size - 1] + 1;
  };
  first_ = rank == 0 ? 0 : behind(rank - 1);
  config_ = layers_of(whole, first_, behind(rank));
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
