#include "text/answer/call_literals.h"

#include <fmt/format.h>

#include <algorithm>

#include "ballast/engine/tokenizer.h"
#include "ballast/error.h"
#include "formats/json.h"
#include "formats/json_text.h"

namespace ballast {
namespace {

constexpr std::string_view kBlank = " \t\r\n";
constexpr int kDepth = 64;
/// Marks that Gemma puts around a text in place of quotes.
constexpr std::string_view kMarks[] = {"<escape>", R"(<|"|>)"};

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

/// JSON of a word without quotes: a number, a constant, or a text.
std::string word_json(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  try {
    if (parse_json_text<Json>(word, "a number").is_number()) return std::string(word);
  } catch (const Error&) {  // a text
  }
  return Json(to_valid_utf8(word)).dump();
}

}  // namespace

bool LiteralReader::take(std::string_view mark) {
  rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlank), rest_.size()));
  if (!rest_.starts_with(mark)) return false;
  rest_.remove_prefix(mark.size());
  return true;
}

std::string_view LiteralReader::name() {
  take("");
  const auto end = std::ranges::find_if_not(rest_, is_name);
  const std::string_view out = rest_.substr(0, static_cast<std::size_t>(end - rest_.begin()));
  rest_.remove_prefix(out.size());
  return out;
}

std::optional<std::string> LiteralReader::arguments(char close) {
  std::string out = "{";
  while (!take({&close, 1})) {
    if (out.size() > 1 && !take(",")) return std::nullopt;
    if (out.size() > 1 && take({&close, 1})) break;  // Python allows a last comma
    std::optional<std::string> key;
    for (const std::string_view mark : {std::string_view("\""), std::string_view("'")}) {
      if (!key && take(mark)) key = text(mark[0]);
    }
    if (!key) {
      const std::string_view bare = name();
      if (bare.empty()) return std::nullopt;
      key = Json(bare).dump();
    }
    if (!take("=") && !take(":")) return std::nullopt;
    const auto one = value();
    if (!one) return std::nullopt;
    if (out.size() > 1) out += ",";
    out += *key + ":" + *one;
  }
  return out + "}";
}

std::optional<std::string> LiteralReader::list(char close) {
  std::string out = "[";
  while (!take({&close, 1})) {
    if (out.size() > 1 && !take(",")) return std::nullopt;
    if (out.size() > 1 && take({&close, 1})) break;
    const auto one = value();
    if (!one) return std::nullopt;
    if (out.size() > 1) out += ",";
    out += *one;
  }
  return out + "]";
}

std::optional<std::string> LiteralReader::text(char quote) {
  std::string out;
  for (std::size_t at = 0; at < rest_.size(); ++at) {
    const char c = rest_[at];
    if (c == quote) {
      rest_.remove_prefix(at + 1);
      return Json(to_valid_utf8(out)).dump();
    }
    if (c != '\\' || at + 1 == rest_.size()) {
      out += c;
      continue;
    }
    const char next = rest_[++at];
    if (next == 'u' && at + 4 < rest_.size()) {
      try {
        const std::string json = fmt::format("\"\\u{}\"", rest_.substr(at + 1, 4));
        out += parse_json_text<Json>(json, "a character").get<std::string>();
        at += 4;
        continue;
      } catch (const Error&) {  // not a character: as it is
      }
    }
    out += next == 'n' ? '\n' : next == 't' ? '\t' : next == 'r' ? '\r' : next;
  }
  return std::nullopt;
}

std::optional<std::string> LiteralReader::value() {
  if (depth_ == kDepth) return std::nullopt;
  for (const std::string_view mark : kMarks) {
    if (!take(mark)) continue;
    const std::size_t end = rest_.find(mark);
    if (end == std::string_view::npos) return std::nullopt;
    std::string out = Json(to_valid_utf8(rest_.substr(0, end))).dump();
    rest_.remove_prefix(end + mark.size());
    return out;
  }
  if (take("\"")) return text('"');
  if (take("'")) return text('\'');
  std::optional<std::string> out;
  ++depth_;
  if (take("[")) {
    out = list(']');
  } else if (take("(")) {
    out = list(')');
  } else if (take("{")) {
    out = arguments('}');
  } else {
    const std::size_t end = std::min(rest_.find_first_of(",)]}"), rest_.size());
    std::string_view word = rest_.substr(0, end);
    word = word.substr(0, word.find_last_not_of(kBlank) + 1);
    rest_.remove_prefix(end);
    if (!word.empty()) out = word_json(word);
  }
  --depth_;
  return out;
}

}  // namespace ballast
