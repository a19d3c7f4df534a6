#include "formats/utf8_text.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>

#include "base/fail.h"
#include "base/read_file.h"
#include "formats/sniff.h"

namespace ballast {
namespace {

/// Of the text's first bytes, how many of those at `residue` modulo `step` are zero, over how many
/// there are.
double zeros(std::string_view head, std::size_t residue, std::size_t step) {
  std::size_t count = 0, all = 0;
  for (std::size_t i = residue; i < head.size(); i += step, ++all) count += head[i] == 0;
  return all == 0 ? 0 : static_cast<double>(count) / static_cast<double>(all);
}

}  // namespace

std::string as_utf8(std::string text, const std::string& name) {
  constexpr double kMost = 0.6;  // in UTF-16 and UTF-32 nearly all of ASCII's upper bytes
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  const std::string_view head = std::string_view(text).substr(0, 64);
  const std::size_t zero = text.find('\0');
  const bool marked16 = head.starts_with("\xFF\xFE") || head.starts_with("\xFE\xFF");
  const bool pdf = head.starts_with("%PDF-");
  if (zero == std::string::npos && !marked16 && !pdf) return text;
  const std::string_view kind = sniff(std::as_bytes(std::span(text)));
  const auto is_text = [](std::string_view k) { return k.find("text") != std::string_view::npos; };
  require(kind.empty() || is_text(kind), ErrorCode::unsupported, "{}: {}, but a text is expected",
          name, kind);
  const bool wide_big = zeros(head, 0, 4) > kMost && zeros(head, 1, 4) > kMost;
  const bool wide_little = zeros(head, 2, 4) > kMost && zeros(head, 3, 4) > kMost;
  require(!wide_big && !wide_little, ErrorCode::unsupported,
          "{}: UTF-32, but texts are UTF-8; convert it: iconv -f UTF-32 -t UTF-8", name);
  require(!marked16 && zeros(head, 0, 2) <= kMost && zeros(head, 1, 2) <= kMost,
          ErrorCode::unsupported,
          "{}: UTF-16, but texts are UTF-8; convert it: iconv -f UTF-16 -t UTF-8", name);
  fail(ErrorCode::unsupported, "{}: not a text: byte {} is zero", name, zero);
}

std::string read_utf8(const std::filesystem::path& path) {
  return as_utf8(read_file(path), path.string());
}

std::string read_input(const std::string& path) {
  if (path == "-") {
    std::string text;
    char buffer[1 << 16];
    while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) {
      text.append(buffer, n);
      require(text.size() <= Readable{}.most, ErrorCode::over_limit,
              "standard input: over {} bytes, more than a text may have", Readable{}.most);
    }
    require(std::ferror(stdin) == 0, ErrorCode::io, "cannot read standard input: {}",
            std::strerror(errno));
    return as_utf8(std::move(text), "standard input");
  }
  return read_utf8(path);
}

}  // namespace ballast
