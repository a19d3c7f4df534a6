#include "serve/grammar/json_schema.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>

#include "ballast/error.h"
#include "serve/grammar/expression_rules.h"
#include "serve/grammar/json_rules.h"
#include "serve/grammar/schema_keywords.h"
#include "serve/grammar/schema_merge.h"
#include "serve/grammar/schema_nodes.h"
#include "serve/grammar/schema_numbers.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "text/tokenizer/utf8.h"

namespace ballast::serve {
namespace {

using Items = GrammarBuilder::Items;

constexpr std::size_t kItems = 1 << 16, kLevels = 256, kLength = 1 << 30;
constexpr std::size_t kChoices = SchemaNodes::kChoices;

std::string dump(const Json& value) { return value.dump(-1, ' ', false); }

/// A grammar that schemas are added to.
struct Rules {
  GrammarBuilder builder{JsonRules::kDeepest, 0};
  JsonRules json{builder};

  std::shared_ptr<const Grammar> finish(const Items& root, const std::string& where) {
    try {
      return builder.finish(root);
    } catch (const Error& error) {
      refuse(where, "{}: {}", where, error.what());
    }
  }
};

/// A schema and those within it, as parts of a grammar.
class Compiler {
 public:
  Compiler(Rules& rules, const Json& root, std::string where)
      : b_(rules.builder),
        json_(rules.json),
        root_(root),
        where_(std::move(where)),
        nodes_(b_, where_) {
    nodes_.add({json_.any, "oasnb0"});
    nodes_.add({json_.any_object, "o"});
    nodes_.add({json_.any_array, "a"});
    nodes_.add({json_.any_string, "s"});
    nodes_.add({json_.number, "n"});
    nodes_.add({json_.integer, "n"});
    nodes_.add({json_.boolean, "b"});
    nodes_.add({json_.null, "0"});
  }

  /// The schema, which is of objects.
  Items compile() {
    const Id root = reference("#", where_);
    for (Id id : nodes_.parts(root)) {
      if (nodes_[id].types != "o") {
        refuse(where_, "{}: the root of a schema must be of the type \"object\"", where_);
      }
    }
    nodes_.check_exclusive();
    return nodes_[root].items;
  }

 private:
  using Id = SchemaNodes::Id;
  using Node = SchemaNodes::Node;
  static constexpr Id kAny = 0, kString = 3, kNumber = 4, kInteger = 5, kBoolean = 6, kNull = 7;

  Id schema(const Json& json, const std::string& place) {
    const std::string where = shortened(place);
    if (json == true) return kAny;
    if (level_ == kLevels) refuse(where, "{}: schemas nest deeper than {}", where, kLevels);
    ++level_;
    const Id id = inner_schema(json, where);
    --level_;
    return id;
  }

  Id inner_schema(const Json& json, const std::string& where) {
    Fields f(json, where + ".");
    const auto ref = f.text("$ref");
    if (ref && stands_alone(json, "$ref")) return reference(*ref, f.full("$ref"));
    const Json* all = f.find("allOf");
    if (ref || (all != nullptr && all->is_array())) {
      Json merged = Json::object();
      merge_.add(json, where, merged);
      return schema(merged_.emplace_back(std::move(merged)), where);
    }
    for (const char* name : {"anyOf", "oneOf", "allOf"}) {
      if (const Json* several = f.find(name)) return combined(f, json, name, *several, where);
    }
    const Json* one = f.find("const");
    const Json* several = f.find("enum");
    if (json.contains("const") && json["const"].is_null()) one = &json["const"];
    if (one != nullptr || several != nullptr) {
      return literals(f, json, where, one, several);
    }
    const std::vector<std::string> types = types_of(f, json);
    std::vector<Id> ids;
    for (const std::string& type : types) ids.push_back(of_type(f, type, where));
    if (types.empty()) ids.push_back(kAny);
    end_keywords(f, json, types);
    return nodes_.choice(ids, where);
  }

  Id combined(Fields& f, const Json& json, const std::string& name, const Json& all,
              const std::string& where) {
    const std::string place = f.full(name);
    if (!all.is_array() || all.empty()) {
      refuse(place, "{}: {} is not an array of schemas", place, shown(all));
    }
    // Keywords beside it hold for each of its schemas.
    Json base = json;
    base.erase(name);
    const bool alone = stands_alone(json, name);
    std::vector<Id> ids;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string one = fmt::format("{}[{}]", place, i);
      if (alone) {
        ids.push_back(schema(all[i], one));
        continue;
      }
      Json merged = Json::object();
      merge_.add(all[i], shortened(one), merged);
      merge_.add(base, where, merged);
      ids.push_back(schema(merged_.emplace_back(std::move(merged)), one));
    }
    if (name == "oneOf") {
      if (ids.size() > kChoices) refuse(place, "{}: more than {} choices", place, kChoices);
      nodes_.add_exclusive(ids, place);
    }
    return nodes_.choice(ids, where);
  }

