// Keys of rows that are packed: turned back before, turned again after.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "attention/rotary.h"
#include "ballast/cache.h"
#include "ballast/pack.h"

namespace ballast {

/// Turns keys by their positions, or back.
class KeyTurner {
 public:
  /// Turns nothing.
  KeyTurner() = default;
  KeyTurner(const CacheShape& shape, bool back) : back_(back) {
    for (std::size_t l = 0; l < shape.layers; ++l) {
      Rotary rotary = shape.rotary_of(l);
      if (back) rotary.magnitude = 1 / rotary.magnitude;
      const auto found = std::ranges::find(kinds_, rotary);
      kind_of_.push_back(static_cast<std::size_t>(found - kinds_.begin()));
      if (found == kinds_.end()) kinds_.push_back(std::move(rotary));
    }
  }

  /// The keys of a group's layers in rows of x (see PackGroup), of tokens at positions from `first`
  /// on.
  void turn(const PackBasis& basis, const PackGroup& group, std::uint64_t first,
            MutableMatrix rows) const {
    std::vector<float> table;
    for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
      const Rotary& rotary = kinds_[kind];
      if (rotary.frequencies.empty()) continue;
      table.resize(2 * rotary.frequencies.size());
      for (std::size_t t = 0; t < rows.rows; ++t) {
        const auto position = static_cast<double>(first + t);
        rotation_at(rotary, back_ ? -position : position, table);
        for (std::size_t i = 0; i < group.layers.size(); ++i) {
          if (kind_of_[group.layers[i]] != kind) continue;
          rotate(rotary, table, basis.key_dim,
                 rows[t].subspan(i * basis.layer_width(), basis.kv_heads * basis.key_dim));
        }
      }
    }
  }

 private:
  bool back_ = false;
  std::vector<Rotary> kinds_;
  std::vector<std::size_t> kind_of_;  ///< a layer's, in kinds_
};

}  // namespace ballast
