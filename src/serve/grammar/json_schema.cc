#include "serve/grammar/json_schema.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "ballast/error.h"
#include "serve/grammar/expression.h"
#include "serve/grammar/json_rules.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "text/tokenizer/utf8.h"

namespace ballast::serve {
namespace {

using Items = GrammarBuilder::Items;

constexpr std::size_t kItems = 1 << 16, kLevels = 256, kLength = 1 << 30;
/// Of bounds of integers and scaled numbers: below 10^18, so that ten times as much is a uint64.
constexpr std::int64_t kLargest = 999'999'999'999'999'999;
constexpr std::uint8_t kDecimals = 15;
constexpr std::size_t kComparisons = 20'000'000, kMerges = 512, kMergedBytes = 32 << 20;
/// Of an anyOf, and of properties that may be left out: the reader follows all at once.
constexpr std::size_t kChoices = 128;
constexpr std::array kTypes = {"object", "array", "string", "number", "integer", "boolean", "null"};
/// Keywords that say nothing about which texts are valid. $defs are looked up where they are named.
constexpr std::array kAnnotations = {"title",
                                     "description",
                                     "default",
                                     "examples",
                                     "example",
                                     "$comment",
                                     "deprecated",
                                     "readOnly",
                                     "writeOnly",
                                     "discriminator",
                                     "externalDocs",
                                     "xml",
                                     "contentEncoding",
                                     "contentMediaType",
                                     "contentSchema",
                                     "$defs",
                                     "definitions",
                                     "$schema",
                                     "$id",
                                     "id",
                                     "$anchor",
                                     "$vocabulary",
                                     "markdownDescription"};
/// Keywords that values of one type alone are held to.
constexpr std::array<std::pair<std::string_view, std::string_view>, 21> kOfTypes = {
    {{"properties", "object"},
     {"required", "object"},
     {"additionalProperties", "object"},
     {"unevaluatedProperties", "object"},
     {"propertyNames", "object"},
     {"items", "array"},
     {"prefixItems", "array"},
     {"additionalItems", "array"},
     {"minItems", "array"},
     {"maxItems", "array"},
     {"uniqueItems", "array"},
     {"unevaluatedItems", "array"},
     {"minLength", "string"},
     {"maxLength", "string"},
     {"pattern", "string"},
     {"format", "string"},
     {"minimum", "number"},
     {"maximum", "number"},
     {"exclusiveMinimum", "number"},
     {"exclusiveMaximum", "number"},
     {"multipleOf", "number"}}};

bool is_annotation(std::string_view name) {
  return name.starts_with("x-") || std::ranges::find(kAnnotations, name) != kAnnotations.end();
}

/// Where a part of a schema stands, for messages, in at most some 400 bytes.
std::string shortened(const std::string& where) {
  constexpr std::size_t kLongest = 400;
  return where.size() <= kLongest ? where : to_utf8(where.substr(0, kLongest - 3)) + "...";
}

std::string dump(const Json& value) { return value.dump(-1, ' ', false); }

/// Whether a value is of a type of JSON Schema.
bool is_of(const Json& value, std::string_view type) {
  if (type == "integer") {
    return value.is_number_integer() ||
           (value.is_number() && value.get<double>() == std::trunc(value.get<double>()));
  }
  return type == "object"    ? value.is_object()
         : type == "array"   ? value.is_array()
         : type == "string"  ? value.is_string()
         : type == "number"  ? value.is_number()
         : type == "boolean" ? value.is_boolean()
                             : value.is_null();
}

/// The letter of its type.
char letter_of(const Json& value) {
  return value.is_object()    ? 'o'
         : value.is_array()   ? 'a'
         : value.is_string()  ? 's'
         : value.is_number()  ? 'n'
         : value.is_boolean() ? 'b'
                              : '0';
}

/// Texts of a format, not all of them: days end with the 28th, which every month has, times are in
/// UTC, addresses are short.
struct Format {
  std::string_view name;
  std::string_view expression;
};
#define BALLAST_DATE "[12]\\d{3}-(0[1-9]|1[012])-(0[1-9]|1\\d|2[0-8])"
#define BALLAST_TIME "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\dZ"
#define BALLAST_HOST "([a-z0-9]{1,24}(-[a-z0-9]{1,24})?\\.){1,4}[a-z]{2,24}"
#define BALLAST_BYTE "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define BALLAST_PATH "(:\\d{1,4})?(/[A-Za-z0-9._~-]+)*/?(\\?[A-Za-z0-9._~=&-]*)?"
constexpr std::array<Format, 19> kFormats = {{
    {"date", "^" BALLAST_DATE "$"},
    {"time", "^" BALLAST_TIME "$"},
    {"date-time", "^" BALLAST_DATE "T" BALLAST_TIME "$"},
    {"duration", "^P(\\d{1,3}D(T\\d{1,3}H)?|T\\d{1,3}[HMS])$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"},
    {"email", "^[A-Za-z0-9]+([._+-][A-Za-z0-9]+)*@" BALLAST_HOST "$"},
    {"hostname", "^" BALLAST_HOST "$"},
    {"uri", "^https?://" BALLAST_HOST BALLAST_PATH "$"},
    {"ipv4", "^(" BALLAST_BYTE "\\.){3}" BALLAST_BYTE "$"},
    {"ipv6", "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
    {"idn-email", "^[A-Za-z0-9]+([._+-][A-Za-z0-9]+)*@" BALLAST_HOST "$"},
    {"idn-hostname", "^" BALLAST_HOST "$"},
    {"iri", "^https?://" BALLAST_HOST BALLAST_PATH "$"},
    {"uri-reference", "^(https?://" BALLAST_HOST ")?(/[A-Za-z0-9._~-]+)+$"},
    {"iri-reference", "^(https?://" BALLAST_HOST ")?(/[A-Za-z0-9._~-]+)+$"},
    {"uri-template", "^https?://" BALLAST_HOST "(/([A-Za-z0-9._~-]+|\\{[a-z]+\\}))*$"},
    {"json-pointer", "^(/[A-Za-z0-9_ -]*)*$"},
    {"relative-json-pointer", "^(0|[1-9]\\d?)(#|(/[A-Za-z0-9_ -]*)*)$"},
    {"regex", "^[A-Za-z0-9 _-]*$"},
}};
#undef BALLAST_DATE
#undef BALLAST_TIME
#undef BALLAST_HOST
#undef BALLAST_PATH
#undef BALLAST_BYTE

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
      : b_(rules.builder), json_(rules.json), root_(root), where_(std::move(where)) {
    add({json_.any, "oasnb0"});
    add({json_.any_object, "o"});
    add({json_.any_array, "a"});
    add({json_.any_string, "s"});
    add({json_.number, "n"});
    add({json_.integer, "n"});
    add({json_.boolean, "b"});
    add({json_.null, "0"});
  }

  /// The schema, which is of objects.
  Items compile() {
    const Id root = reference("#", where_);
    for (Id id : parts(root)) {
      if (node(id).types != "o") {
        refuse(where_, "{}: the root of a schema must be of the type \"object\"", where_);
      }
    }
    for (const auto& [ids, where] : exclusive_) check_exclusive(ids, where);
    return node(root).items;
  }

 private:
  using Id = std::size_t;
  static constexpr Id kAny = 0, kString = 3, kNumber = 4, kInteger = 5, kBoolean = 6, kNull = 7;
  struct Node {
    Items items = {};
    std::string types = {};  ///< a letter for each type of its values
    // What tells it apart from others:
    std::vector<std::string> literals = {};                 ///< all its texts, sorted
    std::vector<std::pair<std::string, Id>> required = {};  ///< members of each of its objects
    bool is_choice = false;                                 ///< of these, which may come later:
    std::vector<Id> choices = {};
  };

  Node& node(Id id) { return nodes_[id]; }
  Id add(Node node) {
    nodes_.push_back(std::move(node));
    return nodes_.size() - 1;
  }

  /// What a node chooses from, itself if it does not. Without what is not complete yet.
  std::vector<Id> parts(Id id) {
    std::vector<Id> out, open{id};
    std::set<Id> seen;
    while (!open.empty()) {
      const Id one = open.back();
      open.pop_back();
      if (!seen.insert(one).second) continue;
      const Node& n = node(one);
      if (!n.is_choice || n.choices.empty()) out.push_back(one);
      open.insert(open.end(), n.choices.begin(), n.choices.end());
    }
    return out;
  }
  /// One node for several. Choices hold no choices but those that are not complete yet, so that
  /// looking at each takes no longer than the schema is.
  Id choice(const std::vector<Id>& ids, const std::string& where) {
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
      ways.push_back(node(one).items);
    }
    out.items = b_.either(ways);
    return add(std::move(out));
  }

