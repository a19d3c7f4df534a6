// The rows of q4, q3 and q2 by their formulas, in float64.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "ballast/storage.h"

namespace ballast::test {

struct Code {
  StorageType type;
  std::vector<double> words;  ///< Lloyd-Max for a standard normal, the positive ones
  double error;               ///< relative, squared, of normal rows
};
inline const Code kCodes[] = {
    {StorageType::q4, {0.1284, 0.3881, 0.6568, 0.9424, 1.2562, 1.6181, 2.0690, 2.7326}, 0.0095},
    {StorageType::q3, {0.2451, 0.7560, 1.3439, 2.1520}, 0.0345},
    {StorageType::q2, {0.4528, 1.5104}, 0.1175}};
// The signs of columns: the fraction of π in hexadecimal, in words of 64 bits, lowest bit first.
inline double sign(std::size_t i) {
  const char* digits = "243F6A8885A308D313198A2E03707344A4093822299F31D0082EFA98EC4E6C89";
  const std::size_t digit = i / 64 * 16 + 15 - i % 64 / 4;
  const char c = digits[digit % 64];
  const int value = c <= '9' ? c - '0' : c - 'A' + 10;
  return (value >> i % 4 & 1) != 0 ? -1.0 : 1.0;
}

// Entry of Paley's matrix: row 0 ones, column 0 minus ones, the diagonal ones, else the Legendre
// symbol of j - i by Euler's criterion.
inline double paley(int q, int i, int j) {
  if (i == 0 || i == j) return 1.0;
  if (j == 0) return -1.0;
  int power = 1;
  for (int k = 0; k < (q - 1) / 2; ++k) power = power * ((j - i + q) % q) % q;
  return power == 1 ? 1.0 : -1.0;
}

inline double walsh(std::size_t i, std::size_t j) {
  return __builtin_popcountll(i & j) % 2 == 0 ? 1.0 : -1.0;
}

// R for rows of `dim` elements.
inline std::vector<std::vector<double>> rotation(std::size_t dim) {
  std::size_t base = 1, power = dim & (~dim + 1);
  for (std::size_t b : {12, 20}) {
    if (dim % b == 0 && (dim / b & (dim / b - 1)) == 0) {
      base = b;
      power = dim / b;
    }
  }
  const std::size_t block = base * power;
  std::vector<std::vector<double>> r(dim, std::vector<double>(dim, 0.0));
  for (std::size_t i = 0; i < dim; ++i) {
    for (std::size_t j = 0; j < dim; ++j) {
      if (i / block != j / block) continue;
      const std::size_t a = i % block, b = j % block;
      double h = walsh(a % power, b % power);
      if (base > 1) {
        h *= paley(static_cast<int>(base) - 1, static_cast<int>(a / power),
                   static_cast<int>(b / power));
      }
      r[i][j] = h * sign(j) / std::sqrt(static_cast<double>(block));
    }
  }
  return r;
}

// The integer codewords of a type, from the real ones.
inline std::vector<double> integer_words(const Code& code) {
  std::vector<double> words;
  for (double w : code.words) {
    words.push_back(std::round(w * 127.0 / code.words.back()));
    words.push_back(-words.back());
  }
  return words;
}

// Code n of a row, from the layout in docs/design.md.
inline unsigned code_at(StorageType type, std::span<const std::byte> row, std::size_t dim,
                        std::size_t n) {
  const std::size_t bits = type == StorageType::q4 ? 4 : 2;
  const std::size_t bytes = (dim * bits + 7) / 8, half = (bytes + 1) / 2;
  const std::size_t field = n / bytes, j = n % bytes;
  unsigned code = std::to_integer<unsigned>(row[j]) >> (field * bits) & ((1u << bits) - 1);
  if (type == StorageType::q3) {
    const auto high = std::to_integer<unsigned>(row[bytes + j % half]);
    code |= (high >> (2 * field + j / half) & 1) << 2;
  }
  return code;
}

}  // namespace ballast::test
