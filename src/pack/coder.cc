#include "pack/coder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/fail.h"

namespace ballast {
namespace {

// States lie in [kLow, kLow · 2^16); 16 bits are read or written at a time.
constexpr std::uint32_t kLow = 1 << 16;
constexpr std::uint32_t kAll = 1 << PackTable::kBits;
constexpr std::size_t kStates = 8;
constexpr std::size_t kLast = PackTable::kClasses - 1;
constexpr int kRawBits = 12;  // written at once at most
constexpr int kLengthBits = 5;

/// Symbols: 0, then for each class from 1 on the positive and the negative one.
std::size_t symbol_of(std::size_t magnitude_class, bool negative) {
  return magnitude_class == 0 ? 0 : 2 * magnitude_class - (negative ? 0 : 1);
}

/// Where the frequencies of the symbols begin.
std::array<std::uint16_t, 2 * PackTable::kClasses> starts(const PackTable& table) {
  std::array<std::uint16_t, 2 * PackTable::kClasses> out{};
  std::size_t at = 0;
  for (std::size_t s = 0; s < 2 * PackTable::kClasses - 1; ++s) {
    out[s] = static_cast<std::uint16_t>(at);
    at += table.frequency[(s + 1) / 2];
  }
  return out;
}

/// What a magnitude beyond 0 consists of: a class, low bits, and for the last class the classes
/// beyond it, of which there are 2^length - 1 or more.
struct Parts {
  std::size_t number = 0;
  std::uint32_t low = 0;
  std::uint32_t beyond = 0;  ///< classes beyond the last, + 1
  int length = 0;            ///< bits of `beyond` below its highest
};

Parts parts_of(int low_bits, std::uint32_t magnitude) {
  const std::uint32_t number = ((magnitude - 1) >> low_bits) + 1;
  Parts out;
  out.low = (magnitude - 1) & ((1u << low_bits) - 1);
  out.number = std::min<std::size_t>(number, kLast);
  if (number >= kLast) {
    out.beyond = number - static_cast<std::uint32_t>(kLast) + 1;
    out.length = std::bit_width(out.beyond) - 1;
  }
  return out;
}

/// Operations of the encoder, which makes them in reverse.
class Operations {
 public:
  explicit Operations(std::size_t count) { all_.reserve(count); }
  void add(std::size_t state, std::uint32_t start, std::uint32_t frequency) {
    all_.push_back({start, frequency, static_cast<std::uint32_t>(state)});
  }
  void add_bits(std::size_t state, std::uint32_t value, int bits) {
    for (; bits > kRawBits; bits -= kRawBits) {
      add_few(state, value & ((1u << kRawBits) - 1), kRawBits);
      value >>= kRawBits;
    }
    if (bits > 0) add_few(state, value, bits);
  }
  std::vector<std::byte> run() const {
    std::array<std::uint32_t, kStates> states;
    states.fill(kLow);
    std::vector<std::uint16_t> words;
    words.reserve(all_.size() / 4);
    for (std::size_t i = all_.size(); i-- > 0;) {
      const Operation& op = all_[i];
      std::uint32_t& x = states[op.state];
      if (x >= (std::uint64_t{kLow >> PackTable::kBits} << 16) * op.frequency) {
        words.push_back(static_cast<std::uint16_t>(x & 0xffff));
        x >>= 16;
      }
      x = ((x / op.frequency) << PackTable::kBits) + x % op.frequency + op.start;
    }
    std::vector<std::byte> out(sizeof(states) + words.size() * 2);
    std::memcpy(out.data(), states.data(), sizeof(states));
    std::ranges::reverse(words);
    if (!words.empty()) std::memcpy(out.data() + sizeof(states), words.data(), words.size() * 2);
    return out;
  }