  Id literals(Fields& f, const Json& json, const std::string& where, const Json* one,
              const Json* several) {
    if (several != nullptr && (!several->is_array() || several->empty())) {
      refuse(f.full("enum"), "{}: {} is not an array of values", f.full("enum"), shown(*several));
    }
    const Json values = one == nullptr ? *several : Json::array({*one});
    const std::vector<bool> allowed = allowed_beside(json, values, where);
    Node out;
    std::set<char> letters;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Json& value = values[i];
      const bool listed = one == nullptr || several == nullptr ||
                          std::ranges::find(*several, value) != several->end();
      if (!allowed[i] || !listed) continue;
      out.literals.push_back(dump(value));
      letters.insert(letter_of(value));
    }
    if (out.literals.empty()) {
      const std::string name = f.full(one == nullptr ? "enum" : "const");
      refuse(name, "{}: no value is one that the keywords beside it allow", name);
    }
    std::ranges::sort(out.literals);
    out.literals.erase(std::unique(out.literals.begin(), out.literals.end()), out.literals.end());
    out.items = b_.either_text(out.literals);
    out.types.assign(letters.begin(), letters.end());
    return nodes_.add(std::move(out));
  }

  /// Which values the keywords beside enum and const allow; `format` is taken to fit. Without a
  /// type, keywords hold values of their own types alone.
  std::vector<bool> allowed_beside(Json json, const Json& values, const std::string& where) {
    for (const char* name : {"enum", "const", "format"}) json.erase(name);
    Fields f(json, where + ".");
    const bool typed = f.find("type") != nullptr;
    const std::vector<std::string> types = types_of(f, json);
    Rules rules;
    std::string held;  // letters of types
    std::optional<GrammarReader> reader;
    if (!stands_alone(json, "type")) {
      Compiler others(rules, root_, where_);
      const Node& node = others.nodes_[others.schema(json, where)];
      held = node.types;
      reader.emplace(rules.finish(node.items, where));
    }
    std::vector<bool> out;
    for (const Json& value : values) {
      bool allowed = !typed || std::ranges::any_of(
                                   types, [&](const auto& type) { return is_of(value, type); });
      if (value.is_number()) {
        allowed = allowed && is_within(f, value);
      } else if (held.find(letter_of(value)) != std::string::npos) {
        GrammarReader text = *reader;
        text.states().allow_work();
        allowed = allowed && text.push(dump(value)) && text.may_end();
      }
      out.push_back(allowed);
    }
    return out;
  }

  Id of_type(Fields& f, const std::string& type, const std::string& where) {
    if (type == "object") return object(f);
    if (type == "array") return array(f);
    if (type == "string") return string(f);
    if (type == "number" || type == "integer") return number(f, type == "integer", where);
    return type == "boolean" ? kBoolean : kNull;
  }

  Id string(Fields& f) {
    const auto least = f.count("minLength", 0, kLength), most = f.count("maxLength", 0, kLength);
    const auto low = static_cast<std::uint32_t>(least.value_or(0));
    const auto high = static_cast<std::uint32_t>(most.value_or(GrammarBuilder::kNoLimit));
    if (low > high) {
      refuse(f.full("minLength"), "{}: {} is more than maxLength, {}", f.full("minLength"), low,
             high);
    }
    std::vector<Expression> all;
    const char* field = "format";
    const auto hold = [&](const char* name, const auto& add) {
      try {
        field = name;
        add();
      } catch (const Error& error) {
        throw ApiError(400, "unsupported_parameter",
                       fmt::format("{}: {}", f.full(name), error.what()), f.full(name));
      }
    };
    const auto format_name = f.text("format");
    const auto format = format_name ? format_expression(Json(*format_name)) : std::nullopt;
    if (format) all.emplace_back(*format, true);
    if (const auto expression = f.text("pattern")) {
      hold("pattern", [&] {
        // zod says a format in a pattern with assertions, too.
        if (format && expression->find("(?") != std::string::npos) return;
        all.emplace_back(*expression, true);
      });
    }
    if (all.empty()) {
      if (!least && !most) return kString;
      return nodes_.add({json_.string(low, high), "s"});
    }
    Items characters;
    hold(field, [&] {
      if (all.size() > 1 || !all[0].has_length(low, high)) {
        if (least || most) all.push_back(Expression::of_length(low, high));
      }
      characters =
          matching(b_, all, [&](const icu::UnicodeSet& set) { return json_.character(set); });
    });
    return nodes_.add({json_.quoted(characters), "s"});
  }

