#include "experiments/data/kv_source.h"

#include <cmath>

namespace ballast {

std::string_view to_string(KvSource::Part part) {
  switch (part) {
    case KvSource::Part::query:
      return "q";
    case KvSource::Part::key:
      return "k";
    default:
      return "v";
  }
}

Logits KvSource::logits() const {
  Logits out;
  out.scale = 1.0f / std::sqrt(static_cast<float>(shape_.key_dim));
  return out;
}

Matrix KvSource::read(Part part, std::size_t layer, std::size_t head, std::size_t first,
                      std::size_t count) const {
  Matrix rows(count, part == Part::value ? shape_.value_dim : shape_.key_dim);
  read(part, layer, head, first, rows.view());
  return rows;
}

}  // namespace ballast