 private:
  struct Operation {
    std::uint32_t start : PackTable::kBits, frequency : PackTable::kBits + 1, state : 3;
  };
  void add_few(std::size_t state, std::uint32_t value, int bits) {
    add(state, value << (PackTable::kBits - bits), 1u << (PackTable::kBits - bits));
  }
  std::vector<Operation> all_;
};

}  // namespace

namespace pack_spread {

std::uint8_t of(double steps) {
  const double spread = std::round(3 * std::log2(std::max(steps, 1e-9)) + 9);
  if (spread < kLeast) return kNone;
  return static_cast<std::uint8_t>(std::min<double>(spread, kCount - 1));
}

double steps(std::uint8_t spread) { return std::exp2((spread - 9) / 3.0); }

}  // namespace pack_spread

PackTable PackTable::of(std::uint8_t spread, std::span<const std::uint64_t, kClasses> counts) {
  // What a Laplace distribution of that spread would be, as if seen eight times.
  const double size = std::exp2(pack_spread::low_bits(spread));
  const double decay = std::exp(-std::sqrt(2.0) * size / pack_spread::steps(spread));
  std::array<double, kClasses> weight;
  double sum = 0, prior = 8 * (1 - decay);
  for (std::size_t c = 0; c < kClasses; ++c) {
    weight[c] = static_cast<double>(counts[c]) + prior;
    sum += weight[c];
    prior *= decay;
  }
  PackTable out;
  std::size_t rest = kAll;
  for (std::size_t c = 1; c < kClasses; ++c) {
    const double share = weight[c] / sum * kAll / 2;
    out.frequency[c] = static_cast<std::uint16_t>(std::max(1.0, std::round(share)));
    rest -= 2 * out.frequency[c];
  }
  // Rounding may leave nothing for zero where it is rare: the most frequent class gives way.
  while (rest == 0 || rest > kAll) {
    --*std::max_element(out.frequency.begin() + 1, out.frequency.end());
    rest += 2;
  }
  out.frequency[0] = static_cast<std::uint16_t>(rest);
  return out;
}

void PackTable::save(ByteWriter& out) const {
  out.put(frequency);
  out.put(less);
}

PackTable PackTable::load(ByteReader& in) {
  auto out = PackTable();
  out.frequency = in.get<decltype(out.frequency)>();
  out.less = in.get<decltype(out.less)>();
  std::size_t sum = 0;
  for (std::size_t c = 0; c < kClasses; ++c) {
    require(out.frequency[c] > 0, "{}: a symbol has no frequency", in.what());
    sum += (c == 0 ? 1u : 2u) * std::size_t{out.frequency[c]};
  }
  require(sum == kAll, "{}: the frequencies of a table add up to {}, not to {}", in.what(), sum,
          kAll);
  return out;
}

PackClass pack_class(std::uint8_t spread, std::uint32_t magnitude) {
  if (magnitude == 0) return {};
  const int low_bits = pack_spread::low_bits(spread);
  const Parts parts = parts_of(low_bits, magnitude);
  const int length = parts.number == kLast ? kLengthBits + parts.length : 0;
  return {parts.number, static_cast<std::size_t>(low_bits + length)};
}

std::vector<std::byte> encode_integers(std::span<const std::int32_t> integers, std::size_t tokens,
                                       std::span<const std::uint8_t> spreads,
                                       const PackTables& tables) {
  Operations operations(integers.size() + integers.size() / 4);
  for (std::size_t i = 0; i < spreads.size(); ++i) {
    if (spreads[i] == pack_spread::kNone) continue;
    const PackTable& table = tables[spreads[i]];
    const auto start = starts(table);
    const int low_bits = pack_spread::low_bits(spreads[i]);
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::int32_t q = integers[i * tokens + t];
      const std::size_t state = t % kStates;
      if (q == 0) {
        operations.add(state, start[0], table.frequency[0]);
        continue;
      }
      const Parts parts = parts_of(low_bits, static_cast<std::uint32_t>(std::abs(q)));
      operations.add(state, start[symbol_of(parts.number, q < 0)], table.frequency[parts.number]);
      if (parts.number == kLast) {
        operations.add_bits(state, static_cast<std::uint32_t>(parts.length), kLengthBits);
        operations.add_bits(state, parts.beyond - (1u << parts.length), parts.length);
      }
      operations.add_bits(state, parts.low, low_bits);
    }
  }
  return operations.run();
}

PackDecoder::PackDecoder(std::span<const std::uint8_t> spreads, const PackTables& tables) {
  std::array<bool, pack_spread::kCount> used{};
  for (std::uint8_t spread : spreads) used[spread] = true;
  used[pack_spread::kNone] = false;
  slots_.resize(static_cast<std::size_t>(std::ranges::count(used, true)));
  std::uint8_t next = 0;
  for (std::size_t s = 0; s < used.size(); ++s) {
    if (!used[s]) continue;
    slots_of_[s] = next;
    Slots& slots = slots_[next++];
    slots.start = starts(tables[s]);
    for (std::size_t symbol = 0; symbol < 2 * PackTable::kClasses - 1; ++symbol) {
      slots.frequency[symbol] = tables[s].frequency[(symbol + 1) / 2];
      std::fill_n(slots.symbol.begin() + slots.start[symbol], slots.frequency[symbol],
                  static_cast<std::uint8_t>(symbol));
    }
  }
}

