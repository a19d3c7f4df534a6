#include "serve/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "serve/api_error.h"
#include "serve/fields.h"

namespace ballast::serve {
namespace {

using Id = JsonGrammar::Id;
using Kind = JsonGrammar::Kind;

constexpr std::size_t kDepth = 64, kItems = 1 << 16, kLevels = 256;
/// Of an anyOf, and of properties that may be left out: the reader follows all at once.
constexpr std::size_t kChoices = 128;
constexpr std::array kTypes = {"object", "array", "string", "number", "integer", "boolean", "null"};
/// Keywords that say nothing about which texts are valid.
constexpr std::array kAnnotations = {"title",    "description", "default",  "examples",
                                     "$comment", "deprecated",  "readOnly", "writeOnly"};

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

class Compiler {
 public:
  Compiler(const Json& root, std::string where) : root_(root), where_(std::move(where)) {}

  std::shared_ptr<const JsonGrammar> compile() {
    grammar_->root = schema(root_, where_);
    const std::vector<Id> all = choices(grammar_->root);
    if (std::ranges::any_of(all, [&](Id id) { return node(id).kind != Kind::object; })) {
      refuse(where_, "{}: the root of a schema must be of the type \"object\"", where_);
    }
    return grammar_;
  }

 private:
  JsonGrammar::Node& node(Id id) { return grammar_->nodes[id]; }
  /// Parts come before what they are in.
  Id add(JsonGrammar::Node node, const std::string& where) {
    std::size_t depth = node.kind == Kind::array ? depths_[node.items] : 0;
    for (const JsonGrammar::Property& p : node.properties)
      depth = std::max(depth, depths_[p.value]);
    for (Id one : node.choices) depth = std::max(depth, depths_[one]);
    if (node.kind == Kind::object || node.kind == Kind::array) ++depth;
    if (depth > kDepth) refuse(where, "{}: its texts nest deeper than {}", where, kDepth);
    depths_.push_back(depth);
    return grammar_->add(std::move(node));
  }
  std::vector<Id> choices(Id id) {
    return node(id).kind == Kind::choice ? node(id).choices : std::vector<Id>{id};
  }
  /// One node for several. Choices hold no choices, so that looking at each takes no longer than
  /// the schema is.
  Id choice(const std::vector<Id>& ids, const std::string& where) {
    std::set<Id> all;
    for (Id id : ids) {
      for (Id one : choices(id)) all.insert(one);
    }
    if (all.size() == 1) return *all.begin();
    if (all.size() > kChoices) refuse(where, "{}: more than {} choices", where, kChoices);
    JsonGrammar::Node out{.kind = Kind::choice};
    out.choices.assign(all.begin(), all.end());
    return add(std::move(out), where);
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
    if (const Json* any = f.find("anyOf")) {
      only_annotations(f, {});
      if (!any->is_array() || any->empty()) {
        refuse(f.full("anyOf"), "{}: {} is not an array of schemas", f.full("anyOf"), shown(*any));
      }
      std::vector<Id> ids;
      for (std::size_t i = 0; i < any->size(); ++i) {
        ids.push_back(schema((*any)[i], fmt::format("{}[{}]", f.full("anyOf"), i)));
      }
      return choice(ids, where);
    }
    const std::vector<std::string> types = types_of(f);
    const Json* one = f.find("const");
    const Json* several = f.find("enum");
    if (json.is_object() && json.contains("const") && json["const"].is_null()) one = &json["const"];
    if (one != nullptr || several != nullptr) {
      return literals(f, types, one, several, where);
    }
    std::vector<Id> ids;
    for (const std::string& type : types) ids.push_back(of_type(f, type, where));
    if (types.empty()) ids.push_back(JsonGrammar::kAny);
    only_annotations(
        f, {"properties", "required", "additionalProperties", "items", "minItems", "maxItems"});
    return choice(ids, where);
  }

