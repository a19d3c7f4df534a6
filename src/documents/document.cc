#include "documents/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "base/fail.h"
#include "base/os/process.h"
#include "documents/converters.h"
#include "documents/html.h"
#include "documents/layout.h"
#include "documents/mail.h"
#include "documents/office.h"
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

/// Its pages: a form feed ends each.
std::vector<std::string_view> pages_in(std::string_view text) {
  std::vector<std::string_view> pages;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\f', begin), text.size());
    pages.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return pages;
}

std::vector<DocumentPart> pages_of(std::string_view pdf, const std::string& name,
                                   const std::string& path) {
  std::vector<std::string> words = {"pdftotext", "-q", "-enc", "UTF-8", "-eol", "unix", "-", "-"};
  const std::optional<std::string> text = of_poppler(words, pdf, path);
  if (!text) damaged(path, "pdftotext");
  // Text in reading order takes the columns of a table one after another.
  words.insert(words.begin() + 1, "-layout");
  const std::optional<std::string> layout = of_poppler(words, pdf, path);
  const std::vector<std::string_view> as_read = pages_in(*text);
  const std::vector<std::string_view> as_placed = layout ? pages_in(*layout) : as_read;
  std::vector<DocumentPart> pages;
  for (std::size_t i = 0; i < as_read.size(); ++i) {
    if (is_blank(as_read[i])) continue;
    std::optional<std::string> table;
    if (layout && as_placed.size() == as_read.size()) table = text_with_tables(as_placed[i]);
    pages.push_back({name, table ? *table : std::string(as_read[i]), i + 1});
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

std::string ending_of(const std::string& name) {
  return lower_case(std::filesystem::path(name).extension().string());
}

bool is_page_name(const std::string& name) {
  constexpr std::array<std::string_view, 5> kKnown = {".html", ".htm", ".xhtml", ".xht", ".shtml"};
  return std::ranges::count(kKnown, ending_of(name)) > 0;
}

enum class Kind { text, xml, page };

/// By the ending of its name or its media type; a file without either by its first tag.
Kind kind_of(std::string_view bytes, const std::string& name, std::string_view media_type) {
  const std::string type = lower_case(media_type.substr(0, media_type.find(';')));
  if (type == "text/html" || type == "application/xhtml+xml") return Kind::page;
  if (is_page_name(name) || is_html(bytes)) return Kind::page;
  const bool unknown = type.empty() && !std::filesystem::path(name).has_extension();
  if (unknown && may_be_html(bytes)) return Kind::page;
  return is_xml(bytes) ? Kind::xml : Kind::text;
}

constexpr std::string_view kPdfMark = "%PDF-";

bool is_pdf_name(const std::string& name, std::string_view media_type) {
  const std::string type = lower_case(media_type.substr(0, media_type.find(';')));
  return type == "application/pdf" || ending_of(name) == ".pdf";
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

/// Files of office programs that are not read.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kOthers = {
    {{"{\\rtf", "a file in the Rich Text Format"},
     {"\xD0\xCF\x11\xE0", "an Office file of the old kind, or one with a password"}}};

// --- the lines that name parts: "=== a.pdf, page 3 ===" ---

constexpr std::string_view kBefore = "=== ", kAfter = " ===", kLineBegin = "\n=== ";
constexpr std::string_view kPage = ", page ";

std::string_view line_at(std::string_view text, std::size_t begin) {
  return text.substr(begin, std::min(text.find('\n', begin), text.size()) - begin);
}

bool is_name_line(std::string_view line) {
  return line.size() > kBefore.size() + kAfter.size() && line.starts_with(kBefore) &&
         line.ends_with(kAfter);
}

/// Where ", page 3" begins at the end of a name, and the number; name.size(): nowhere.
std::size_t page_in(std::string_view name, std::size_t& page) {
  const std::size_t at = name.rfind(kPage);
  if (at == std::string_view::npos) return name.size();
  std::size_t number = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + at + kPage.size(), end, number);
  if (error != std::errc() || stop != end || number == 0) return name.size();
  page = number;
  return at;
}

bool is_quoted(std::string_view name) {
  return name.size() > 1 && name.starts_with('"') && name.ends_with('"');
}

/// The name of a part in one line. A file whose own name ends in a page stands in quotes.
std::string shown_name(const DocumentPart& part) {
  std::string name = part.name;
  std::ranges::replace_if(
      name, [](unsigned char c) { return c < 0x20; }, ' ');
  if (part.page > 0) return fmt::format("{}{}{}", name, kPage, part.page);
  std::size_t page = 0;
  return page_in(name, page) < name.size() || is_quoted(name) ? '"' + name + '"' : name;
}

}  // namespace

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\f") == std::string_view::npos;
}