void PackDecoder::decode(std::span<const std::byte> bytes, std::size_t tokens,
                         std::span<const std::uint8_t> spreads,
                         std::span<std::int32_t> integers) const {
  constexpr const char* kDamaged = "a packed block is damaged";
  std::array<std::uint32_t, kStates> states;
  require(bytes.size() >= sizeof(states) && bytes.size() % 2 == 0, kDamaged);
  std::memcpy(states.data(), bytes.data(), sizeof(states));
  const std::byte* at = bytes.data() + sizeof(states);
  const std::byte* const end = bytes.data() + bytes.size();
  const auto renew = [&](std::uint32_t& x) {
    if (x >= kLow) return;
    require(at != end, kDamaged);
    std::uint16_t word = 0;
    std::memcpy(&word, at, sizeof(word));
    at += sizeof(word);
    x = x << 16 | word;
  };
  const auto few_bits = [&](std::uint32_t& x, int bits) {
    const std::uint32_t value = (x & (kAll - 1)) >> (PackTable::kBits - bits);
    x = ((x >> PackTable::kBits) << (PackTable::kBits - bits)) +
        (x & ((1u << (PackTable::kBits - bits)) - 1));
    renew(x);
    return value;
  };
  const auto some_bits = [&](std::uint32_t& x, int bits) {
    std::uint32_t value = 0;
    int have = 0;
    for (; bits - have > kRawBits; have += kRawBits) value |= few_bits(x, kRawBits) << have;
    if (bits > have) value |= few_bits(x, bits - have) << have;
    return value;
  };
  for (std::size_t i = 0; i < spreads.size(); ++i) {
    std::int32_t* const out = integers.data() + i * tokens;
    if (spreads[i] == pack_spread::kNone) {
      std::fill_n(out, tokens, 0);
      continue;
    }
    const Slots& slots = slots_[slots_of_[spreads[i]]];
    const int low_bits = pack_spread::low_bits(spreads[i]);
    for (std::size_t t = 0; t < tokens; ++t) {
      std::uint32_t& x = states[t % kStates];
      const std::uint32_t slot = x & (kAll - 1);
      const std::size_t symbol = slots.symbol[slot];
      x = slots.frequency[symbol] * (x >> PackTable::kBits) + slot - slots.start[symbol];
      renew(x);
      if (symbol == 0) {
        out[t] = 0;
        continue;
      }
      std::uint64_t number = (symbol + 1) / 2;
      if (number == kLast) {
        const auto length = static_cast<int>(some_bits(x, kLengthBits));
        require(length <= 24, kDamaged);
        number += (std::uint64_t{1} << length) + some_bits(x, length) - 1;
      }
      const std::uint64_t magnitude = ((number - 1) << low_bits) + some_bits(x, low_bits) + 1;
      require(magnitude <= static_cast<std::uint64_t>(kMostPacked), kDamaged);
      out[t] = symbol % 2 == 0 ? -static_cast<std::int32_t>(magnitude)
                               : static_cast<std::int32_t>(magnitude);
    }
  }
  require(at == end && std::ranges::all_of(states, [](std::uint32_t x) { return x == kLow; }),
          kDamaged);
}

namespace {

/// Rounds coefficients of one spread: a dead zone about 0, and steps whose edges lie a little
/// outwards, as the density falls.
class Quantizer {
 public:
  Quantizer(std::uint8_t spread, float step) : inverse_(1 / step) {
    constexpr double kOutwards = 0.0578;
    const double steps = pack_spread::steps(spread);
    dead_ = static_cast<float>(0.5 + kOutwards * (1.5 + std::min(6.0, 1.2 / steps)));
    edge_ = static_cast<float>(0.5 + kOutwards * std::min(2.0, 1 / steps));
  }
  float in_steps(float y) const {
    return std::min(std::fabs(y) * inverse_, static_cast<float>(kMostPacked));
  }
  std::int32_t magnitude(float steps) const {
    if (!(steps >= dead_)) return 0;
    return std::min(std::max(1, static_cast<std::int32_t>(steps - edge_ + 1.0f)), kMostPacked);
  }
  std::int32_t operator()(float y) const {
    const std::int32_t m = magnitude(in_steps(y));
    return y < 0 ? -m : m;
  }

 private:
  float inverse_, dead_, edge_;
};

}  // namespace

