// Schemas as parts of a grammar, and what tells their values apart.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "serve/grammar/grammar_builder.h"

namespace ballast::serve {

class SchemaNodes {
 public:
  using Id = std::size_t;
  using Items = GrammarBuilder::Items;
  /// Of an anyOf, and of properties that may be left out: the reader follows all at once.
  static constexpr std::size_t kChoices = 128;

  struct Node {
    Items items = {};
    std::string types = {};  ///< a letter for each type of its values
    // What tells it apart from others:
    std::vector<std::string> literals = {};                 ///< all its texts, sorted
    std::vector<std::pair<std::string, Id>> required = {};  ///< members of each of its objects
    bool is_choice = false;                                 ///< of these, which may come later:
    std::vector<Id> choices = {};
  };

  /// `where`: of all schemas, for messages. The builder must outlive the nodes.
  SchemaNodes(GrammarBuilder& builder, std::string where) : b_(builder), where_(std::move(where)) {}

  Node& operator[](Id id) { return nodes_[id]; }
  Id add(Node node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }
  /// What a node chooses from, itself if it does not. Without what is not complete yet.
  std::vector<Id> parts(Id id);
  /// A node whose values are those of any of `ids`. Nested choices are flattened, but for those
  /// that are still being read. Throws ApiError for more than kChoices.
  Id choice(const std::vector<Id>& ids, const std::string& where);

  /// Of these only one may hold: check_exclusive() looks.
  void add_exclusive(std::vector<Id> ids, std::string where) {
    exclusive_.emplace_back(std::move(ids), std::move(where));
  }
  /// Throws ApiError unless types or constants tell them apart.
  void check_exclusive();

 private:
  /// Whether no value is of both nodes, as far as types and constants say.
  bool disjoint(Id a, Id b, bool within = false);
  bool disjoint_parts(const Node& x, const Node& y, bool within);
  /// A oneOf of many long schemas would take hours.
  void count_comparisons(std::size_t count);
  void check_exclusive(const std::vector<Id>& ids, const std::string& where);

  GrammarBuilder& b_;
  std::string where_;
  std::vector<Node> nodes_;
  std::vector<std::pair<std::vector<Id>, std::string>> exclusive_;
  std::size_t comparisons_ = 0;
};

}  // namespace ballast::serve
