// Caches, queries and answers that tests of attention share.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "attention/reference.h"
#include "ballast/attention.h"

namespace ballast::test {

// A cache of several segments with its unrounded numbers beside it.
struct Cache {
  struct Part {
    Numbers keys, values;
    Rows key_rows, value_rows;
    std::vector<float> log_weights;
    std::vector<Position> positions;
    Role role = Role::both;
    Position first_position = -1;
  };
  std::vector<Part> parts;

  std::vector<Segment> segments() const {
    std::vector<Segment> result;
    for (const Part& part : parts) {
      Segment segment;
      segment.keys = part.key_rows.view(0, part.keys.size());
      if (part.role != Role::normaliser) {
        segment.values = part.value_rows.view(0, part.values.size());
      }
      if (!part.log_weights.empty()) segment.log_weights = part.log_weights.data();
      if (!part.positions.empty()) segment.positions = part.positions.data();
      segment.role = part.role;
      segment.first_position = part.first_position;
      result.push_back(segment);
    }
    return result;
  }

  std::vector<ReferenceEntry> entries() const {
    std::vector<ReferenceEntry> result;
    for (const Part& part : parts) {
      for (std::size_t i = 0; i < part.keys.size(); ++i) {
        ReferenceEntry entry;
        entry.key = &part.keys[i];
        entry.value = &part.values[i];
        if (!part.log_weights.empty()) entry.log_weight = part.log_weights[i];
        entry.role = part.role;
        if (!part.positions.empty()) {
          entry.position = part.positions[i];
        } else if (part.first_position >= 0) {
          entry.position = part.first_position + static_cast<Position>(i);
        }
        result.push_back(entry);
      }
    }
    return result;
  }
};

inline Cache::Part make_part(std::mt19937& random, std::size_t n, std::size_t d, std::size_t dv,
                             StorageType keys, StorageType values) {
  Cache::Part part;
  part.keys = random_rows(random, n, d);
  part.values = random_rows(random, n, dv);
  part.key_rows = store(keys, part.keys, d);
  part.value_rows = store(values, part.values, dv);
  return part;
}

struct Asked {
  Numbers numbers;
  Matrix rows;
  std::vector<Position> positions;
  std::vector<float> slopes;

  Queries queries() const { return {rows.view(), positions, slopes}; }
  ReferenceQuery reference(std::size_t q) const {
    ReferenceQuery query{&numbers[q], std::nullopt, 0.0};
    if (!positions.empty()) query.position = positions[q];
    if (!slopes.empty()) query.slope = slopes[q];
    return query;
  }
};

inline Asked make_queries(std::mt19937& random, std::size_t m, std::size_t d) {
  Asked asked;
  asked.numbers = random_rows(random, m, d);
  asked.rows = to_matrix(asked.numbers, d);
  return asked;
}

inline Matrix answer(const Cache& cache, const Asked& asked, const Logits& logits, std::size_t dv) {
  Matrix out(asked.rows.rows(), dv);
  attend(asked.queries(), cache.segments(), logits, out.view());
  return out;
}

inline double error_of(const Matrix& got, const Cache& cache, const Asked& asked,
                       const Logits& logits) {
  std::vector<std::vector<double>> expected;
  for (std::size_t q = 0; q < asked.numbers.size(); ++q) {
    expected.push_back(
        reference_attention(cache.entries(), asked.reference(q), logits, got.cols()));
  }
  return relative_error(got, expected);
}

inline double error_of(const Cache& cache, const Asked& asked, const Logits& logits,
                       std::size_t dv) {
  return error_of(answer(cache, asked, logits, dv), cache, asked, logits);
}

inline Logits usual(std::size_t d) {
  Logits logits;
  logits.scale = 1.0f / std::sqrt(static_cast<float>(d));
  return logits;
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin());
}

inline std::string type_name(StorageType type) { return std::string(to_string(type)); }

inline constexpr StorageType kTypes[] = {StorageType::f32,  StorageType::bf16, StorageType::f16,
                                         StorageType::int8, StorageType::int4, StorageType::q4,
                                         StorageType::q3,   StorageType::q2};

}  // namespace ballast::test
