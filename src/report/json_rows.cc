#include "report/json_rows.h"

#include <algorithm>
#include <cmath>

#include "report/table.h"

namespace ballast {
namespace {

/// No unit, every digit.
std::string plain_value(const Json& row, const std::string& key) {
  const auto at = row.find(key);
  if (at == row.end() || at->is_null()) return "";
  if (at->is_string()) return at->get<std::string>();
  if (at->is_number_float() && !std::isfinite(at->get<double>())) return "";
  return at->dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string rows_to_csv(const std::vector<std::string>& keys, const std::vector<Json>& rows) {
  std::vector<Table::Column> heads;
  for (const std::string& key : keys) heads.push_back({key});
  Table table(heads);
  for (const Json& row : rows) {
    std::vector<std::string> cells;
    for (const std::string& key : keys) cells.push_back(plain_value(row, key));
    table.add(std::move(cells));
  }
  return table.to_csv();
}

std::string rows_to_csv(const Json& rows) {
  std::vector<std::string> keys;
  for (const Json& row : rows) {
    for (const auto& [key, value] : row.items()) {
      if (std::ranges::find(keys, key) == keys.end()) keys.push_back(key);
    }
  }
  return rows_to_csv(keys, rows.get_ref<const Json::array_t&>());
}

}  // namespace ballast
