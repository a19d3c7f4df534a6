// The bytes that a cache takes, before there is one.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <utility>

#include "ballast/cache.h"
#include "methods/entry_budget.h"

namespace ballast {

/// The accountant: budgets in bytes, estimates of memory and tables ask it.
class CacheSize {
 public:
  /// Of all layers and heads, in bytes.
  struct Need {
    std::size_t most = 0;         ///< held at once, at most
    std::size_t kept = 0;         ///< once the prompt is summarised and what follows is read
    std::size_t summarising = 0;  ///< scratch while a head is summarised, of a head
    std::size_t entries = 0;      ///< of a head, at most: no bytes
  };

  /// `shape` must outlive it. The types are those of the method, where it names some.
  CacheSize(const CacheShape& shape, const CacheOptions& options);
  ~CacheSize();

  /// Of one token that is held as it is read: rows, and its attention sum if that is watched.
  std::size_t token() const { return shape_.layers * shape_.kv_heads * window_row_; }
  /// Of so many tokens, nothing summarised and nothing watched, and of the recurrent layers.
  std::size_t exact(std::size_t tokens) const;
  /// Of a text of `tokens` tokens (0: without end) summarised with budget=`entries`.
  std::size_t with_entries(std::size_t entries, std::size_t tokens);
  /// Of a prompt and what follows. Throws Error as fit_bytes() and summaries do.
  Need need(std::size_t prompt, std::size_t after);

 private:
  std::size_t rows(std::size_t tokens) const;
  std::size_t low_bits(std::size_t first) const;
  std::size_t summary(const Policy& policy, const Budget& budget, std::size_t step,
                      std::size_t layer, std::size_t tokens);
  std::size_t summarised(const Policy& policy, const Budget& budget, std::size_t layer,
                         std::size_t tokens, bool refuse);
  std::size_t rotations(std::size_t entries) const;
  std::size_t recurrent() const;

  const CacheShape& shape_;
  CacheOptions options_;
  std::size_t row_ = 0;         ///< of a head: a key and a value
  std::size_t window_row_ = 0;  ///< and an attention sum
  std::size_t scores_ = 0;      ///< of an entry, until one budget is divided
  std::size_t queries_ = 0;     ///< of a head: the last queries
  std::size_t moments_ = 0;     ///< of a head's queries, as long as something is chosen by them
  std::unique_ptr<SharedState> shared_;
  const BoundedState* bounded_ = nullptr;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> summaries_;  ///< by capacity, layer
};

}  // namespace ballast
