#include "model/value_norms.h"

#include <cmath>

#include "model/weights.h"
#include "simd/vector_math.h"

namespace ballast {
namespace {

class ModelValueNorms : public ValueNorms {
 public:
  explicit ModelValueNorms(const Model& model) : model_(model) {}

  void measure(std::size_t layer, std::size_t kv_head, const RowsView& values,
               std::span<float> out) const override {
    const ModelConfig& config = model_.config();
    const LayerWeights& weights = model_.weights().attention(layer);
    const std::size_t dim = config.value_dim, group = config.heads / config.kv_heads;
    Matrix rows(values.rows, dim);
    for (std::size_t i = 0; i < values.rows; ++i) values.decode(i, rows[i]);
    std::vector<float> row(config.heads * dim);
    std::vector<double> sums(values.rows);
    for (std::size_t c = 0; c < config.width; ++c) {
      weights.attention_output.decode_row(c, row);
      for (std::size_t g = 0; g < group; ++g) {
        const auto part = std::span(row).subspan((kv_head * group + g) * dim, dim);
        for (std::size_t i = 0; i < values.rows; ++i)
          sums[i] += std::abs(double{kernels::dot(part, rows[i])});
      }
    }
    for (std::size_t i = 0; i < values.rows; ++i)
      out[i] = static_cast<float>(sums[i] / static_cast<double>(group));
  }

 private:
  Model model_;
};

}  // namespace

std::shared_ptr<const ValueNorms> make_value_norms(const Model& model) {
  return std::make_shared<ModelValueNorms>(model);
}

}  // namespace ballast