std::string_view pdf_in(std::string_view bytes, const std::string& name,
                        std::string_view media_type) {
  constexpr std::size_t kNear = 1024, kFar = std::size_t{1} << 20, kTail = 4096;  // near: poppler's
  if (bytes.starts_with(kPdfMark)) return bytes;
  const bool named = is_pdf_name(name, media_type);
  const auto is_digit = [&](std::size_t i) { return bytes[i] >= '0' && bytes[i] <= '9'; };
  for (std::size_t at = 0; (at = bytes.find(kPdfMark, at)) != std::string_view::npos; ++at) {
    if (!named && at > kFar) return {};
    if (at + 8 > bytes.size() || !is_digit(at + 5) || bytes[at + 6] != '.' || !is_digit(at + 7)) {
      continue;
    }
    const std::string_view rest = bytes.substr(at);
    if (named) return rest;
    if (bytes.substr(0, at).find('\0') != std::string_view::npos) return {};  // an archive of files
    if (looks_binary(rest) || rest.find('\0') != std::string_view::npos) return rest;
    // A text about PDF has no end of one at its own end.
    const std::string_view tail = rest.substr(rest.size() - std::min(rest.size(), kTail));
    const bool whole = tail.find("%%EOF") != std::string_view::npos ||
                       tail.find("startxref") != std::string_view::npos;
    constexpr std::array<std::string_view, 5> kTexts = {".txt", ".md", ".rst", ".adoc", ".tex"};
    const bool listing = at > kNear && std::ranges::count(kTexts, ending_of(name)) > 0;
    return whole && !listing ? rest : std::string_view();
  }
  return {};
}

std::vector<DocumentPart> read_document(std::string bytes, const std::string& name,
                                        const std::string& path, std::string_view media_type) {
  if (is_mail_name(name)) return mail_parts(bytes, name, path);
  const std::string_view pdf = pdf_in(bytes, name, media_type);
  if (!pdf.empty()) return pages_of(pdf, name, path);
  if (can_convert(name)) {
    return {{name, with_line_ends(converted_text(bytes, name, path)), 0, ""}};
  }
  std::string note;
  if (is_zip(bytes)) {
    std::string text = office_text(bytes, path, &note);
    return {{name, std::move(text), 0, std::move(note)}};
  }
  require(bytes.empty() || !is_pdf_name(name, media_type), ErrorCode::unsupported,
          "{}: no PDF, though it is named as one: there is no {} in it{}", path, kPdfMark,
          is_html(bytes) ? "; it is a web page, perhaps one that asks to log in" : "");
  for (const auto& [begin, what] : kOthers) {
    require(!bytes.starts_with(begin), ErrorCode::unsupported,
            "{}: {}; save it as .docx or PDF (soffice --convert-to docx FILE)", path, what);
  }
  const Kind kind = kind_of(bytes, name, media_type);
  std::string declared = encoding_of(media_type);
  if (declared.empty() && kind != Kind::text) declared = declared_encoding(bytes);
  std::string text = as_utf8(std::move(bytes), path, declared, &note);
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
  return {{name, std::move(text), 0, std::move(note)}};
}

bool is_office_name(const std::string& name) {
  constexpr std::array<std::string_view, 5> kKnown = {".docx", ".docm", ".odt", ".ods", ".odp"};
  return std::ranges::count(kKnown, ending_of(name)) > 0;
}

bool keeps_lines(const std::string& name) { return !is_page_name(name) && !is_office_name(name); }

std::string picture_of_page(std::string_view pdf, std::size_t page, const std::string& path,
                            bool png) {
  const std::string number = std::to_string(page);
  std::vector<std::string> words = {"pdftoppm", "-q",   "-scale-to", "1792",
                                    "-f",       number, "-l",        number};
  if (png) words.push_back("-png");
  words.push_back("-");
  std::optional<std::string> picture = of_poppler(std::move(words), pdf, path);
  if (!picture && page == 1) damaged(path, "pdftoppm");
  return picture.value_or("");
}

std::string whole_text(std::string text) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.starts_with(kBefore) ? 0 : text.find(kLineBegin);
       at != std::string::npos; at = text.find(kLineBegin, at + 1)) {
    const std::size_t begin = text[at] == '\n' ? at + 1 : at;
    if (!is_name_line(line_at(text, begin))) continue;
    out.append(text, done, begin - done);
    out += ' ';
    done = begin;
  }
  return done == 0 && out.empty() ? text : out + text.substr(done);
}

std::string joined_text(const std::vector<DocumentPart>& parts, bool with_names) {
  if (!with_names && parts.size() == 1) return whole_text(parts[0].text);
  std::string out;
  for (const DocumentPart& part : parts) {
    while (!out.empty() && !out.ends_with("\n\n")) out += '\n';
    out += fmt::format("{}{}{}\n\n{}", kBefore, shown_name(part), kAfter, whole_text(part.text));
  }
  return out;
}

std::optional<DocumentPart> part_named(std::string_view text, std::size_t line_begin) {
  if (line_begin > 0 && (line_begin < 2 || text.substr(line_begin - 2, 2) != "\n\n")) return {};
  std::string_view line = line_at(text, line_begin);
  if (!is_name_line(line) || text.substr(line_begin + line.size(), 2) != "\n\n") return {};
  line.remove_prefix(kBefore.size());
  line.remove_suffix(kAfter.size());
  DocumentPart part;
  const std::size_t page = page_in(line, part.page);
  if (page == line.size() && is_quoted(line)) line = line.substr(1, line.size() - 2);
  part.name = line.substr(0, page);
  return part;
}

}  // namespace ballast
