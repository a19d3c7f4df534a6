#include "documents/mail.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "ballast/error.h"
#include "base/base64.h"
#include "documents/html.h"
#include "formats/utf8_text.h"

namespace ballast {
namespace {

constexpr std::size_t kDeepest = 16;     // parts in parts
constexpr std::size_t kMostParts = 256;  // of a message

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") + 1 - begin);
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const auto small = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

/// RFC 2045, 6.8: in lines.
std::string from_base64(std::string_view text) {
  std::string line(text);
  std::erase_if(line, [](char c) { return c == '\n' || c == '\r' || c == ' ' || c == '\t'; });
  return decode_base64(line);
}

/// RFC 2045, 6.7. `header`: "_" is a blank (RFC 2047).
std::string from_quoted(std::string_view text, bool header) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (header && text[i] == '_') {
      out += ' ';
    } else if (text[i] != '=') {
      out += text[i];
    } else if (i + 2 < text.size() && digit_of(text[i + 1]) >= 0 && digit_of(text[i + 2]) >= 0) {
      out += static_cast<char>(digit_of(text[i + 1]) * 16 + digit_of(text[i + 2]));
      i += 2;
    } else {  // a soft line end: the line goes on
      const std::size_t end = text.find('\n', i);
      if (end == std::string_view::npos || !trimmed(text.substr(i + 1, end - i)).empty()) continue;
      i = end;
    }
  }
  return out;
}

/// The text of bytes in a character set, or the bytes as they are guessed.
std::string in_utf8(std::string bytes, const std::string& charset) {
  try {
    return as_utf8(std::move(bytes), "", charset);
  } catch (const Error&) {
    return "";
  }
}

/// "=?utf-8?q?M=C3=BCller?=" is "Müller".
std::string header_text(std::string_view text) {
  std::string out;
  bool encoded = false;  // what came last
  while (!text.empty()) {
    const std::size_t at = std::min(text.find("=?"), text.size());
    const std::string_view before = text.substr(0, at);
    const std::size_t set = text.find('?', std::min(at + 2, text.size()));
    const std::size_t way = set == text.npos ? set : text.find('?', set + 1);
    const std::size_t end = way == text.npos ? way : text.find("?=", way + 1);
    if (at == text.size() || end == text.npos || way != set + 2) {
      out += text;
      break;
    }
    if (!encoded || !trimmed(before).empty()) out += before;
    const std::string_view word = text.substr(way + 1, end - way - 1);
    const bool base64 = text[set + 1] == 'b' || text[set + 1] == 'B';
    out += in_utf8(base64 ? from_base64(word) : from_quoted(word, true),
                   std::string(text.substr(at + 2, set - at - 2)));
    encoded = true;
    text.remove_prefix(end + 2);
  }
  return std::string(trimmed(out));
}

/// The fields of a head and what follows it.
struct Part {
  std::vector<std::pair<std::string, std::string>> fields;  ///< names in lower case
  std::string_view body;

  explicit Part(std::string_view text) {
    while (!text.empty()) {
      const std::size_t end = std::min(text.find('\n'), text.size() - 1) + 1;
      const std::string_view line = text.substr(0, end);
      const std::size_t colon = line.find(':');
      const bool goes_on = line[0] == ' ' || line[0] == '\t';
      if (trimmed(line).empty()) {
        text.remove_prefix(end);
        break;
      }
      if (goes_on && !fields.empty()) {
        fields.back().second += ' ';
        fields.back().second += trimmed(line);
      } else if (colon != std::string_view::npos) {
        fields.emplace_back(lower_case(trimmed(line.substr(0, colon))),
                            trimmed(line.substr(colon + 1)));
      } else if (!line.starts_with("From ")) {
        break;  // no head, or none any more
      }
      text.remove_prefix(end);
    }
    body = text;
  }

  std::string field(std::string_view name) const {
    const auto found = std::ranges::find(
        fields, name, [](const auto& field) { return std::string_view(field.first); });
    return found == fields.end() ? "" : found->second;
  }
  /// "text/plain; charset=utf-8": what `key` is.
  static std::string parameter(const std::string& value, const std::string& key) {
    std::size_t at = lower_case(value).find(key + "=");
    if (at == std::string::npos) return "";
    at += key.size() + 1;
    if (at < value.size() && value[at] == '"') {
      return value.substr(at + 1, value.find('"', at + 1) - at - 1);
    }
    return std::string(trimmed(std::string_view(value).substr(at, value.find(';', at) - at)));
  }
  std::string type() const {
    const std::string value = field("content-type");
    return value.empty() ? "text/plain" : lower_case(trimmed(value.substr(0, value.find(';'))));
  }
  std::string content() const {
    const std::string way = lower_case(field("content-transfer-encoding"));
    if (way == "base64") return from_base64(body);
    return way == "quoted-printable" ? from_quoted(body, false) : std::string(body);
  }
};

