// Objects as rows of a table for other programs.
#pragma once

#include <string>
#include <vector>

#include "report/json.h"

namespace ballast {

/// Objects as CSV: a column for each of these keys, and each number with as many digits as it
/// needs; null, missing and not finite are empty.
std::string rows_to_csv(const std::vector<std::string>& keys, const std::vector<Json>& rows);
/// An array of objects: a column for each key of any of them, in the order of their coming.
std::string rows_to_csv(const Json& rows);

}  // namespace ballast
