#include "serve/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "ballast/error.h"
#include "serve/api_error.h"
#include "serve/fields.h"

namespace ballast::serve {
namespace {

using Id = JsonGrammar::Id;
using Kind = JsonGrammar::Kind;

constexpr std::size_t kItems = 1 << 16, kLevels = 256, kLength = 1 << 30;
/// Of bounds of integers and scaled numbers: below 10^18, so that ten times as much is a uint64.
constexpr std::int64_t kLargest = 999'999'999'999'999'999;
constexpr std::uint8_t kDecimals = 15;
constexpr std::size_t kComparisons = 20'000'000, kMerges = 128;
/// Of an anyOf, and of properties that may be left out: the reader follows all at once.
constexpr std::size_t kChoices = 128;
constexpr std::array kTypes = {"object", "array", "string", "number", "integer", "boolean", "null"};
/// Keywords that say nothing about which texts are valid.
constexpr std::array kAnnotations = {"title",    "description", "default",
                                     "examples", "$comment",    "deprecated",
                                     "readOnly", "writeOnly",   "discriminator"};

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
constexpr std::array<Format, 10> kFormats = {{
    {"date", "^" BALLAST_DATE "$"},
    {"time", "^" BALLAST_TIME "$"},
    {"date-time", "^" BALLAST_DATE "T" BALLAST_TIME "$"},
    {"duration", "^P(\\d{1,3}D(T\\d{1,3}H)?|T\\d{1,3}[HMS])$"},
    {"uuid", "^[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"},
    {"email", "^[A-Za-z0-9]+([._+-][A-Za-z0-9]+)*@" BALLAST_HOST "$"},
    {"hostname", "^" BALLAST_HOST "$"},
    {"uri",
     "^https?://" BALLAST_HOST "(:\\d{1,4})?(/[A-Za-z0-9._~-]+)*/?(\\?[A-Za-z0-9._~=&-]*)?$"},
    {"ipv4", "^(" BALLAST_BYTE "\\.){3}" BALLAST_BYTE "$"},
    {"ipv6", "^([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$"},
}};
#undef BALLAST_DATE
#undef BALLAST_TIME
#undef BALLAST_HOST
#undef BALLAST_BYTE

/// A schema and those within it, as nodes of a grammar.
class Compiler {
 public:
  Compiler(JsonGrammar& grammar, const Json& root, std::string where)
      : grammar_(grammar), root_(root), where_(std::move(where)) {}

  /// The node of the schema, which is of objects.
  Id compile() {
    const Id root = reference("#", where_);
    if (!grammar_.complete()) refuse(where_, "{}: a $ref refers to itself alone", where_);
    for (Id id : parts(root)) {
      if (node(id).kind != Kind::object) {
        refuse(where_, "{}: the root of a schema must be of the type \"object\"", where_);
      }
    }
    if (node(root).height > JsonGrammar::kDepth) {
      refuse(where_, "{}: all its texts nest deeper than {}", where_, JsonGrammar::kDepth);
    }
    for (const auto& [ids, where] : exclusive_) check_exclusive(ids, where);
    return root;
  }

 private:
  JsonGrammar::Node& node(Id id) { return grammar_.nodes[id]; }
  Id add(JsonGrammar::Node node) { return grammar_.add(std::move(node)); }