PackPlan PackPlan::of(std::span<const float> known, ConstMatrix samples, float step) {
  constexpr double kKnown = 16;  // samples that a variance counts as
  PackPlan out;
  const std::size_t k = samples.cols;
  const double weight = known.empty() ? 0 : kKnown;
  out.spreads.resize(k);
  std::vector<double> sums(k);
  for (std::size_t t = 0; t < samples.rows; ++t) {
    for (std::size_t i = 0; i < k; ++i) sums[i] += double{samples[t][i]} * samples[t][i];
  }
  struct Seen {
    std::array<std::uint64_t, PackTable::kClasses> classes{};
    std::array<double, 3> less{};
    std::array<std::uint64_t, 3> count{};
    double more_bits = 0;
  };
  std::array<Seen, pack_spread::kCount> seen{};
  for (std::size_t i = 0; i < k; ++i) {
    const double before = known.empty() ? 0 : weight * double{known[i]};
    const double variance = (sums[i] + before) / (static_cast<double>(samples.rows) + weight);
    const std::uint8_t spread = pack_spread::of(std::sqrt(variance) / double{step});
    out.spreads[i] = spread;
    if (spread == pack_spread::kNone) continue;
    const Quantizer quantizer(spread, step);
    Seen& of = seen[spread];
    for (std::size_t t = 0; t < samples.rows; ++t) {
      const float steps = quantizer.in_steps(samples[t][i]);
      const std::int32_t q = quantizer.magnitude(steps);
      const PackClass c = pack_class(spread, static_cast<std::uint32_t>(q));
      ++of.classes[c.number];
      of.more_bits += static_cast<double>(c.more_bits);
      if (q == 0) continue;
      const std::size_t which = std::min(q, 3) - 1;
      of.less[which] += double{static_cast<float>(q)} - double{steps};
      ++of.count[which];
    }
  }
  for (std::size_t s = 0; s < seen.size(); ++s) {
    if (std::ranges::find(out.spreads, s) == out.spreads.end() || s == pack_spread::kNone) continue;
    PackTable& table = out.tables[s];
    table = PackTable::of(static_cast<std::uint8_t>(s), seen[s].classes);
    for (std::size_t i = 0; i < 3; ++i) {
      if (seen[s].count[i] == 0) continue;
      const double less = seen[s].less[i] / static_cast<double>(seen[s].count[i]);
      table.less[i] = static_cast<std::int8_t>(std::clamp(std::round(256 * less), -127.0, 127.0));
    }
    for (std::size_t c = 0; c < PackTable::kClasses; ++c) {
      out.bits += static_cast<double>(seen[s].classes[c]) *
                  (PackTable::kBits - std::log2(static_cast<double>(table.frequency[c])));
    }
    out.bits += seen[s].more_bits;
  }
  return out;
}

PackedRows::Code PackPlan::code() const {
  MemoryWriter out;
  for (const PackTable& table : tables) {
    if (table.frequency[0] != 0) table.save(out);
  }
  return {spreads, std::move(out.bytes)};
}

PackTables PackPlan::tables_of(const PackedRows::Code& code) {
  std::array<bool, pack_spread::kCount> used{};
  for (std::uint8_t spread : code.spread) used[spread] = true;
  PackTables out{};
  ByteReader in(code.tables, "packed rows");
  for (std::size_t s = pack_spread::kLeast; s < used.size(); ++s) {
    if (used[s]) out[s] = PackTable::load(in);
  }
  require(in.left() == 0, "packed rows: {} bytes too many of tables", in.left());
  return out;
}

std::vector<std::int32_t> PackPlan::integers(ConstMatrix rows, float step) const {
  std::vector<std::int32_t> out(rows.cols * rows.rows);
  for (std::size_t i = 0; i < rows.cols; ++i) {
    if (spreads[i] == pack_spread::kNone) continue;
    const Quantizer quantizer(spreads[i], step);
    for (std::size_t t = 0; t < rows.rows; ++t) out[i * rows.rows + t] = quantizer(rows[t][i]);
  }
  return out;
}

Matrix pack_values(std::span<const std::int32_t> integers, std::size_t rows,
                   std::span<const std::uint8_t> spreads, const PackTables& tables, float step) {
  Matrix out(rows, spreads.size());
  for (std::size_t c = 0; c < spreads.size(); ++c) {
    const PackTable& table = tables[spreads[c]];
    for (std::size_t t = 0; t < rows; ++t) {
      const std::int32_t q = integers[c * rows + t];
      if (q == 0) continue;
      const std::int32_t magnitude = std::abs(q);
      const float less = table.less[static_cast<std::size_t>(std::min(magnitude, 3) - 1)];
      const float at = (static_cast<float>(magnitude) - less / 256.0f) * step;
      out[t][c] = q < 0 ? -at : at;
    }
  }
  return out;
}

}  // namespace ballast
