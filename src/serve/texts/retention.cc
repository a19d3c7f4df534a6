#include "serve/texts/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/sha256.h"
#include "serve/http/api_error.h"

namespace ballast::serve {

using namespace std::chrono_literals;

std::chrono::seconds parse_keep(const std::string& text, const std::string& name) {
  if (text == "5m") return 5min;
  if (text == "1h") return 1h;
  if (text == "24h") return 24h;
  refuse(name, R"({}: {} is unknown; known: "5m", "1h", "24h")", name, shown(Json(text)));
}

void CacheMarks::read(Fields& object, std::size_t message, std::size_t bytes) {
  const Json* control = object.find("cache_control");
  if (control == nullptr) return;
  Fields f(*control, object.full("cache_control."));
  const std::string type = f.text("type").value_or("ephemeral");
  if (type != "ephemeral") {
    refuse(f.full("type"), R"({}: {} is unknown; known: "ephemeral")", f.full("type"),
           shown(Json(type)));
  }
  keep_ = std::max(keep_, parse_keep(f.text("ttl").value_or("5m"), f.full("ttl")));
  f.ignore({"scope"});
  f.end();
  last_ = Place{message, bytes};
}

std::chrono::seconds parse_retention(Fields& request) {
  request.text("prompt_cache_key");  // there is one machine, where all that begins alike is found
  const auto retention = request.text("prompt_cache_retention");
  if (!retention || *retention == "in_memory" || *retention == "in-memory") return {};
  if (*retention == "24h") return 24h;
  refuse("prompt_cache_retention",
         R"(prompt_cache_retention: {} is unknown; known: "in_memory", "24h")",
         shown(Json(*retention)));
}

std::string parse_salt(Fields& request) {
  const auto salt = request.text("cache_salt");
  if (!salt) return "";
  if (salt->empty()) refuse("cache_salt", "cache_salt: an empty text; leave it out");
  Sha256 sum;  // it may be a secret, and names of files and kinds are none
  sum.add(std::as_bytes(std::span(*salt)));
  return sum.finish();
}

}  // namespace ballast::serve
