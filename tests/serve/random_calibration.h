// A calibration whose weights mean nothing.
#pragma once

#include <memory>

#include "ballast/engine/calibration.h"
#include "support.h"

namespace ballast::test {

inline Model randomly_calibrated(const std::string& path) {
  Model model(path);
  const ModelConfig& c = model.config();
  std::vector<Calibration::Layer> layers(c.layers);
  for (Calibration::Layer& layer : layers) {
    layer.weights = random_matrix(c.kv_heads, c.width + 2 * c.kv_heads, 5, 0.05f);
    layer.offsets.assign(c.kv_heads, -3.0f);
  }
  model.set_calibration(std::make_shared<Calibration>(calibration_key(model), std::move(layers)));
  return model;
}

}  // namespace ballast::test
