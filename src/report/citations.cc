#include "report/citations.h"

#include <fmt/format.h>

namespace ballast {

std::string to_text(const std::vector<Citation>& citations) {
  if (citations.empty()) return "  [no passage: little of this answer was looked up in the text]\n";
  std::string out;
  for (const Citation& c : citations) out += fmt::format("  [{}] {}\n", to_string(c.place), c.text);
  return out;
}

Json to_json(const std::vector<Citation>& citations) {
  Json out = Json::array();
  for (const Citation& c : citations) {
    Json one = {{"document", c.place.document}};
    if (c.place.page > 0) one["page"] = c.place.page;
    if (c.place.has_line()) one["line"] = c.place.line;
    one["text"] = c.text;
    one["share"] = c.share;
    one["tokens"] = {c.first_token, c.end_token};
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace ballast
