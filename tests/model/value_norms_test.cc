#include "model/value_norms.h"

#include <cmath>

#include "model/reference_case.h"
#include "model/weights.h"
#include "support.h"

namespace ballast {
namespace {

using test::ReferenceCase;

TEST(ValueNorms, AreThoseOfTheOutputProjection) {
  for (const char* name : {"llama", "neox"}) {
    ReferenceCase reference(name);
    BALLAST_NEED_REFERENCE(reference);
    const Model model(reference.hf());
    const ModelConfig& config = model.config();
    const std::size_t dim = config.value_dim, group = config.heads / config.kv_heads;
    const auto norms = make_value_norms(model);
    for (std::size_t count : {0u, 1u, 13u}) {
      const Matrix values = test::random_matrix(count, dim, 5);
      std::vector<float> got(count), row(config.heads * dim);
      for (std::size_t layer = 0; layer < config.layers; ++layer) {
        for (std::size_t h = 0; h < config.kv_heads; ++h) {
          norms->measure(layer, h, view_f32(values.view()), got);
          for (std::size_t i = 0; i < count; ++i) {
            double sum = 0;
            for (std::size_t c = 0; c < config.width; ++c) {
              model.weights().layers[layer].attention_output.decode_row(c, row);
              for (std::size_t q = h * group; q < (h + 1) * group; ++q) {
                double dot = 0;
                for (std::size_t a = 0; a < dim; ++a)
                  dot += double{row[q * dim + a]} * values[i][a];
                sum += std::abs(dot) / double(group);
              }
            }
            EXPECT_NEAR(got[i], sum, 1e-5 * sum) << name;
          }
        }
      }
    }
  }
}

// Methods that weigh values get them from the model, in a fork and in a sequence of a loaded cache.
TEST(ValueNorms, SequencesHaveThem) {
  ReferenceCase reference("llama");
  BALLAST_NEED_REFERENCE(reference);
  const Model model(reference.hf());
  CacheOptions options;
  options.recording.include(Policy::parse("criticalkv:budget=40"));
  Sequence exact(model, options);
  EXPECT_NE(exact.cache().options().value_norms, nullptr);
  EXPECT_NE(exact.fork(Policy::parse("criticalkv:budget=40"), 0).cache().options().value_norms,
            nullptr);
  Sequence loaded(model, Cache::parse(Sequence(model, CacheOptions{}).cache().to_bytes(), ""));
  EXPECT_NE(loaded.cache().options().value_norms, nullptr);
}

}  // namespace
}  // namespace ballast
