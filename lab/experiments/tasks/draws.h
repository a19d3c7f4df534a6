// Random words and numbers of made-up texts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ballast {

inline constexpr std::array<std::string_view, 64> kAdjectives = {
    "amber",   "ancient", "bitter", "blank",   "bold",    "brave",  "brisk",  "calm",
    "chilly",  "clever",  "cloudy", "copper",  "cosmic",  "crisp",  "curly",  "damp",
    "distant", "dusty",   "eager",  "elegant", "faint",   "famous", "fierce", "floral",
    "frosty",  "gentle",  "giant",  "glossy",  "golden",  "grumpy", "hidden", "hollow",
    "humble",  "icy",     "ivory",  "jolly",   "lively",  "lonely", "lunar",  "mellow",
    "misty",   "narrow",  "noble",  "odd",     "patient", "plain",  "quick",  "quiet",
    "rapid",   "rusty",   "salty",  "shiny",   "silent",  "solar",  "spicy",  "steep",
    "sturdy",  "sunny",   "tall",   "tender",  "velvet",  "vivid",  "wooden", "zesty"};
inline constexpr std::array<std::string_view, 64> kNouns = {
    "anchor", "apple",    "badge",  "basket",  "beacon",  "bottle", "bridge",  "button",
    "cabin",  "candle",   "canyon", "carpet",  "castle",  "clock",  "comet",   "cradle",
    "dagger", "desert",   "dragon", "drum",    "eagle",   "engine", "falcon",  "feather",
    "forest", "fountain", "garden", "glacier", "guitar",  "hammer", "harbor",  "hedge",
    "island", "jacket",   "kettle", "ladder",  "lantern", "lemon",  "library", "lizard",
    "magnet", "marble",   "meadow", "mirror",  "needle",  "ocean",  "orchard", "palace",
    "parrot", "pebble",   "pillow", "planet",  "puzzle",  "ribbon", "river",   "saddle",
    "shadow", "spoon",    "temple", "thunder", "tower",   "tunnel", "violin",  "window"};

/// Random numbers that are equal on every machine, unlike the standard's distributions.
class Draws {
 public:
  Draws(std::string_view what, std::uint64_t seed) {
    std::uint64_t mixed = 0xcbf29ce484222325u;
    for (char c : what) mixed = (mixed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    engine_.seed(mixed ^ (seed * 0x9e3779b97f4a7c15u));
  }
  std::size_t below(std::size_t n) { return engine_() % n; }
  double unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  template <typename T>
  void shuffle(std::vector<T>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }
  std::string digits(std::size_t count) {
    std::string out(1, static_cast<char>('1' + below(9)));
    while (out.size() < count) out += static_cast<char>('0' + below(10));
    return out;
  }
  /// Draws from many combinations, because LongEval's words hardly repeat within a record.
  std::string rare_word() {
    constexpr std::string_view consonants = "bcdfghjklmnprstvwz", vowels = "aeiou";
    std::string out;
    for (std::size_t syllables = 2 + below(2); syllables > 0; --syllables) {
      out += consonants[below(consonants.size())];
      out += vowels[below(vowels.size())];
    }
    return out + consonants[below(consonants.size())];
  }
  std::string rare_key() {
    const bool first = below(4) == 0, second = below(4) == 0;
    std::string out = first ? std::string(kAdjectives[below(kAdjectives.size())]) : rare_word();
    out += '-';
    return out + (second ? std::string(kNouns[below(kNouns.size())]) : rare_word());
  }
  std::string key(std::string_view between) {
    std::string out(kAdjectives[below(kAdjectives.size())]);
    return out.append(between).append(kNouns[below(kNouns.size())]);
  }
  std::string hexadecimal(std::size_t count) {
    std::string out;
    while (out.size() < count) out += "0123456789abcdef"[below(16)];
    return out;
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace ballast
