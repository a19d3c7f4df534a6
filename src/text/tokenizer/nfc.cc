#include "text/tokenizer/nfc.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/stringpiece.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "text/tokenizer/utf8.h"

namespace ballast {
namespace {

constexpr unsigned char kFirstMark = 0xcc;  // begins U+0300, and no character before it

const icu::Normalizer2& normal_form(const icu::Normalizer2* (*get)(UErrorCode&)) {
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* form = get(status);
  require(U_SUCCESS(status), "Unicode normalisation is not available ({})", u_errorName(status));
  return *form;
}

using Marks = std::vector<std::pair<std::uint8_t, char32_t>>;  // with their classes

void append_decomposed(const icu::Normalizer2& nfd, char32_t code, Marks& marks) {
  icu::UnicodeString parts;
  if (!nfd.getDecomposition(static_cast<UChar32>(code), parts)) {
    parts = icu::UnicodeString(static_cast<UChar32>(code));
  }
  for (std::int32_t i = 0; i < parts.length(); i = parts.moveIndex32(i, 1)) {
    const UChar32 part = parts.char32At(i);
    marks.emplace_back(nfd.getCombiningClass(part), static_cast<char32_t>(part));
  }
}

}  // namespace

std::string order_marks(std::string_view text, std::size_t longest) {
  const icu::Normalizer2& nfd = normal_form(icu::Normalizer2::getNFDInstance);
  std::string out;
  std::size_t copied = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < kFirstMark) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    std::size_t count = 0;
    Utf8Char c;
    for (; i < text.size(); i += c.length, ++count) {
      c = next_utf8(text, i);
      if (c.state != Utf8Char::State::valid ||
          nfd.hasBoundaryBefore(static_cast<UChar32>(c.code))) {
        break;
      }
    }
    if (count <= longest) {
      if (i < text.size()) i += c.length;
      continue;
    }
    Marks marks;
    for (std::size_t at = begin; at < i; at += c.length) {
      c = next_utf8(text, at);
      append_decomposed(nfd, c.code, marks);
    }
    std::ranges::stable_sort(marks, {}, &Marks::value_type::first);
    out += text.substr(copied, begin - copied);
    for (const auto& [order, code] : marks) append_utf8(out, code);
    copied = i;
  }
  out += text.substr(copied);
  return out;
}

std::string to_nfc(std::string_view text) {
  const icu::Normalizer2& nfc = normal_form(icu::Normalizer2::getNFCInstance);
  std::string ordered = order_marks(text);
  UErrorCode status = U_ZERO_ERROR;
  if (nfc.isNormalizedUTF8(ordered, status) && U_SUCCESS(status)) return ordered;
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<std::int32_t>(ordered.size()));
  status = U_ZERO_ERROR;
  nfc.normalizeUTF8(0, ordered, sink, nullptr, status);
  require(U_SUCCESS(status), "Unicode normalisation fails ({})", u_errorName(status));
  return out;
}

}  // namespace ballast
