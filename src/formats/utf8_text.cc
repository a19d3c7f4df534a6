#include "formats/utf8_text.h"

#include <unicode/ucnv.h>
#include <unicode/ucsdet.h>
#include <unicode/unistr.h>
#include <unicode/utf8.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

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

/// The encoding of two or four bytes a letter that the first bytes show; "": none.
const char* wide_encoding(std::string_view text) {
  using namespace std::string_view_literals;
  constexpr double kMost = 0.6;  // nearly all of ASCII's upper bytes are zero
  const std::string_view head = text.substr(0, 64);
  if (head.starts_with("\xFF\xFE\0\0"sv)) return "UTF-32LE";
  if (head.starts_with("\0\0\xFE\xFF"sv)) return "UTF-32BE";
  if (head.starts_with("\xFF\xFE")) return "UTF-16LE";
  if (head.starts_with("\xFE\xFF")) return "UTF-16BE";
  if (zeros(head, 0, 4) > kMost && zeros(head, 1, 4) > kMost) return "UTF-32BE";
  if (zeros(head, 2, 4) > kMost && zeros(head, 3, 4) > kMost) return "UTF-32LE";
  if (zeros(head, 0, 2) > kMost) return "UTF-16BE";
  if (zeros(head, 1, 2) > kMost) return "UTF-16LE";
  return "";
}

struct Utf8Count {
  std::size_t beyond_ascii = 0;  ///< characters
  std::size_t damaged = 0;
  std::size_t first_damaged = 0;  ///< its first byte
};

Utf8Count count_utf8(std::string_view text) {
  Utf8Count count;
  const auto size = static_cast<std::int32_t>(text.size());
  for (std::int32_t i = 0; i < size;) {
    UChar32 code = 0;
    const auto begin = static_cast<std::size_t>(i);
    U8_NEXT(text.data(), i, size, code);
    if (code < 0 && count.damaged++ == 0) count.first_damaged = begin;
    count.beyond_ascii += code >= 0x80 ? 1u : 0u;
  }
  return count;
}

/// Names that pages use for what is really a larger encoding of Windows.
const char* icu_name(std::string_view name) {
  constexpr std::array<std::pair<const char*, const char*>, 8> kLarger = {
      {{"ISO-8859-1", "windows-1252"},
       {"US-ASCII", "windows-1252"},
       {"ISO-8859-9", "windows-1254"},
       {"TIS-620", "windows-874"},
       {"GB2312", "GB18030"},
       {"GBK", "GB18030"},
       {"EUC-KR", "windows-949"},
       {"KS_C_5601-1987", "windows-949"}}};
  const std::string given(name);
  for (const auto& [small, large] : kLarger) {
    if (ucnv_compareNames(given.c_str(), small) == 0) return large;
    UErrorCode status = U_ZERO_ERROR;
    const char* standard = ucnv_getStandardName(given.c_str(), "MIME", &status);
    if (standard != nullptr && ucnv_compareNames(standard, small) == 0) return large;
  }
  return nullptr;
}

struct Decoded {
  std::string text;
  std::string encoding;
  std::size_t replaced = 0;  ///< characters that are U+FFFD now
};

/// The text from an encoding that ICU knows by this name; nothing if it knows none, or if over one
/// character of a hundred is none there.
std::optional<Decoded> decoded(std::string_view text, std::string_view encoding) {
  const char* larger = icu_name(encoding);
  Decoded out{{}, larger != nullptr ? larger : std::string(encoding), 0};
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<UConverter, decltype(&ucnv_close)> converter(
      ucnv_open(out.encoding.c_str(), &status), &ucnv_close);
  if (U_FAILURE(status) != 0) return std::nullopt;
  icu::UnicodeString wide(text.data(), static_cast<std::int32_t>(text.size()), converter.get(),
                          status);
  if (U_FAILURE(status) != 0) return std::nullopt;
  // ICU has two characters for what is none; U+1A for a byte.
  if (text.find('\x1a') == text.npos) wide.findAndReplace(u"\x1a", u"\xfffd");
  std::int32_t wrong = 0;
  for (std::int32_t i = 0; i < wide.length(); ++i) {
    const char16_t c = wide[i];
    wrong += c == 0xfffd || (c >= 0x80 && c < 0xa0 && c != 0x85) ? 1 : 0;
    out.replaced += c == 0xfffd ? 1u : 0u;
  }
  if (wrong > 0 && wrong > wide.length() / 100) return std::nullopt;
  wide.toUTF8String(out.text);
  if (out.text.starts_with("\xEF\xBB\xBF")) out.text.erase(0, 3);
  return out;
}

