#include "serve/grammar/schema_merge.h"

#include <algorithm>
#include <charconv>
#include <set>

#include "serve/grammar/schema_keywords.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"
#include "text/tokenizer/utf8.h"

namespace ballast::serve {
namespace {

constexpr std::size_t kMerges = 512, kMergedBytes = 32 << 20;

const Json* member(const Json& of, const std::string& name) {
  if (of.is_object()) {
    const auto at = of.find(name);
    return at == of.end() ? nullptr : &*at;
  }
  const bool index = of.is_array() && !name.empty() && name.size() < 6 &&
                     name.find_first_not_of("0123456789") == std::string::npos;
  if (!index || std::stoul(name) >= of.size()) return nullptr;
  return &of[std::stoul(name)];
}
std::string percent_decoded(const std::string& text) {
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
std::string unescaped(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '~' && i + 1 < text.size();
    out += !escape ? text[i] : text[++i] == '1' ? '/' : '~';
  }
  return out;
}

/// Whether a schema says that there are no other properties, which it says of its own alone.
bool closed(const Json& schema) {
  return schema.contains("additionalProperties") && schema["additionalProperties"] != true;
}
std::set<std::string> names(const Json& schema) {
  std::set<std::string> keys;
  const Json properties = schema.value("properties", Json::object());
  for (const auto& [name, value] : properties.items()) keys.insert(name);
  return keys;
}
/// Whether it refuses a property of another.
bool excludes(const Json& one, const Json& other) {
  return closed(one) && (closed(other) ? names(one) != names(other)
                                       : !std::ranges::includes(names(one), names(other)));
}

}  // namespace

std::pair<const Json*, std::string> SchemaPlaces::find(const std::string& ref,
                                                       const std::string& where) const {
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

void SchemaMerge::add(const Json& json, const std::string& where, Json& out) {
  if (json == true) return;
  // References may double it with every level.
  if (++merges_ > kMerges) {
    refuse(where, "{}: more than {} schemas are said together", where, kMerges);
  }
  Fields f(json, where + ".");
  const Json* all = f.find("allOf");
  const auto ref = f.text("$ref");
  for (std::size_t i = 0; all != nullptr && i < all->size(); ++i) {
    add((*all)[i], shortened(fmt::format("{}[{}]", f.full("allOf"), i)), out);
  }
  if (ref) add(*places_.find(*ref, f.full("$ref")).first, shortened(f.full("$ref")), out);
  Json own = Json::object();
  for (const auto& [name, value] : json.items()) {
    if (name != "allOf" && name != "$ref" && !is_annotation(name)) own[name] = value;
  }
  merged_bytes_ += own.dump(-1, ' ', false).size();
  if (merged_bytes_ > kMergedBytes) {
    refuse(where, "{}: more than {} MB of schemas are said together", where, kMergedBytes >> 20);
  }
  if (!own.empty() && !out.empty() && (excludes(own, out) || excludes(out, own))) {
    const std::string name = f.full("additionalProperties");
    throw ApiError(400, "unsupported_parameter",
                   fmt::format("{}: within allOf it must be true, as others add properties", name),
                   name);
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

}  // namespace ballast::serve
