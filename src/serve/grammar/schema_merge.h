// Resolves $ref, and merges the schemas of allOf into one.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "report/json.h"

namespace ballast::serve {

/// The places of a schema that $ref names.
class SchemaPlaces {
 public:
  /// `where`: the place of `root`, for messages. `root` must outlive this.
  SchemaPlaces(const Json& root, std::string where) : root_(root), where_(std::move(where)) {}

  /// The schema that a reference names, and its place for messages. Throws ApiError where there is
  /// none; `where`: of the reference.
  std::pair<const Json*, std::string> find(const std::string& ref, const std::string& where) const;

 private:
  const Json& root_;
  std::string where_;
};

/// Merges schemas that must all hold into one: those of allOf, and keywords beside $ref.
class SchemaMerge {
 public:
  explicit SchemaMerge(const SchemaPlaces& places) : places_(places) {}

  /// Adds a schema's keywords, and those of its allOf and $ref, to those of `out`. Throws ApiError
  /// where they say different things, and where all calls have added too much.
  void add(const Json& json, const std::string& where, Json& out);

 private:
  const SchemaPlaces& places_;
  std::size_t merges_ = 0, merged_bytes_ = 0;
};

}  // namespace ballast::serve
