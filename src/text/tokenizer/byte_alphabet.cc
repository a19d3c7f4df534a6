#include "text/tokenizer/byte_alphabet.h"

#include <array>

#include "text/tokenizer/utf8.h"

namespace ballast {
namespace {

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Tables {
  std::array<char32_t, 256> letter{};
  std::array<int, 0x144> byte{};  // -1: not a letter
};

constexpr Tables make_tables() {
  Tables tables;
  for (int& b : tables.byte) b = -1;
  char32_t next = 0x100;
  for (unsigned b = 0; b < 256; ++b) {
    const char32_t letter = stands_for_itself(b) ? b : next++;
    tables.letter[b] = letter;
    tables.byte[letter] = static_cast<int>(b);
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

std::optional<std::string> from_byte_alphabet(std::string_view piece) {
  std::string bytes;
  for (std::size_t i = 0; i < piece.size();) {
    const Utf8Char c = next_utf8(piece, i);
    if (c.code >= kTables.byte.size() || kTables.byte[c.code] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kTables.byte[c.code]));
    i += c.length;
  }
  return bytes;
}

std::string to_byte_alphabet(std::string_view bytes) {
  std::string out;
  for (char b : bytes) append_utf8(out, kTables.letter[static_cast<unsigned char>(b)]);
  return out;
}

}  // namespace ballast