  std::vector<std::string> types_of(Fields& f) {
    const Json* type = f.find("type");
    if (type == nullptr) {
      if (f.find("properties") != nullptr) return {"object"};
      if (f.find("items") != nullptr) return {"array"};
      return {};
    }
    const Json all = type->is_array() ? *type : Json::array({*type});
    std::vector<std::string> out;
    for (const Json& one : all) {
      if (!one.is_string() || std::ranges::find(kTypes, one.get<std::string>()) == kTypes.end()) {
        refuse(f.full("type"), "{}: {} is none of {}", f.full("type"), shown(one),
               fmt::join(kTypes, ", "));
      }
      if (std::ranges::count(out, one.get<std::string>()) == 0) out.push_back(one);
    }
    if (out.empty()) refuse(f.full("type"), "{}: no type is given", f.full("type"));
    return out;
  }

  Id literals(Fields& f, const std::vector<std::string>& types, const Json* one,
              const Json* several, const std::string& where) {
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
    return add(std::move(out), where);
  }

  Id of_type(Fields& f, const std::string& type, const std::string& where) {
    if (type == "object") return object(f, where);
    if (type == "array") return array(f, where);
    return type == "string"    ? JsonGrammar::kString
           : type == "number"  ? JsonGrammar::kNumber
           : type == "integer" ? JsonGrammar::kInteger
           : type == "boolean" ? JsonGrammar::kBoolean
                               : JsonGrammar::kNull;
  }

  Id object(Fields& f, const std::string& where) {
    JsonGrammar::Node out{.kind = Kind::object};
    const Json* properties = f.find("properties");
    const Json* required = f.find("required");
    f.only("additionalProperties", false);
    const std::string all = f.full("properties");
    if (properties == nullptr) {
      out.open = f.find("additionalProperties") == nullptr;
    } else if (!properties->is_object()) {
      refuse(all, "{}: {} is not an object", all, shown(*properties));
    } else {
      for (const auto& [name, value] : properties->items()) {
        out.properties.push_back({dump(Json(name)), schema(value, all + "." + to_utf8(name))});
      }
    }
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
    return add(std::move(out), where);
  }

  Id array(Fields& f, const std::string& where) {
    JsonGrammar::Node out{.kind = Kind::array};
    if (const Json* items = f.find("items")) out.items = schema(*items, f.full("items"));
    out.min_items = f.count("minItems", 0, kItems).value_or(0);
    if (const auto most = f.count("maxItems", 0, kItems)) out.max_items = *most;
    if (out.min_items > out.max_items) {
      refuse(f.full("minItems"), "{}: {} is more than maxItems, {}", f.full("minItems"),
             out.min_items, out.max_items);
    }
    return add(std::move(out), where);
  }

  Id reference(const std::string& ref, const std::string& where) {
    if (const auto at = known_.find(ref); at != known_.end()) {
      if (!at->second) {
        throw ApiError(
            400, "unsupported_parameter",
            fmt::format("{}: {} refers to itself, which is not supported", where, shown(Json(ref))),
            where);
      }
      return *at->second;
    }
    for (const std::string part : {"$defs", "definitions"}) {
      const std::string begin = "#/" + part + "/";
      if (!ref.starts_with(begin)) continue;
      const std::string name = unescaped(ref.substr(begin.size()));
      const auto all = root_.find(part);
      if (name.find('/') != std::string::npos && ref.find("~1") == std::string::npos) break;
      if (all == root_.end() || !all->is_object() || !all->contains(name)) break;
      known_[ref] = std::nullopt;
      const Id id = schema((*all)[name], where_ + "." + part + "." + to_utf8(name));
      known_[ref] = id;
      return id;
    }
    refuse(where, "{}: {} is not \"#/$defs/NAME\" of a schema that is there", where,
           shown(Json(ref)));
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

  const Json& root_;
  const std::string where_;
  std::shared_ptr<JsonGrammar> grammar_ = std::make_shared<JsonGrammar>();
  std::vector<std::size_t> depths_ =
      std::vector<std::size_t>(grammar_->nodes.size());  ///< of objects and arrays in each node
  std::size_t level_ = 0;
  std::map<std::string, std::optional<Id>> known_;  ///< by $ref; nothing: being read
};

}  // namespace

std::shared_ptr<const JsonGrammar> compile_schema(const Json& schema, const std::string& where) {
  return Compiler(schema, where).compile();
}

}  // namespace ballast::serve