  Id number(Fields& f, bool integer, const std::string& where) {
    const auto numbers = numbers_of(f, integer, where);
    if (!numbers) return integer ? kInteger : kNumber;
    return nodes_.add({json_.numbers(*numbers), "n"});
  }

  struct Property {
    std::string name;
    Id value = kAny;
    bool required = false;
  };
  /// Those that `properties` names.
  std::vector<Property> properties_of(Fields& f) {
    const Json* properties = f.find("properties");
    const std::string where = f.full("properties");
    std::vector<Property> out;
    if (properties == nullptr) return out;
    if (!properties->is_object()) {
      refuse(where, "{}: {} is not an object", where, shown(*properties));
    }
    for (const auto& [name, value] : properties->items()) {
      out.push_back({name, schema(value, where + "." + to_utf8(name))});
    }
    return out;
  }
  static std::vector<std::string> required_names(Fields& f) {
    const Json* required = f.find("required");
    const std::string where = f.full("required");
    std::vector<std::string> out;
    if (required == nullptr) return out;
    if (!required->is_array()) {
      refuse(where, "{}: {} is not an array of names", where, shown(*required));
    }
    for (const Json& name : *required) {
      if (!name.is_string()) {
        refuse(where, "{}: {} is not the name of a property", where, shown(name));
      }
      out.push_back(name);
    }
    return out;
  }
  /// Properties that are required are so, those that have no schema yet with that of `others`;
  /// nothing: there are no others.
  static void require_properties(Fields& f, std::span<const std::string> names,
                                 std::optional<Id> others, std::vector<Property>& out) {
    std::map<std::string, std::size_t> places;
    for (std::size_t i = 0; i < out.size(); ++i) places[out[i].name] = i;
    for (const std::string& name : names) {
      const auto [at, fresh] = places.try_emplace(name, out.size());
      if (fresh && !others) {
        const std::string where = f.full("required");
        refuse(where, "{}: {} is not the name of a property, and no others may be", where,
               shown(Json(name)));
      }
      if (fresh) out.push_back({name, *others});
      out[at->second].required = true;
    }
    if (std::ranges::count(out, false, &Property::required) >
        static_cast<std::ptrdiff_t>(kChoices)) {
      const std::string where = f.full("properties");
      refuse(where, "{}: more than {} that are not required", where, kChoices);
    }
  }
  static std::u32string codes_of(const std::string& text) {
    std::u32string out;
    for (std::size_t at = 0; at < text.size();) {
      const Utf8Char c = next_utf8(text, at);
      out += c.code;
      at += c.length;
    }
    return out;
  }

  Id object(Fields& f) {
    f.only("propertyNames", Json{{"type", "string"}});
    const std::vector<std::string> required = required_names(f);
    std::vector<Property> properties = properties_of(f);
    const Json* further = f.find("additionalProperties");
    const char* further_name =
        further != nullptr ? "additionalProperties" : "unevaluatedProperties";
    if (further == nullptr) further = f.find(further_name);
    f.ignore({"unevaluatedProperties"});
    const bool closed = further != nullptr && *further == false;
    const bool open = further != nullptr ? !closed : f.find("properties") == nullptr;
    const Id others = further != nullptr && open ? schema(*further, f.full(further_name)) : kAny;
    require_properties(f, required, closed ? std::nullopt : std::optional(others), properties);
    Node out{.types = "o"};
    std::vector<JsonRules::Member> members;
    std::vector<std::u32string> names;
    for (const Property& one : properties) {
      const std::string key = dump(Json(one.name));
      members.push_back({b_.text(key), nodes_[one.value].items, one.required});
      if (one.required) out.required.emplace_back(key, one.value);
      names.push_back(codes_of(one.name));
    }
    std::optional<JsonRules::Member> more;
    if (open) {
      more = {names.empty() ? json_.any_string : json_.other_string(std::move(names)),
              nodes_[others].items};
    }
    out.items = json_.object(members, more);
    return nodes_.add(std::move(out));
  }

