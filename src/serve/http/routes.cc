#include "serve/http/routes.h"

#include <charconv>
#include <string_view>

#include "formats/utf8_text.h"
#include "serve/http/api_error.h"
#include "serve/http/fields.h"

namespace ballast::serve {
namespace {

/// Whether a path is of a pattern, in which * stands for what is between two slashes and ** for all
/// that is left. `parts`: what they stand for.
bool fits(std::string_view pattern, std::string_view path, std::vector<std::string>& parts) {
  parts.clear();
  while (!pattern.empty()) {
    if (path.empty()) return false;
    if (pattern == "**") {
      parts.emplace_back(path);
      return true;
    }
    if (pattern[0] == '*') {
      parts.emplace_back(path.substr(0, path.find('/')));
      if (parts.back().empty()) return false;
      path.remove_prefix(parts.back().size());
    } else {
      if (pattern[0] != path[0]) return false;
      path.remove_prefix(1);
    }
    pattern.remove_prefix(1);
  }
  return path.empty();
}

}  // namespace

Json Call::take_object() {
  const std::string body = std::move(request.body);
  return parse_object(body);
}

void Call::end_work() {
  work = {};
  request.memory.shrink(0);
  request.share.shrink(0);
}

void Call::reply(const Json& json) { response.set_content(line(json), "application/json"); }

void Routes::answer(Call& call) const {
  const Request& request = call.request;
  for (const Route& one : all_) {
    if (one.method == request.method && fits(one.pattern, request.path, call.parts)) {
      return one.handler(call);
    }
  }
  throw ApiError(404, "unknown_url", "there is no " + to_utf8(request.method + " " + request.path));
}

std::size_t number_of(const std::string& part) {
  std::size_t out = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), out);
  if (error == std::errc() && end == part.data() + part.size()) return out;
  throw ApiError(404, "unknown_url", fmt::format("{} is not a number", shown(Json(part))));
}

}  // namespace ballast::serve