  /// Whether no value is of both nodes, as far as types and constants say.
  bool disjoint(Id a, Id b, bool within = false) {
    for (Id x : parts(a)) {
      for (Id y : parts(b)) {
        if (!disjoint_parts(node(x), node(y), within)) return false;
      }
    }
    return true;
  }
  bool disjoint_parts(const Node& x, const Node& y, bool within) {
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
  /// A oneOf of many long schemas would take hours.
  void count_comparisons(std::size_t count) {
    comparisons_ += count;
    if (comparisons_ > kComparisons) {
      refuse(where_, "{}: too much to compare for oneOf; use anyOf", where_);
    }
  }
  void check_exclusive(const std::vector<Id>& ids, const std::string& where) {
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
  /// Refuses keywords that were not looked at, unless they say nothing about values of the types.
  static void end(Fields& f, const Json& json, const std::vector<std::string>& types) {
    const auto has = [&](std::string_view type) {
      return std::ranges::any_of(types, [&](const std::string& one) {
        return one == type || (type == "number" && one == "integer");
      });
    };
    for (const auto& [name, value] : json.items()) {
      const auto at = std::ranges::find(kOfTypes, std::string_view(name),
                                        [](const auto& pair) { return pair.first; });
      if (is_annotation(name) || (at != kOfTypes.end() && !has(at->second))) {
        f.ignore({name.c_str()});
      }
    }
    f.end();
  }

  Id schema(const Json& json, const std::string& place) {
    const std::string where = shortened(place);
    if (json == true) return kAny;
    if (level_ == kLevels) refuse(where, "{}: schemas nest deeper than {}", where, kLevels);
    ++level_;
    const Id id = inner_schema(json, where);
    --level_;
    return id;
  }

  /// Whether a schema says nothing but this.
  static bool stands_alone(const Json& json, std::string_view keyword) {
    for (const auto& [name, value] : json.items()) {
      if (name != keyword && !value.is_null() && !is_annotation(name)) return false;
    }
    return true;
  }

  Id inner_schema(const Json& json, const std::string& where) {
    Fields f(json, where + ".");
    const auto ref = f.text("$ref");
    if (ref && stands_alone(json, "$ref")) return reference(*ref, f.full("$ref"));
    const Json* all = f.find("allOf");
    if (ref || (all != nullptr && all->is_array())) {
      Json merged = Json::object();
      merge(json, where, merged);
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
    end(f, json, types);
    return choice(ids, where);
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
      merge(all[i], shortened(one), merged);
      merge(base, where, merged);
      ids.push_back(schema(merged_.emplace_back(std::move(merged)), one));
    }
    if (name == "oneOf") {
      if (ids.size() > kChoices) refuse(place, "{}: more than {} choices", place, kChoices);
      exclusive_.emplace_back(ids, place);
    }
    return choice(ids, where);
  }

  /// Adds a schema's keywords, and those of its allOf and $ref, to those of `out`.
  void merge(const Json& json, const std::string& where, Json& out) {
    if (json == true) return;
    // References may double it with every level.
    if (++merges_ > kMerges) {
      refuse(where, "{}: more than {} schemas are said together", where, kMerges);
    }
    Fields f(json, where + ".");
    const Json* all = f.find("allOf");
    const auto ref = f.text("$ref");
    for (std::size_t i = 0; all != nullptr && i < all->size(); ++i) {
      merge((*all)[i], shortened(fmt::format("{}[{}]", f.full("allOf"), i)), out);
    }
    if (ref) merge(*target_of(*ref, f.full("$ref")).first, shortened(f.full("$ref")), out);
    Json own = Json::object();
    for (const auto& [name, value] : json.items()) {
      if (name != "allOf" && name != "$ref" && !is_annotation(name)) own[name] = value;
    }
    merged_bytes_ += dump(own).size();
    if (merged_bytes_ > kMergedBytes) {
      refuse(where, "{}: more than {} MB of schemas are said together", where, kMergedBytes >> 20);
    }
    // Which properties are further ones each schema says of its own.
    const auto closed = [](const Json& one) {
      return one.contains("additionalProperties") && one["additionalProperties"] != true;
    };
    const auto names = [](const Json& one) {
      std::set<std::string> keys;
      const Json properties = one.value("properties", Json::object());
      for (const auto& [name, value] : properties.items()) keys.insert(name);
      return keys;
    };
    const auto excludes = [&](const Json& one, const Json& other) {  // a property of the other
      return closed(one) && (closed(other) ? names(one) != names(other)
                                           : !std::ranges::includes(names(one), names(other)));
    };
    if (!own.empty() && !out.empty() && (excludes(own, out) || excludes(out, own))) {
      const std::string name = f.full("additionalProperties");
      throw ApiError(
          400, "unsupported_parameter",
          fmt::format("{}: within allOf it must be true, as others add properties", name), name);
    }
    for (auto& [name, value] : own.items()) {
      if (!out.contains(name)) {
        out[name] = value;
      } else if (name == "properties" && value.is_object()) {
        for (auto& [key, one] : value.items()) {
          if (out[name].contains(key) && out[name][key] != one) {
            out[name][key] = {{"allOf", Json::array({out[name][key], one})}};
          } else {
            out[name][key] = one;
          }
        }
      } else if (name == "required" && value.is_array() && out[name].is_array()) {
        for (const Json& one : value) {
          if (std::ranges::find(out[name], one) == out[name].end()) out[name].push_back(one);
        }
      } else if (out[name] != value) {
        throw ApiError(400, "unsupported_parameter",
                       fmt::format("{}: schemas of allOf that say it differently are not supported",
                                   f.full(name)),
                       f.full(name));
      }
    }
  }

  /// Without a type, those of the values that its keywords hold: not all values that are valid.
  std::vector<std::string> types_of(Fields& f, const Json& json) {
    std::vector<std::string> out = types_said(f, json);
    if (f.flag("nullable", false) && !out.empty() && std::ranges::count(out, "null") == 0) {
      out.emplace_back("null");
    }
    return out;
  }
  std::vector<std::string> types_said(Fields& f, const Json& json) {
    const Json* type = f.find("type");
    if (type == nullptr) {
      std::vector<std::string> out;
      for (const auto& [name, of] : kOfTypes) {
        const auto at = json.find(name);
        const bool says = at != json.end() && !at->is_null() &&
                          (name != "format" || known_format(*at) != nullptr);
        if (says && std::ranges::count(out, of) == 0) out.emplace_back(of);
      }
      return out;
    }
    const Json all = type->is_array() ? *type : Json::array({*type});
    std::vector<std::string> out;
    for (const Json& one : all) {
      if (!one.is_string() || std::ranges::find(kTypes, one.get<std::string>()) == kTypes.end()) {
        refuse(f.full("type"), "{}: {} is unknown; known: {}", f.full("type"), shown(one),
               fmt::join(kTypes, ", "));
      }
      if (std::ranges::count(out, one.get<std::string>()) == 0) out.push_back(one);
    }
    if (out.empty()) refuse(f.full("type"), "{}: no type is given", f.full("type"));
    return out;
  }

  static const Format* known_format(const Json& name) {
    if (!name.is_string()) return nullptr;
    const auto at = std::ranges::find(
        kFormats, std::string_view(name.get_ref<const std::string&>()), &Format::name);
    return at == kFormats.end() ? nullptr : &*at;
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
    return add(std::move(out));
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
      const Node& node = others.node(others.schema(json, where));
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
    const Format* format = format_name ? known_format(Json(*format_name)) : nullptr;
    if (format != nullptr) all.emplace_back(format->expression, true);
    if (const auto expression = f.text("pattern")) {
      hold("pattern", [&] {
        // zod says a format in a pattern with assertions, too.
        if (format != nullptr && expression->find("(?") != std::string::npos) return;
        all.emplace_back(*expression, true);
      });
    }
    if (all.empty()) {
      if (!least && !most) return kString;
      return add({json_.string(low, high), "s"});
    }
    Items characters;
    hold(field, [&] {
      if (all.size() > 1 || !all[0].has_length(low, high)) {
        if (least || most) all.push_back(Expression::of_length(low, high));
      }
      characters =
          matching(b_, all, [&](const icu::UnicodeSet& set) { return json_.character(set); });
    });
    return add({json_.quoted(characters), "s"});
  }

  /// A bound; `excluded`: the number itself is outside.
  struct Bound {
    double number = 0;
    std::optional<std::int64_t> whole = {};  ///< exactly, where it is one
    bool excluded = false;
  };
  static std::optional<Bound> bound(Fields& f, const char* name, const char* exclusive, bool low) {
    std::optional<Bound> out;
    for (const bool excluded : {false, true}) {
      const char* key = excluded ? exclusive : name;
      const Json* value = f.find(key);
      if (value == nullptr) continue;
      if (!value->is_number())
        refuse(f.full(key), "{}: {} is not a number", f.full(key), shown(*value));
      const double number = value->get<double>();
      const bool tighter = !out || (low ? number >= out->number : number <= out->number);
      if (!tighter) continue;
      out = Bound{number, {}, excluded};
      const bool fits = std::abs(number) < static_cast<double>(kLargest);
      if (value->is_number_integer() && fits) out->whole = value->get<std::int64_t>();
    }
    return out;
  }

  /// Whether a constant lies between the bounds, and is a multiple.
  static bool is_within(Fields& f, const Json& value) {
    const double number = value.get<double>();
    const auto low = bound(f, "minimum", "exclusiveMinimum", true);
    const auto high = bound(f, "maximum", "exclusiveMaximum", false);
    if (low && (number < low->number || (low->excluded && number == low->number))) return false;
    if (high && (number > high->number || (high->excluded && number == high->number))) return false;
    const Json* step = f.find("multipleOf");
    const double times = step == nullptr ? 0 : number / step->get<double>();
    return std::abs(times - std::round(times)) < 1e-9;
  }

  /// multipleOf, as a number of units of a last decimal. False: there is none.
  static bool add_step(Fields& f, bool integer, JsonRules::Numbers& out) {
    const Json* value = f.find("multipleOf");
    if (value == nullptr || (integer && *value == 1)) return false;
    const std::string name = f.full("multipleOf");
    double step = value->is_number() ? value->get<double>() : 0;
    while (step > 0 && step != std::trunc(step) && out.decimals < kDecimals) {
      ++out.decimals;
      step = std::strtod(fmt::format("{}e{}", value->get<double>(), out.decimals).c_str(), nullptr);
    }
    if (!(step >= 1 && step < 1e15) || step != std::trunc(step)) {
      refuse(name, "{}: {} is not a number from 1e-15 to 1e15", name, shown(*value));
    }
    out.step = static_cast<std::uint64_t>(step);
    if (!integer) return true;
    // Of the integers: multiples of 0.5 are all, of 1.5 those of 3.
    std::uint64_t unit = 1;
    for (; out.decimals > 0; --out.decimals) unit *= 10;
    out.step /= std::gcd(out.step, unit);
    return out.step > 1;
  }

  Id number(Fields& f, bool integer, const std::string& where) {
    const auto low = bound(f, "minimum", "exclusiveMinimum", true);
    const auto high = bound(f, "maximum", "exclusiveMaximum", false);
    JsonRules::Numbers out;
    const bool stepped = add_step(f, integer, out);
    if (!low && !high && !stepped) return integer ? kInteger : kNumber;
    // As many decimals as a double of the larger bound has; six where a side has none.
    const double largest =
        std::max(low ? std::abs(low->number) : 1e9, high ? std::abs(high->number) : 1e9);
    double scale = 1;
    for (std::uint8_t i = 0; i < out.decimals; ++i) scale *= 10;
    while (!integer && !stepped && out.decimals < kDecimals && largest * scale * 10 < 9e15) {
      scale *= 10;
      ++out.decimals;
    }
    const auto scaled = [&](const Bound& bound, bool up) {
      const double rounded = std::round(bound.number * scale);
      if (std::abs(rounded) >= static_cast<double>(kLargest)) {
        return rounded < 0 ? -kLargest : kLargest;
      }
      // Its decimal text is the double that is nearest to it, so that this says what a reader sees.
      std::int64_t at = static_cast<std::int64_t>(rounded);
      if (scale == 1 && bound.whole) return *bound.whole + (!bound.excluded ? 0 : up ? 1 : -1);
      const double seen = static_cast<double>(at) / scale;
      const bool outside = up ? seen < bound.number : seen > bound.number;
      if (outside || (bound.excluded && seen == bound.number)) at += up ? 1 : -1;
      return at;
    };
    out.low = low ? scaled(*low, true) : -kLargest;
    out.high = high ? scaled(*high, false) : kLargest;
    const auto step = static_cast<std::int64_t>(out.step);
    const std::int64_t first = out.low / step + (out.low % step > 0 ? 1 : 0);
    if (out.low > out.high || first > out.high / step || first * step > out.high) {
      refuse(where, "{}: no number of at most 18 digits lies between its bounds", where);
    }
    return add({json_.numbers(out), "n"});
  }

  Id object(Fields& f) {
    const Json* properties = f.find("properties");
    const Json* required = f.find("required");
    f.only("propertyNames", Json{{"type", "string"}});
    const std::string all = f.full("properties"), needed = f.full("required");
    if (properties != nullptr && !properties->is_object()) {
      refuse(all, "{}: {} is not an object", all, shown(*properties));
    }
    if (required != nullptr && !required->is_array()) {
      refuse(needed, "{}: {} is not an array of names", needed, shown(*required));
    }
    std::vector<std::pair<std::string, Id>> named;
    std::map<std::string_view, bool> must;
    for (const Json& name : required != nullptr ? *required : Json::array()) {
      if (!name.is_string())
        refuse(needed, "{}: {} is not the name of a property", needed, shown(name));
    }
    if (properties != nullptr) {
      for (const auto& [name, value] : properties->items()) {
        named.emplace_back(name, schema(value, all + "." + to_utf8(name)));
      }
    }
    const Json* further = f.find("additionalProperties");
    const char* further_name =
        further != nullptr ? "additionalProperties" : "unevaluatedProperties";
    if (further == nullptr) further = f.find(further_name);
    f.ignore({"unevaluatedProperties"});
    const bool closed = further != nullptr && *further == false;
    const bool open = further != nullptr ? !closed : properties == nullptr;
    const Id others = further != nullptr && open ? schema(*further, f.full(further_name)) : kAny;
    std::map<std::string, std::size_t> places;
    for (std::size_t i = 0; i < named.size(); ++i) places[named[i].first] = i;
    std::vector<bool> is_required(named.size());
    for (const Json& name : required != nullptr ? *required : Json::array()) {
      const auto [at, fresh] = places.try_emplace(name.get<std::string>(), named.size());
      if (fresh && closed) {
        refuse(needed, "{}: {} is not the name of a property, and no others may be", needed,
               shown(name));
      }
      if (fresh) {
        named.emplace_back(name.get<std::string>(), others);
        is_required.push_back(true);
      }
      is_required[at->second] = true;
    }
    if (std::ranges::count(is_required, false) > static_cast<std::ptrdiff_t>(kChoices)) {
      refuse(all, "{}: more than {} that are not required", all, kChoices);
    }
    Node out{.types = "o"};
    std::vector<JsonRules::Member> members;
    std::vector<std::u32string> names;
    for (std::size_t i = 0; i < named.size(); ++i) {
      const auto& [name, value] = named[i];
      const std::string key = dump(Json(name));
      members.push_back({b_.text(key), node(value).items, is_required[i]});
      if (is_required[i]) out.required.emplace_back(key, value);
      std::u32string& codes = names.emplace_back();
      for (std::size_t at = 0; at < name.size();) {
        const Utf8Char c = next_utf8(name, at);
        codes += c.code;
        at += c.length;
      }
    }
    std::optional<JsonRules::Member> more;
    if (open) {
      more = {names.empty() ? json_.any_string : json_.other_string(std::move(names)),
              node(others).items};
    }
    out.items = json_.object(members, more);
    return add(std::move(out));
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
            node(schema((*first)[i], fmt::format("{}[{}]", f.full(tuple), i))).items);
      }
    }
    const Json* others = f.find(further);
    if (others == nullptr) others = f.find("unevaluatedItems");
    f.ignore({"additionalItems", "unevaluatedItems"});
    if (others != nullptr && *others == false) {
      limit = static_cast<std::uint32_t>(first_items.size());
    } else if (others != nullptr) {
      rest = node(schema(*others, f.full(further))).items;
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
    return add({json_.array(first_items, rest, least, limit), "a"});
  }

