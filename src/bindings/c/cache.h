// The handle of a cache, and the options that C gives it.
#pragma once

#include <memory>
#include <utility>

#include "ballast.h"
#include "ballast/cache.h"

struct ballast_cache {
  explicit ballast_cache(ballast::Cache made)
      : own(std::make_unique<ballast::Cache>(std::move(made))), cache(*own) {}
  /// A view of a cache that someone else holds.
  explicit ballast_cache(ballast::Cache* other) : cache(*other) {}

  std::unique_ptr<ballast::Cache> own;
  ballast::Cache& cache;
};

namespace ballast {
class Model;
}

namespace ballast::c {

/// Throws Error on what is no value of its enum, and as parse_policy() does.
CacheOptions cache_options(const ballast_cache_params* params, const Model* model = nullptr);

/// Throws Error as read_struct().
CacheShape shape_of(const ballast_cache_shape* shape);

/// Of null: a view without data. Throws Error, which calls it `name`, on what is no element type.
MutableHeadsView view_of(const ballast_heads* heads, const char* name);

/// Logs what the methods of a cache have to say.
void log_reports(const Cache& cache);

}  // namespace ballast::c