  /// What a node chooses from, itself if it does not. Without what is not complete yet.
  std::vector<Id> parts(Id id) {
    std::vector<Id> out, open{id};
    std::set<Id> seen;
    while (!open.empty()) {
      const Id one = open.back();
      open.pop_back();
      if (!seen.insert(one).second) continue;
      const JsonGrammar::Node& n = node(one);
      if (n.kind != Kind::choice || n.choices.empty()) out.push_back(one);
      if (n.kind == Kind::choice) open.insert(open.end(), n.choices.begin(), n.choices.end());
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
    JsonGrammar::Node out{.kind = Kind::choice};
    out.choices.assign(all.begin(), all.end());
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
  bool disjoint_parts(const JsonGrammar::Node& x, const JsonGrammar::Node& y, bool within) {
    count_comparisons(1);
    const std::string both = types(x), others = types(y);
    if (both.find_first_of(others) == std::string::npos) return true;
    if (x.kind == Kind::literal && y.kind == Kind::literal) {
      count_comparisons(x.literals.size() + y.literals.size());
      std::vector<std::string> common;
      std::ranges::set_intersection(x.literals, y.literals, std::back_inserter(common));
      return common.empty();
    }
    if (within || x.kind != Kind::object || y.kind != Kind::object) return false;
    for (std::size_t i = 0; i < x.properties.size(); ++i) {
      count_comparisons(y.properties.size());
      for (std::size_t k = 0; k < y.properties.size(); ++k) {
        if (x.required[i] && y.required[k] && x.properties[i].key == y.properties[k].key &&
            disjoint(x.properties[i].value, y.properties[k].value, true)) {
          return true;
        }
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
  /// A letter for each type of a node's values.
  static std::string types(const JsonGrammar::Node& n) {
    std::string out;
    for (const auto& [letter, bytes] :
         {std::pair('o', "{"), std::pair('a', "["), std::pair('s', "\""),
          std::pair('n', "-0123456789"), std::pair('b', "tf"), std::pair('0', "n")}) {
      for (const char* c = bytes; *c != 0; ++c) {
        if (n.first[static_cast<unsigned char>(*c)]) {
          out += letter;
          break;
        }
      }
    }
    return out;
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
  static void only_annotations(Fields& f, std::initializer_list<const char*> others) {
    f.ignore(others);
    for (const char* name : kAnnotations) f.ignore({name});
    f.end();
  }

  Id schema(const Json& json, const std::string& place) {
    const std::string where = shortened(place);
    if (json == true) return JsonGrammar::kAny;
    if (level_ == kLevels) refuse(where, "{}: schemas nest deeper than {}", where, kLevels);
    ++level_;
    const Id id = inner_schema(json, where);
    --level_;
    return id;
  }

  Id inner_schema(const Json& json, const std::string& where) {
    Fields f(json, where + ".");
    const bool is_root = &json == &root_;
    if (is_root) f.ignore({"$schema", "$id", "$defs", "definitions"});
    if (const auto ref = f.text("$ref")) {
      only_annotations(f, {});
      return reference(*ref, f.full("$ref"));
    }
    if (const Json* all = f.find("allOf"); all != nullptr && all->is_array()) {
      Json merged = Json::object();
      merge(json, where, merged);
      return schema(merged_.emplace_back(std::move(merged)), where);
    }
    for (const char* name : {"anyOf", "oneOf", "allOf"}) {
      if (const Json* all = f.find(name)) return combined(f, name, *all, where);
    }
    const std::vector<std::string> types = types_of(f);
    const Json* one = f.find("const");
    const Json* several = f.find("enum");
    if (json.is_object() && json.contains("const") && json["const"].is_null()) one = &json["const"];
    if (one != nullptr || several != nullptr) {
      return literals(f, types, one, several);
    }
    std::vector<Id> ids;
    for (const std::string& type : types) ids.push_back(of_type(f, type, where));
    if (types.empty()) ids.push_back(JsonGrammar::kAny);
    only_annotations(f, {"properties", "required", "additionalProperties", "items", "prefixItems",
                         "minItems", "maxItems", "pattern"});
    return choice(ids, where);
  }

  Id combined(Fields& f, const std::string& name, const Json& all, const std::string& where) {
    only_annotations(f, {});
    const std::string place = f.full(name);
    if (!all.is_array() || all.empty()) {
      refuse(place, "{}: {} is not an array of schemas", place, shown(all));
    }
    std::vector<Id> ids;
    for (std::size_t i = 0; i < all.size(); ++i) {
      ids.push_back(schema(all[i], fmt::format("{}[{}]", place, i)));
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
    if (++merges_ > kMerges) refuse(where, "{}: more than {} schemas within allOf", where, kMerges);
    Fields f(json, where + ".");
    const Json* all = f.find("allOf");
    const auto ref = f.text("$ref");
    for (std::size_t i = 0; all != nullptr && i < all->size(); ++i) {
      merge((*all)[i], shortened(fmt::format("{}[{}]", f.full("allOf"), i)), out);
    }
    if (ref) merge(*target_of(*ref, f.full("$ref")).first, shortened(f.full("$ref")), out);
    Json own = Json::object();
    for (const auto& [name, value] : json.items()) {
      const bool said = name == "allOf" || name == "$ref" || name == "$defs" ||
                        name == "definitions" || name == "$schema" || name == "$id";
      if (!said && std::ranges::find(kAnnotations, name) == kAnnotations.end()) own[name] = value;
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
    const bool both = !own.empty() && !out.empty();
    if (both && (closed(own) || closed(out)) && names(own) != names(out)) {
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

  std::vector<std::string> types_of(Fields& f) {
    const Json* type = f.find("type");
    if (type == nullptr) {
      if (f.find("properties") != nullptr) return {"object"};
      if (f.find("items") != nullptr || f.find("prefixItems") != nullptr) return {"array"};
      if (f.find("pattern") != nullptr) return {"string"};
      return {};
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

  Id literals(Fields& f, const std::vector<std::string>& types, const Json* one,
              const Json* several) {
    only_annotations(f, {});
    if (several != nullptr && (!several->is_array() || several->empty())) {
      refuse(f.full("enum"), "{}: {} is not an array of values", f.full("enum"), shown(*several));
    }
    JsonGrammar::Node out{.kind = Kind::literal};
    const Json values = one == nullptr ? *several : Json::array({*one});
    for (const Json& value : values) {
      const bool typed = types.empty() || std::ranges::any_of(types, [&](const std::string& type) {
                           return is_of(value, type);
                         });
      const bool listed = one == nullptr || several == nullptr ||
                          std::ranges::find(*several, value) != several->end();
      if (typed && listed) out.literals.push_back(dump(value));
    }
    if (out.literals.empty()) {
      const std::string name = f.full(one == nullptr ? "enum" : "const");
      refuse(name, "{}: no value is of the type, or among those of enum", name);
    }
    std::ranges::sort(out.literals);
    out.literals.erase(std::unique(out.literals.begin(), out.literals.end()), out.literals.end());
    return add(std::move(out));
  }

  Id of_type(Fields& f, const std::string& type, const std::string& where) {
    if (type == "object") return object(f);
    if (type == "array") return array(f);
    if (type == "string") return string(f);
    if (type == "number" || type == "integer") return number(f, type == "integer", where);
    return type == "boolean" ? JsonGrammar::kBoolean : JsonGrammar::kNull;
  }

  Id string(Fields& f) {
    const auto least = f.count("minLength", 0, kLength), most = f.count("maxLength", 0, kLength);
    JsonGrammar::Node out{.kind = Kind::string};
    out.min_length = least.value_or(0);
    out.max_length = most.value_or(JsonGrammar::kNoLimit);
    if (out.min_length > out.max_length) {
      refuse(f.full("minLength"), "{}: {} is more than maxLength, {}", f.full("minLength"),
             out.min_length, out.max_length);
    }
    auto expression = f.text("pattern");
    const char* field = "pattern";
    if (const auto format = f.text("format")) {
      // Its pattern says the same in other words (zod).
      const auto known = std::ranges::find(kFormats, std::string_view(*format), &Format::name);
      if (known == kFormats.end()) {
        std::vector<std::string_view> names;
        for (const Format& one : kFormats) names.push_back(one.name);
        throw ApiError(400, "unsupported_parameter",
                       fmt::format("{}: {} is not supported; known: {}", f.full("format"),
                                   shown(Json(*format)), fmt::join(names, ", ")),
                       f.full("format"));
      }
      expression = known->expression;
      field = "format";
    }
    if (!expression) return least || most ? add(std::move(out)) : JsonGrammar::kString;
    try {
      out.pattern = std::make_shared<const Pattern>(*expression, out.min_length, out.max_length);
    } catch (const Error& error) {
      throw ApiError(400, "unsupported_parameter",
                     fmt::format("{}: {}", f.full(field), error.what()), f.full(field));
    }
    out.min_length = 0;
    out.max_length = JsonGrammar::kNoLimit;
    return add(std::move(out));
  }

  /// A bound; `excluded`: the number itself is outside.
  struct Bound {
    double number = 0;
    std::optional<std::int64_t> whole = {};  ///< exactly, where it is one
    bool excluded = false;
  };
  std::optional<Bound> bound(Fields& f, const char* name, const char* exclusive, bool low) {
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

  /// multipleOf, as a number of units of a last decimal. False: there is none.
  static bool add_step(Fields& f, bool integer, JsonGrammar::Node& out) {
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
    JsonGrammar::Node out{.kind = integer ? Kind::integer : Kind::number, .bounded = true};
    const bool stepped = add_step(f, integer, out);
    if (!low && !high && !stepped) return integer ? JsonGrammar::kInteger : JsonGrammar::kNumber;
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
    return add(std::move(out));
  }

  Id object(Fields& f) {
    JsonGrammar::Node out{.kind = Kind::object};
    const Json* properties = f.find("properties");
    const Json* required = f.find("required");
    f.only("propertyNames", Json{{"type", "string"}});
    const std::string all = f.full("properties");
    if (properties != nullptr && !properties->is_object()) {
      refuse(all, "{}: {} is not an object", all, shown(*properties));
    }
    if (properties != nullptr) {
      for (const auto& [name, value] : properties->items()) {
        out.properties.push_back({dump(Json(name)), schema(value, all + "." + to_utf8(name))});
      }
    }
    add_further(f, out);
    out.required.resize(out.properties.size());
    const std::string needed = f.full("required");
    if (required != nullptr && !required->is_array()) {
      refuse(needed, "{}: {} is not an array of names", needed, shown(*required));
    }
    std::map<std::string_view, std::size_t> places;
    for (std::size_t i = 0; i < out.properties.size(); ++i) places[out.properties[i].key] = i;
    for (const Json& name : required != nullptr ? *required : Json::array()) {
      const auto at = name.is_string() ? places.find(dump(name)) : places.end();
      if (at == places.end()) {
        refuse(needed, "{}: {} is not the name of a property", needed, shown(name));
      }
      out.required[at->second] = true;
    }
    if (std::ranges::count(out.required, false) > static_cast<std::ptrdiff_t>(kChoices)) {
      refuse(all, "{}: more than {} that are not required", all, kChoices);
    }
    return add(std::move(out));
  }

  /// What an object may have besides its properties.
  void add_further(Fields& f, JsonGrammar::Node& out) {
    const Json* further = f.find("additionalProperties");
    const bool named = f.find("properties") != nullptr;
    out.open = further != nullptr ? *further != false : !named;
    if (!out.open) return;
    out.further =
        further == nullptr ? JsonGrammar::kAny : schema(*further, f.full("additionalProperties"));
    if (out.properties.empty()) return;
    JsonGrammar::Node key{.kind = Kind::string};
    for (const JsonGrammar::Property& property : out.properties) {
      key.literals.push_back(property.key.substr(1, property.key.size() - 2));
    }
    std::ranges::sort(key.literals);
    out.further_key = add(std::move(key));
  }

  Id array(Fields& f) {
    JsonGrammar::Node out{.kind = Kind::array};
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
        out.first_items.push_back(schema((*first)[i], fmt::format("{}[{}]", f.full(tuple), i)));
      }
    }
    if (const Json* rest = f.find(further)) {
      if (*rest == false) {
        out.max_items = out.first_items.size();
      } else {
        out.items = schema(*rest, f.full(further));
      }
    }
    f.only("uniqueItems", false);
    out.min_items = f.count("minItems", 0, kItems).value_or(0);
    if (const auto most = f.count("maxItems", 0, kItems)) {
      out.max_items = std::min<std::size_t>(out.max_items, *most);
    }
    if (out.min_items > out.max_items) {
      refuse(f.full("minItems"), "{}: {} is more than maxItems, {}", f.full("minItems"),
             out.min_items, out.max_items);
    }
    return add(std::move(out));
  }

  /// The node of a schema that is named by its place. While it is being read, a choice that has its
  /// choices later.
  Id reference(const std::string& ref, const std::string& where) {
    if (const auto at = known_.find(ref); at != known_.end()) {
      Reference& known = at->second;
      if (known.id) return *known.id;
      if (!known.later) known.later = add({.kind = Kind::choice});
      return *known.later;
    }
    const auto [target, place] = target_of(ref, where);
    known_[ref] = {};
    const Id id = schema(*target, place);
    Reference& known = known_[ref];
    known.id = id;
    if (known.later) node(*known.later).choices = {id};
    return id;
  }
  /// The schema that a reference names, and its place for messages.
  std::pair<const Json*, std::string> target_of(const std::string& ref, const std::string& where) {
    const Json* target = &root_;
    std::string place = where_, rest = ref;
    if (rest.starts_with("#")) {
      for (rest.erase(0, 1); target != nullptr && rest.starts_with("/");) {
        const std::string name = unescaped(rest.substr(1, rest.find('/', 1) - 1));
        rest.erase(0, std::min(rest.find('/', 1), rest.size()));
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
    std::optional<Id> id;     ///< nothing: being read
    std::optional<Id> later;  ///< what stands for it then, where it is used
  };

  JsonGrammar& grammar_;
  const Json& root_;
  const std::string where_;
  std::deque<Json> merged_;  ///< of allOf; references name places in the root alone
  std::size_t level_ = 0, merges_ = 0;
  std::size_t comparisons_ = 0;
  std::map<std::string, Reference> known_;                          ///< by $ref
  std::vector<std::pair<std::vector<Id>, std::string>> exclusive_;  ///< choices of which one holds
};

}  // namespace

std::shared_ptr<const JsonGrammar> compile_schema(const Json& schema, const std::string& where) {
  auto out = std::make_shared<JsonGrammar>();
  out->root = Compiler(*out, schema, where).compile();
  return out;
}

std::shared_ptr<const JsonGrammar> compile_calls(const std::vector<CallSchema>& calls,
                                                 const std::string& arguments) {
  auto out = std::make_shared<JsonGrammar>();
  JsonGrammar::Node any{.kind = Kind::choice};
  if (calls.size() > kChoices) {
    refuse("tools", "tools: {} functions of which one must be called; at most {} are supported",
           calls.size(), kChoices);
  }
  for (const CallSchema& call : calls) {
    const Id parameters = call.parameters.is_null()
                              ? JsonGrammar::kObject
                              : Compiler(*out, call.parameters, call.where).compile();
    const Id name = out->add({.kind = Kind::literal, .literals = {dump(Json(call.name))}});
    JsonGrammar::Node node{.kind = Kind::object};
    node.properties = {{dump(Json("name")), name}, {dump(Json(arguments)), parameters}};
    node.required = {true, true};
    any.choices.push_back(out->add(std::move(node)));
  }
  out->root = out->add(std::move(any));
  if (out->nodes[out->root].height > JsonGrammar::kDepth) {
    refuse("tools", "tools: all calls nest deeper than {}", JsonGrammar::kDepth);
  }
  return out;
}

}  // namespace ballast::serve