  /// The node of a schema that is named by its place. While it is being read, a choice that has its
  /// choices later.
  Id reference(const std::string& ref, const std::string& where) {
    if (const auto at = known_.find(ref); at != known_.end()) {
      Reference& known = at->second;
      if (known.id) return *known.id;
      if (!known.later) {
        known.rule = b_.declare();
        known.later = add({.items = b_.rule(known.rule), .is_choice = true});
      }
      return *known.later;
    }
    const auto [target, place] = target_of(ref, where);
    known_[ref] = {};
    const Id id = schema(*target, place);
    Reference& known = known_[ref];
    known.id = id;
    if (known.later) {
      node(*known.later).choices = {id};
      b_.define(known.rule, {node(id).items});
      std::set<char> letters;
      for (const Id one : parts(id)) letters.insert(node(one).types.begin(), node(one).types.end());
      node(*known.later).types.assign(letters.begin(), letters.end());
    }
    return id;
  }
  /// The schema that a reference names, and its place for messages.
  std::pair<const Json*, std::string> target_of(const std::string& ref, const std::string& where) {
    const Json* target = &root_;
    std::string place = where_, rest = ref;
    if (rest.starts_with("#")) {
      for (rest.erase(0, 1); target != nullptr && rest.starts_with("/");) {
        std::string name = unescaped(rest.substr(1, rest.find('/', 1) - 1));
        rest.erase(0, std::min(rest.find('/', 1), rest.size()));
        // A fragment of a URI: what it may not hold is written by its bytes.
        if (member(*target, name) == nullptr) name = percent_decoded(name);
        target = member(*target, name);
        place += "." + to_utf8(name);
      }
    }
    if (!rest.empty() || target == nullptr) {
      refuse(where, "{}: {} is not the place of a schema that is there, such as \"#/$defs/NAME\"",
             where, shown(Json(ref)));
    }
    return {target, place};
  }
  static const Json* member(const Json& of, const std::string& name) {
    if (of.is_object()) {
      const auto at = of.find(name);
      return at == of.end() ? nullptr : &*at;
    }
    const bool index = of.is_array() && !name.empty() && name.size() < 6 &&
                       name.find_first_not_of("0123456789") == std::string::npos;
    if (!index || std::stoul(name) >= of.size()) return nullptr;
    return &of[std::stoul(name)];
  }
  static std::string percent_decoded(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      unsigned byte = 0;
      const char* const at = text.data() + i + 1;
      const bool escape = text[i] == '%' && i + 2 < text.size() &&
                          std::from_chars(at, at + 2, byte, 16).ptr == at + 2;
      out += escape ? static_cast<char>(byte) : text[i];
      i += escape ? 2 : 0;
    }
    return out;
  }
  /// Of a part of a JSON pointer (RFC 6901).
  static std::string unescaped(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const bool escape = text[i] == '~' && i + 1 < text.size();
      out += !escape ? text[i] : text[++i] == '1' ? '/' : '~';
    }
    return out;
  }

  struct Reference {
    std::optional<Id> id;           ///< nothing: being read
    std::optional<Id> later;        ///< what stands for it then, where it is used
    GrammarBuilder::Rule rule = 0;  ///< of `later`
  };

  GrammarBuilder& b_;
  JsonRules& json_;
  const Json& root_;
  const std::string where_;
  std::vector<Node> nodes_;
  std::deque<Json> merged_;  ///< of allOf; references name places in the root alone
  std::size_t level_ = 0, merges_ = 0, merged_bytes_ = 0;
  std::size_t comparisons_ = 0;
  std::map<std::string, Reference> known_;                          ///< by $ref
  std::vector<std::pair<std::vector<Id>, std::string>> exclusive_;  ///< choices of which one holds
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