/// The lines that have bytes outside ASCII, as many as a detection looks at.
std::string telling_lines(std::string_view text) {
  constexpr std::size_t kSample = 8000;
  std::string out;
  const auto beyond = [](char c) { return (c & 0x80) != 0; };
  for (auto at = text.begin(); out.size() < kSample;) {
    at = std::find_if(at, text.end(), beyond);
    if (at == text.end()) break;
    const auto place = static_cast<std::size_t>(at - text.begin());
    const std::size_t begin = place == 0 ? 0 : text.rfind('\n', place - 1) + 1;
    const std::size_t end = std::min(text.find('\n', place), text.size());
    const std::size_t from = std::max(begin, place - std::min<std::size_t>(place, kSample / 2));
    out += text.substr(from, std::min(end - from, kSample));
    out += '\n';
    at = text.begin() + static_cast<std::ptrdiff_t>(end);
  }
  // Words of ASCII tell the language.
  constexpr std::size_t kEnough = 1000;
  return out.size() < kEnough ? out + std::string(text.substr(0, kSample)) : out;
}

/// Whether the bytes are of Thai, which ICU does not detect: vowels above and below and marks of
/// tone stand behind a consonant only, and no Latin letter stands beside one of Thai.
bool looks_thai(std::string_view text) {
  constexpr std::size_t kFewest = 8;
  std::size_t letters = 0, marks = 0;
  bool after_consonant = false, after_letter = false, after_latin = false;
  for (char c : text) {
    const auto b = static_cast<unsigned char>(c);
    const bool mark = b == 0xd1 || (b >= 0xd4 && b <= 0xda) || (b >= 0xe7 && b <= 0xee);
    const bool other = b >= 0x80 && (b < 0xa1 || (b > 0xda && b < 0xdf) || b > 0xfb);
    const bool letter = b >= 0xa1;
    const bool latin = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (other || (mark && !after_consonant)) return false;
    if ((letter && after_latin) || (latin && after_letter)) return false;
    after_consonant = (b >= 0xa1 && b <= 0xce) || (mark && after_consonant);
    after_letter = letter;
    after_latin = latin;
    letters += letter ? 1u : 0u;
    marks += mark ? 1u : 0u;
  }
  return letters >= kFewest && marks > 0;
}

/// Whether the bytes are of an English text with letters of other languages: "naïve". ICU may take
/// a short one for Czech. Czech texts do not have the English words below.
bool looks_english(std::string_view text) {
  constexpr std::array<std::string_view, 24> kWords = {
      "the",   "of",    "and",  "with", "that",  "this", "from",  "for",
      "which", "not",   "she",  "they", "you",   "his",  "have",  "were",
      "been",  "would", "what", "when", "about", "into", "their", "there"};
  std::size_t words = 0, beyond = 0;
  std::string word;
  for (char c : text) {
    beyond += (c & 0x80) != 0 ? 1u : 0u;
    if (const bool letter = (c & 0xc0) == 0x40 || (c & 0x80) != 0; letter) {
      word += static_cast<char>(c | 0x20);
    } else {
      words += std::ranges::count(kWords, word) > 0 ? 1u : 0u;
      word.clear();
    }
  }
  return beyond > 0 && 2 * words >= beyond;
}

/// What the bytes look like.
std::optional<Decoded> detected(std::string_view text) {
  constexpr std::int32_t kLeast = 22;  // percent
  const std::string sample = telling_lines(text);
  if (looks_thai(sample)) return decoded(text, "windows-874");
  UErrorCode status = U_ZERO_ERROR;
  const std::unique_ptr<UCharsetDetector, decltype(&ucsdet_close)> detector(ucsdet_open(&status),
                                                                            &ucsdet_close);
  ucsdet_enableInputFilter(detector.get(), sample.find("</") != std::string::npos);
  ucsdet_setText(detector.get(), sample.data(), static_cast<std::int32_t>(sample.size()), &status);
  std::int32_t count = 0;
  const UCharsetMatch** found = ucsdet_detectAll(detector.get(), &count, &status);
  if (U_FAILURE(status) != 0) return std::nullopt;
  struct Guess {
    std::string name;
    std::int32_t confidence;
  };
  std::vector<Guess> guesses;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::string name = ucsdet_getName(found[i], &status);
    const std::int32_t confidence = ucsdet_getConfidence(found[i], &status);
    if (confidence < kLeast || name.starts_with("UTF-") || name.starts_with("IBM")) continue;
    guesses.push_back({name, confidence});
  }
  const bool one_byte = std::ranges::none_of(guesses, [](const Guess& g) {
    return !g.name.starts_with("ISO-8859-") && !g.name.starts_with("windows-");
  });
  if (one_byte && looks_english(sample)) guesses.insert(guesses.begin(), {"windows-1252", 100});
  // Lines that end as on an old Macintosh, whose letters lie where Windows has signs, and quotes
  // where it has letters.
  const bool old_lines = text.find('\n') == std::string_view::npos && text.find('\r') != text.npos;
  const bool letters = std::ranges::any_of(text, [](char c) {
    return (c & 0xc0) == 0xc0 &&
           std::string_view("\xc7\xc8\xd0\xd1\xd2\xd3\xd4\xd5").find(c) == std::string_view::npos;
  });
  if (old_lines && !letters) guesses.insert(guesses.begin(), {"macintosh", 100});
  // Of two that are as likely, the rarer one: it has more ways to look wrong.
  std::ranges::stable_sort(guesses, [](const Guess& a, const Guess& b) {
    const auto western = [](const Guess& g) {
      return g.name == "windows-1252" || g.name == "ISO-8859-1";
    };
    return a.confidence != b.confidence ? a.confidence > b.confidence : western(a) < western(b);
  });
  for (const Guess& guess : guesses) {
    if (std::optional<Decoded> out = decoded(text, guess.name)) return out;
  }
  // A few letters in a text of ASCII.
  constexpr std::size_t kRare = 8;
  const auto beyond = std::ranges::count_if(sample, [](char c) { return (c & 0x80) != 0; });
  if (static_cast<std::size_t>(beyond) * kRare < sample.size()) {
    return decoded(text, "windows-1252");
  }
  return std::nullopt;
}

