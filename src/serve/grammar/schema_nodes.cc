#include "serve/grammar/schema_nodes.h"

#include <algorithm>
#include <set>

#include "serve/http/api_error.h"

namespace ballast::serve {
namespace {

constexpr std::size_t kComparisons = 20'000'000;

}  // namespace

std::vector<SchemaNodes::Id> SchemaNodes::parts(Id id) {
  std::vector<Id> out, open{id};
  std::set<Id> seen;
  while (!open.empty()) {
    const Id one = open.back();
    open.pop_back();
    if (!seen.insert(one).second) continue;
    const Node& n = (*this)[one];
    if (!n.is_choice || n.choices.empty()) out.push_back(one);
    open.insert(open.end(), n.choices.begin(), n.choices.end());
  }
  return out;
}

SchemaNodes::Id SchemaNodes::choice(const std::vector<Id>& ids, const std::string& where) {
  std::set<Id> all;
  for (Id id : ids) {
    for (Id one : parts(id)) all.insert(one);
  }
  if (all.size() == 1) return *all.begin();
  if (all.size() > kChoices) refuse(where, "{}: more than {} choices", where, kChoices);
  Node out{.is_choice = true};
  std::vector<Items> ways;
  for (Id one : all) {
    out.choices.push_back(one);
    ways.push_back((*this)[one].items);
  }
  out.items = b_.either(ways);
  return add(std::move(out));
}

bool SchemaNodes::disjoint(Id a, Id b, bool within) {
  for (Id x : parts(a)) {
    for (Id y : parts(b)) {
      if (!disjoint_parts((*this)[x], (*this)[y], within)) return false;
    }
  }
  return true;
}

bool SchemaNodes::disjoint_parts(const Node& x, const Node& y, bool within) {
  count_comparisons(1);
  if (x.types.find_first_of(y.types) == std::string::npos) return true;
  if (!x.literals.empty() && !y.literals.empty()) {
    count_comparisons(x.literals.size() + y.literals.size());
    std::vector<std::string> common;
    std::ranges::set_intersection(x.literals, y.literals, std::back_inserter(common));
    return common.empty();
  }
  if (within) return false;
  for (const auto& [key, value] : x.required) {
    count_comparisons(y.required.size());
    for (const auto& [other, its] : y.required) {
      if (key == other && disjoint(value, its, true)) return true;
    }
  }
  return false;
}

void SchemaNodes::count_comparisons(std::size_t count) {
  comparisons_ += count;
  if (comparisons_ > kComparisons) {
    refuse(where_, "{}: too much to compare for oneOf; use anyOf", where_);
  }
}

void SchemaNodes::check_exclusive(const std::vector<Id>& ids, const std::string& where) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (disjoint(ids[i], ids[k])) continue;
      throw ApiError(400, "unsupported_parameter",
                     fmt::format("{}: neither a type nor a constant in a required property tells "
                                 "{} and {} apart; use anyOf",
                                 where, k, i),
                     where);
    }
  }
}

void SchemaNodes::check_exclusive() {
  for (const auto& [ids, where] : exclusive_) check_exclusive(ids, where);
}

}  // namespace ballast::serve
