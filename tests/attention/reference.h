// Attention in float64, written from the formula, one query and one entry at a time. It sees the
// numbers before they were rounded for storage.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "ballast/attention.h"

namespace ballast::test {

using Numbers = std::vector<std::vector<float>>;

inline Numbers random_rows(std::mt19937& random, std::size_t rows, std::size_t cols,
                           float deviation = 1.0f) {
  std::normal_distribution<float> normal(0.0f, deviation);
  Numbers numbers(rows, std::vector<float>(cols));
  for (auto& row : numbers) {
    for (float& x : row) x = normal(random);
  }
  return numbers;
}

inline Rows store(StorageType type, const Numbers& numbers, std::size_t dim) {
  Rows rows(type, dim, numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) rows.set(i, numbers[i]);
  return rows;
}

inline Matrix to_matrix(const Numbers& numbers, std::size_t cols) {
  Matrix matrix(numbers.size(), cols);
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    for (std::size_t j = 0; j < cols; ++j) matrix[i][j] = numbers[i][j];
  }
  return matrix;
}

struct ReferenceEntry {
  const std::vector<float>* key = nullptr;
  const std::vector<float>* value = nullptr;
  double log_weight = 0.0;
  Role role = Role::both;
  std::optional<Position> position;
};

struct ReferenceQuery {
  const std::vector<float>* row = nullptr;
  std::optional<Position> position;
  double slope = 0.0;
};

/// The logit with its weight; nothing where the entry is hidden.
inline std::optional<double> reference_logit(const ReferenceEntry& entry,
                                             const ReferenceQuery& query, const Logits& logits) {
  double s = 0.0;
  for (std::size_t i = 0; i < query.row->size(); ++i) {
    s += static_cast<double>((*query.row)[i]) * static_cast<double>((*entry.key)[i]);
  }
  s *= static_cast<double>(logits.scale);
  const double cap = logits.softcap;
  if (cap > 0.0) s = cap * std::tanh(s / cap);
  if (query.position && entry.position) {
    const double behind = static_cast<double>(*query.position) - *entry.position;
    if (behind < 0) return std::nullopt;
    if (logits.sliding_window > 0 && behind >= logits.sliding_window) return std::nullopt;
    s -= query.slope * behind;
  }
  s += entry.log_weight;
  if (s == -INFINITY) return std::nullopt;
  return s;
}

/// z of one query. `attention_sum`, when given, gains the share of every entry.
inline std::vector<double> reference_attention(const std::vector<ReferenceEntry>& entries,
                                               const ReferenceQuery& query, const Logits& logits,
                                               std::size_t value_dim,
                                               std::vector<double>* attention_sum = nullptr) {
  std::vector<std::optional<double>> s;
  double largest = -INFINITY;
  for (const auto& entry : entries) {
    s.push_back(reference_logit(entry, query, logits));
    if (s.back()) largest = std::max(largest, *s.back());
  }
  std::vector<double> z(value_dim, 0.0);
  double normaliser = 0.0, largest_term = 0.0;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    if (!s[e]) continue;
    const double w = std::exp(*s[e] - largest);
    if (entries[e].role != Role::numerator) normaliser += w;
    if (entries[e].role == Role::normaliser) continue;
    largest_term = std::max(largest_term, w);
    for (std::size_t i = 0; i < value_dim; ++i) {
      z[i] += w * static_cast<double>((*entries[e].value)[i]);
    }
  }
  if (largest == -INFINITY) return z;
  normaliser = std::max(normaliser, largest_term);  // no entry gets more than all of itself
  for (double& x : z) x /= normaliser;
  if (attention_sum == nullptr) return z;
  for (std::size_t e = 0; e < entries.size(); ++e) {
    if (s[e] && entries[e].role != Role::numerator) {
      (*attention_sum)[e] += std::exp(*s[e] - largest) / normaliser;
    }
  }
  return z;
}

/// |a - b| / |b| over all rows.
inline double relative_error(const Matrix& got, const std::vector<std::vector<double>>& expected) {
  double difference = 0.0, norm = 0.0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    for (std::size_t j = 0; j < expected[i].size(); ++j) {
      const double d = static_cast<double>(got[i][j]) - expected[i][j];
      difference += d * d;
      norm += expected[i][j] * expected[i][j];
    }
  }
  if (norm == 0.0) return std::sqrt(difference);
  return std::sqrt(difference / norm);
}

}  // namespace ballast::test
