#include "documents/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>

#include "base/child_process.h"
#include "base/fail.h"
#include "documents/html.h"
#include "formats/sniff.h"
#include "formats/utf8_text.h"

namespace ballast {
namespace {

/// What one of poppler's programs makes of a PDF; nothing if it fails.
std::optional<std::string> of_poppler(std::vector<std::string> words, std::string_view pdf,
                                      const std::string& path) {
  return output_of(std::move(words), "poppler-utils", pdf, path);
}

[[noreturn]] void damaged(const std::string& path, std::string_view program) {
  fail(ErrorCode::bad_file, "{}: {} cannot read it: it is damaged, or wants a password", path,
       program);
}

std::vector<DocumentPart> pages_of(std::string_view pdf, const std::string& name,
                                   const std::string& path) {
  const std::optional<std::string> output =
      of_poppler({"pdftotext", "-q", "-enc", "UTF-8", "-eol", "unix", "-", "-"}, pdf, path);
  if (!output) damaged(path, "pdftotext");
  const std::string& text = *output;
  std::vector<DocumentPart> pages;
  std::size_t number = 1;
  for (std::size_t begin = 0; begin < text.size(); ++number) {  // a form feed ends each page
    const std::size_t end = std::min(text.find('\f', begin), text.size());
    std::string page = text.substr(begin, end - begin);
    if (!is_blank(page)) pages.push_back({fmt::format("{}, page {}", name, number), page});
    begin = end + 1;
  }
  require(!pages.empty(), ErrorCode::unsupported,
          "{}: no text in this PDF, perhaps pictures of it; show it to a model that sees "
          "(--image), or make it a text first (ocrmypdf)",
          path);
  return pages;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

bool is_xml(std::string_view bytes) {
  const std::size_t begin = bytes.find_first_not_of(" \t\r\n");
  return begin != std::string_view::npos && bytes.substr(begin).starts_with("<?xml");
}

enum class Kind { text, xml, page };

/// By the ending of its name or its media type; a file without either by its first tag.
Kind kind_of(std::string_view bytes, const std::string& name, std::string_view media_type) {
  const std::string type = lower_case(media_type.substr(0, media_type.find(';')));
  const std::string ending = lower_case(std::filesystem::path(name).extension().string());
  if (type == "text/html" || type == "application/xhtml+xml") return Kind::page;
  for (const char* known : {".html", ".htm", ".xhtml", ".xht", ".shtml"}) {
    if (ending == known) return Kind::page;
  }
  if (is_html(bytes)) return Kind::page;
  if (ending.empty() && type.empty() && may_be_html(bytes)) return Kind::page;
  return is_xml(bytes) ? Kind::xml : Kind::text;
}

/// "text/html; charset=iso-8859-1": what is said of the encoding.
std::string encoding_of(std::string_view media_type) {
  constexpr std::string_view kKey = "charset=";
  const std::size_t at = lower_case(media_type).find(kKey);
  if (at == std::string::npos) return "";
  std::string_view name = media_type.substr(at + kKey.size());
  name = name.substr(0, name.find(';'));
  std::string out(name);
  std::erase_if(out, [](char c) { return c == '"' || c == '\'' || c == ' '; });
  return out;
}

/// Each line ends in a line feed.
std::string with_line_ends(std::string text) {
  if (text.find('\r') == std::string::npos) return text;
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
    } else if (i + 1 == text.size() || text[i + 1] != '\n') {
      out += '\n';
    }
  }
  return out;
}

}  // namespace

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\f") == std::string_view::npos;
}

bool is_pdf(std::string_view bytes) {
  constexpr std::size_t kHead = 1024, kTail = 4096;  // the head is poppler's
  constexpr std::string_view kMark = "%PDF-";
  if (bytes.starts_with(kMark)) return true;
  const std::size_t at = bytes.substr(0, kHead + kMark.size()).find(kMark);
  if (at == std::string_view::npos || at + 8 > bytes.size()) return false;
  const auto is_digit = [&](std::size_t i) { return bytes[i] >= '0' && bytes[i] <= '9'; };
  if (!is_digit(at + 5) || bytes[at + 6] != '.' || !is_digit(at + 7)) return false;
  // A text about PDF has no end of one at its own end; nor is it binary.
  const std::string_view rest = bytes.substr(at);
  const std::string_view tail = rest.substr(rest.size() - std::min(rest.size(), kTail));
  return tail.find("%%EOF") != std::string_view::npos ||
         tail.find("startxref") != std::string_view::npos || looks_binary(rest) ||
         bytes.find('\0') != std::string_view::npos;
}

std::vector<DocumentPart> read_document(std::string bytes, const std::string& name,
                                        const std::string& path, std::string_view media_type) {
  if (is_pdf(bytes)) return pages_of(bytes, name, path);
  const Kind kind = kind_of(bytes, name, media_type);
  std::string declared = encoding_of(media_type);
  if (declared.empty() && kind != Kind::text) declared = declared_encoding(bytes);
  std::string text = as_utf8(std::move(bytes), path, declared);
  if (looks_binary(text)) {
    const std::string_view what = sniff(std::as_bytes(std::span(text)));
    fail(ErrorCode::unsupported, "{}: {}, but a text is expected", path,
         what.empty() ? "binary data" : what);
  }
  text = with_line_ends(std::move(text));
  // What was not seen in UTF-16 is seen now.
  if (kind == Kind::page || kind_of(text, name, media_type) == Kind::page) {
    text = html_to_text(text);
  }
  return {{name, std::move(text)}};
}

std::string picture_of_page(std::string_view pdf, std::size_t page, const std::string& path) {
  const std::string number = std::to_string(page);
  std::optional<std::string> picture = of_poppler(
      {"pdftoppm", "-q", "-scale-to", "1792", "-f", number, "-l", number, "-"}, pdf, path);
  if (!picture && page == 1) damaged(path, "pdftoppm");
  return picture.value_or("");
}

std::string joined_text(const std::vector<DocumentPart>& parts, bool with_names) {
  if (!with_names && parts.size() == 1) return parts[0].text;
  std::string out;
  for (const DocumentPart& part : parts) {
    while (!out.empty() && !out.ends_with("\n\n")) out += '\n';
    out += fmt::format("=== {} ===\n\n{}", part.name, part.text);
  }
  return out;
}

}  // namespace ballast