/// Between the lines of a boundary.
std::vector<std::string_view> parts_between(std::string_view body, const std::string& boundary) {
  std::vector<std::string_view> out;
  const std::string mark = "--" + boundary;
  std::size_t begin = body.npos;
  for (std::size_t at = 0; at < body.size() && out.size() < kMostParts;) {
    const std::size_t end = std::min(body.find('\n', at), body.size() - 1) + 1;
    const std::string_view line = trimmed(body.substr(at, end - at));
    if (line.starts_with(mark) && (line.size() == mark.size() || line == mark + "--")) {
      if (begin != body.npos) out.push_back(body.substr(begin, at - begin));
      begin = end;
      if (line.size() > mark.size()) return out;
    }
    at = end;
  }
  if (begin != body.npos && begin < body.size()) out.push_back(body.substr(begin));
  return out;
}

class Message {
 public:
  Message(const std::string& name, const std::string& path) : path_(path), name_(name) {}

  std::vector<DocumentPart> read(std::string_view bytes) {
    const Part whole(bytes);
    std::string head;
    for (const auto& [field, shown] :
         std::initializer_list<std::pair<const char*, const char*>>{{"subject", "Subject"},
                                                                    {"from", "From"},
                                                                    {"to", "To"},
                                                                    {"cc", "Cc"},
                                                                    {"date", "Date"}}) {
      const std::string value = header_text(whole.field(field));
      if (!value.empty()) head += fmt::format("{}: {}\n", shown, value);
    }
    add(whole, 0);
    for (const std::string& other : others_) text_ += fmt::format("\nAttachment: {}\n", other);
    std::vector<DocumentPart> out{{name_, head + "\n" + text_}};
    std::ranges::move(attachments_, std::back_inserter(out));
    return out;
  }

 private:
  void add(const Part& part, std::size_t depth) {
    if (depth > kDeepest) return;
    const std::string type = part.type(), value = part.field("content-type");
    const std::string place = part.field("content-disposition");
    std::string file = header_text(Part::parameter(place, "filename"));
    if (file.empty()) file = header_text(Part::parameter(value, "name"));
    if (type.starts_with("multipart/")) {
      add_parts(part, type == "multipart/alternative", depth);
    } else if (type == "message/rfc822") {
      const Part inner(part.body);
      text_ += fmt::format("\nForwarded: {}\nFrom: {}\n\n", header_text(inner.field("subject")),
                           header_text(inner.field("from")));
      add(inner, depth + 1);
    } else if (lower_case(place).starts_with("attachment") ||
               (!file.empty() && !type.starts_with("text/"))) {
      attach(part, file, value);
    } else if (type.starts_with("text/")) {
      std::string text = in_utf8(part.content(), Part::parameter(value, "charset"));
      std::erase(text, '\r');
      text_ += type == "text/html" ? html_to_text(text) : text;
      if (!text_.ends_with('\n')) text_ += '\n';
    }
  }

  void add_parts(const Part& part, bool alternative, std::size_t depth) {
    const std::string boundary = Part::parameter(part.field("content-type"), "boundary");
    if (boundary.empty()) return;
    std::vector<Part> parts;
    for (const std::string_view one : parts_between(part.body, boundary)) parts.emplace_back(one);
    if (!alternative) {
      for (const Part& one : parts) add(one, depth + 1);
      return;
    }
    const auto plain = std::ranges::find(parts, "text/plain", &Part::type);
    if (plain != parts.end() && !is_blank(plain->content())) return add(*plain, depth + 1);
    if (!parts.empty()) add(parts.back(), depth + 1);  // the richest
  }

  void attach(const Part& part, const std::string& file, const std::string& type) {
    const std::string shown = file.empty() ? "without a name" : file;
    try {
      std::vector<DocumentPart> parts = is_mail_name(file)
                                            ? std::vector<DocumentPart>()
                                            : read_document(part.content(), file, path_, type);
      require_text(parts);
      for (DocumentPart& one : parts) {
        one.name = fmt::format("{}, {}", name_, shown);
        attachments_.push_back(std::move(one));
      }
    } catch (const Error&) {  // a picture, an archive
      others_.push_back(shown);
    }
  }
  static void require_text(const std::vector<DocumentPart>& parts) {
    if (std::ranges::all_of(parts, is_blank, &DocumentPart::text)) throw Error("no text");
  }

  const std::string& path_;
  const std::string& name_;
  std::string text_;
  std::vector<DocumentPart> attachments_;
  std::vector<std::string> others_;
};

}  // namespace

bool is_mail_name(const std::string& name) {
  return lower_case(std::filesystem::path(name).extension().string()) == ".eml";
}

std::vector<DocumentPart> mail_parts(std::string_view bytes, const std::string& name,
                                     const std::string& path) {
  return Message(name, path).read(bytes);
}

}  // namespace ballast
