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

bool has_html_ending(const std::string& name) {
  std::string ending = std::filesystem::path(name).extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".html" || ending == ".htm" || ending == ".xhtml";
}

}  // namespace

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\f") == std::string_view::npos;
}

bool looks_binary(std::string_view text) {
  const std::string_view head = text.substr(0, 4096);
  const auto strange = std::ranges::count_if(head, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 32 && std::strchr("\t\n\r\f\v\b\x1b", c) == nullptr;
  });
  return static_cast<std::size_t>(strange) > head.size() / 20;
}

std::vector<DocumentPart> read_document(std::string bytes, const std::string& name,
                                        const std::string& path) {
  if (bytes.starts_with("%PDF-")) return pages_of(bytes, name, path);
  std::string text = as_utf8(std::move(bytes), path);
  if (looks_binary(text)) {
    const std::string_view kind = sniff(std::as_bytes(std::span(text)));
    fail(ErrorCode::unsupported, "{}: {}, but a text is expected", path,
         kind.empty() ? "binary data" : kind);
  }
  if (has_html_ending(name) || is_html(text)) text = html_to_text(text);
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