/// UTF-8 with U+FFFD in place of what is damaged.
std::string repaired(std::string_view text) {
  std::string out;
  icu::UnicodeString::fromUTF8(
      icu::StringPiece(text.data(), static_cast<std::int32_t>(text.size())))
      .toUTF8String(out);
  return out;
}

}  // namespace

bool looks_binary(std::string_view text) {
  const std::string_view head = text.substr(0, 4096);
  const auto strange = std::ranges::count_if(head, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 32 && std::strchr("\t\n\r\f\v\b\x1b", c) == nullptr;
  });
  return static_cast<std::size_t>(strange) > head.size() / 20;
}

std::string as_utf8(std::string text, const std::string& name, std::string_view declared,
                    std::string* note) {
  const auto take = [&](Decoded out) {
    if (note != nullptr && out.replaced > 0) {
      *note = fmt::format("{}: characters that {} does not have became U+FFFD: {}", name,
                          out.encoding, out.replaced);
    }
    return std::move(out.text);
  };
  if (note != nullptr) note->clear();
  const std::size_t mark = text.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  text.erase(0, mark);
  const std::string_view wide = wide_encoding(text);
  const std::size_t zero = text.find('\0');
  if (zero != std::string::npos || text.starts_with("%PDF-") || !wide.empty()) {
    const std::string_view kind = sniff(std::as_bytes(std::span(text)));
    const bool is_text = kind.empty() || kind.find("text") != std::string_view::npos;
    require(is_text, ErrorCode::unsupported, "{}: {}, but a text is expected", name, kind);
    std::optional<Decoded> out;
    if (!wide.empty()) out = decoded(text, wide);
    if (out && out->text.find('\0') == std::string::npos && !looks_binary(out->text)) {
      return take(std::move(*out));
    }
    require(zero == std::string::npos, ErrorCode::unsupported, "{}: not a text: byte {} is zero",
            name, mark + zero);
  }
  constexpr std::string_view kShift = "\x1b$";  // of ISO 2022, which has no bytes outside ASCII
  const Utf8Count count = count_utf8(text);
  const bool shifts = count.beyond_ascii == 0 && text.find(kShift) != std::string::npos;
  if (count.damaged == 0 && !shifts && (count.beyond_ascii > 0 || declared.empty())) return text;
  if (!declared.empty() && !declared.starts_with("utf") && !declared.starts_with("UTF")) {
    if (std::optional<Decoded> out = decoded(text, declared)) return take(std::move(*out));
  }
  if (count.damaged == 0 && !shifts) return text;
  require(!looks_binary(text), ErrorCode::unsupported, "{}: {}, but a text is expected", name,
          sniff(std::as_bytes(std::span(text))).empty() ? "binary data"
                                                        : sniff(std::as_bytes(std::span(text))));
  // Other encodings hardly ever look like UTF-8.
  constexpr std::size_t kMostly = 2;
  if (count.beyond_ascii >= kMostly * count.damaged && !shifts) {
    if (note != nullptr) {
      *note = fmt::format("{}: bytes that are not UTF-8 became U+FFFD: {}, the first byte {}", name,
                          count.damaged, mark + count.first_damaged);
    }
    return repaired(text);
  }
  if (std::optional<Decoded> out = detected(text)) {
    if (note != nullptr) {
      *note =
          fmt::format("{}: not UTF-8; read as {}, which its bytes look like", name, out->encoding);
    }
    return take(std::move(*out));
  }
  fail(ErrorCode::unsupported,
       "{}: a text, but not UTF-8, and its encoding cannot be told; convert it: iconv -f ENCODING "
       "-t UTF-8",
       name);
}

std::string read_utf8(const std::filesystem::path& path) {
  return as_utf8(read_file(path), path.string());
}

std::string read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  while (const std::size_t n = std::fread(buffer, 1, sizeof buffer, stdin)) {
    text.append(buffer, n);
    require(text.size() <= Readable{}.most, ErrorCode::over_limit,
            "standard input: over {} bytes, more than a text may have", Readable{}.most);
  }
  require(std::ferror(stdin) == 0, ErrorCode::io, "cannot read standard input: {}",
          std::strerror(errno));
  return text;
}

std::string read_input(const std::string& path, std::string* note) {
  if (path == "-") return as_utf8(read_standard_input(), "standard input", {}, note);
  return as_utf8(read_file(path), path, {}, note);
}

}  // namespace ballast