  Id array(Fields& f) {
    std::vector<Items> first_items;
    Items rest = json_.any;
    std::uint32_t limit = GrammarBuilder::kNoLimit;
    // A tuple in the words of today, or of drafts before 2020.
    const Json* items = f.find("items");
    const bool old = items != nullptr && items->is_array();
    const char* tuple = old ? "items" : "prefixItems";
    const char* further = old ? "additionalItems" : "items";
    if (const Json* first = f.find(tuple); first != nullptr && first->is_array()) {
      if (first->size() > kChoices) {
        refuse(f.full(tuple), "{}: more than {} places", f.full(tuple), kChoices);
      }
      for (std::size_t i = 0; i < first->size(); ++i) {
        first_items.push_back(
            nodes_[schema((*first)[i], fmt::format("{}[{}]", f.full(tuple), i))].items);
      }
    }
    const Json* others = f.find(further);
    if (others == nullptr) others = f.find("unevaluatedItems");
    f.ignore({"additionalItems", "unevaluatedItems"});
    if (others != nullptr && *others == false) {
      limit = static_cast<std::uint32_t>(first_items.size());
    } else if (others != nullptr) {
      rest = nodes_[schema(*others, f.full(further))].items;
    }
    f.only("uniqueItems", false);
    const auto least = static_cast<std::uint32_t>(f.count("minItems", 0, kItems).value_or(0));
    if (const auto most = f.count("maxItems", 0, kItems)) {
      limit = std::min(limit, static_cast<std::uint32_t>(*most));
    }
    if (least > limit) {
      refuse(f.full("minItems"), "{}: {} is more than maxItems, {}", f.full("minItems"), least,
             limit);
    }
    return nodes_.add({json_.array(first_items, rest, least, limit), "a"});
  }

  /// The node of a schema that is named by its place. While it is being read, a choice that has its
  /// choices later.
  Id reference(const std::string& ref, const std::string& where) {
    if (const auto at = known_.find(ref); at != known_.end()) {
      Reference& known = at->second;
      if (known.id) return *known.id;
      if (!known.later) {
        known.rule = b_.declare();
        known.later = nodes_.add({.items = b_.rule(known.rule), .is_choice = true});
      }
      return *known.later;
    }
    const auto [target, place] = places_.find(ref, where);
    known_[ref] = {};
    const Id id = schema(*target, place);
    Reference& known = known_[ref];
    known.id = id;
    if (known.later) {
      nodes_[*known.later].choices = {id};
      b_.define(known.rule, {nodes_[id].items});
      std::set<char> letters;
      for (const Id one : nodes_.parts(id))
        letters.insert(nodes_[one].types.begin(), nodes_[one].types.end());
      nodes_[*known.later].types.assign(letters.begin(), letters.end());
    }
    return id;
  }
  struct Reference {
    std::optional<Id> id;           ///< none: the schema is still being read
    std::optional<Id> later;        ///< placeholder node for uses while it is being read
    GrammarBuilder::Rule rule = 0;  ///< of `later`
  };

  GrammarBuilder& b_;
  JsonRules& json_;
  const Json& root_;
  const std::string where_;
  SchemaNodes nodes_;
  SchemaPlaces places_{root_, where_};
  SchemaMerge merge_{places_};
  std::deque<Json> merged_;  ///< of allOf; references name places in the root alone
  std::size_t level_ = 0;
  std::map<std::string, Reference> known_;  ///< by $ref
};

/// The texts of a schema.
Items compile(Rules& rules, const Json& schema, const std::string& where) {
  try {
    return Compiler(rules, schema, where).compile();
  } catch (const Error& error) {  // more parts than a grammar may have
    refuse(where, "{}: {}", where, error.what());
  }
}

}  // namespace

std::shared_ptr<const Grammar> any_json_object() {
  Rules rules;
  return rules.finish(rules.json.any_object, "");
}

std::shared_ptr<const Grammar> compile_schema(const Json& schema, const std::string& where) {
  Rules rules;
  return rules.finish(compile(rules, schema, where), where);
}

std::shared_ptr<const Grammar> compile_calls(const std::vector<CallSchema>& calls,
                                             const std::string& arguments) {
  if (calls.size() > kChoices) {
    refuse("tools", "tools: {} functions of which one must be called; at most {} are supported",
           calls.size(), kChoices);
  }
  Rules rules;
  std::vector<Items> any;
  for (const CallSchema& call : calls) {
    const Items parameters = call.parameters.is_null()
                                 ? rules.json.any_object
                                 : compile(rules, call.parameters, call.where);
    any.push_back(rules.json.object(
        {{rules.builder.text(dump(Json("name"))), rules.builder.text(dump(Json(call.name))), true},
         {rules.builder.text(dump(Json(arguments))), parameters, true}},
        std::nullopt));
  }
  return rules.finish(rules.builder.either(any), "tools");
}

}  // namespace ballast::serve
