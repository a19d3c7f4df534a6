#include "model/read_again.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cache/joined.h"
#include "model/cache_batch.h"
#include "model/forward.h"

namespace ballast {
namespace {

constexpr std::size_t kChunk = 256;  // tokens read at once

/// Tokens of joined documents that are reread at their places.
class RereadAttention : public Attention {
 public:
  RereadAttention(JoinedDocuments& documents, std::span<const Position> places)
      : documents_(documents), places_(places) {}

  bool wants_all_queries() const override { return true; }
  void run(const AttentionRows& rows) override {
    documents_.read_again(rows.layer, places_, rows.keys, rows.values, rows.queries, rows.outputs);
  }

 private:
  JoinedDocuments& documents_;
  std::span<const Position> places_;
};

/// The values of layer `layer`, the last that `forward` passes: tokens × (KV heads · value
/// dimension).
Matrix values_of(Forward& forward, std::size_t layer, std::span<const Token> tokens) {
  const ModelConfig& config = forward.model().config();
  Sequence sequence(forward.model(), {});
  for (std::size_t first = 0; first < tokens.size(); first += kChunk) {
    CacheBatch batch(forward.model());
    batch.add(sequence, tokens.subspan(first, std::min(kChunk, tokens.size() - first)));
    forward.run(batch.runs(), batch, 0);
  }
  Matrix out(tokens.size(), config.kv_heads * config.value_dim);
  for (std::size_t h = 0; h < config.kv_heads; ++h) {
    std::size_t t = 0;
    for (const Segment& segment : sequence.cache().segments(layer, h)) {
      for (std::size_t i = 0; i < segment.values.rows; ++i) {
        segment.values.decode(i, out[t++].subspan(h * config.value_dim, config.value_dim));
      }
    }
  }
  return out;
}

/// Where the tokens stand that change most behind the documents before theirs, ascending.
std::vector<Position> find_changed(const Model& model, std::span<const Token> all,
                                   std::span<const std::vector<Token>> texts, std::size_t left_out,
                                   std::size_t count) {
  const std::size_t depth = std::min<std::size_t>(2, model.config().layers);
  Forward forward(model, depth);
  const Matrix together = values_of(forward, depth - 1, all);
  std::vector<float> changes(all.size());
  std::size_t at = texts[0].size();
  for (const std::vector<Token>& text : texts.subspan(1)) {
    const Matrix alone = values_of(forward, depth - 1, text);
    for (std::size_t t = left_out; t < text.size(); ++t, ++at) {
      for (std::size_t c = 0; c < alone.cols(); ++c) {
        const float change = alone[t][c] - together[at][c];
        changes[at] += change * change;
      }
    }
  }
  std::vector<Position> places(all.size() - texts[0].size());
  std::iota(places.begin(), places.end(), static_cast<Position>(texts[0].size()));
  std::ranges::stable_sort(places, std::greater<>(), [&](Position place) {
    return changes[static_cast<std::size_t>(place)];
  });
  places.resize(count);
  std::ranges::sort(places);
  return places;
}

}  // namespace

void read_again(const Model& model, Sequence& joined, std::span<const std::vector<Token>> texts,
                std::size_t left_out, double share,
                const std::function<void(double done)>& progress) {
  std::vector<Token> all(texts[0]);
  for (const std::vector<Token>& text : texts.subspan(1)) {
    all.insert(all.end(), text.begin() + static_cast<std::ptrdiff_t>(left_out), text.end());
  }
  const auto later = static_cast<double>(all.size() - texts[0].size());
  const auto count = static_cast<std::size_t>(std::lround(share * later));
  if (count == 0) return;
  const std::vector<Position> places = find_changed(model, all, texts, left_out, count);
  std::vector<Token> tokens;
  for (const Position place : places) tokens.push_back(all[static_cast<std::size_t>(place)]);
  JoinedDocuments& documents = documents_of(joined.cache());
  documents.hide(places);
  Forward forward(model);
  for (std::size_t first = 0; first < count; first += kChunk) {
    const std::size_t some = std::min(kChunk, count - first);
    const Run run{.tokens = std::span(tokens).subspan(first, some),
                  .places = std::span(places).subspan(first, some),
                  .shape = &joined.cache().shape(),
                  .states = joined.cache().recurrent()};
    RereadAttention attention(documents, run.places);
    forward.run({&run, 1}, attention, 0);
    if (progress) progress(static_cast<double>(first + some) / static_cast<double>(count));
  }
}

}  // namespace ballast
