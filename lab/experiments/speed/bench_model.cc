#include "experiments/speed/bench_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>

#include "base/fail.h"
#include "base/partial_files.h"
#include "experiments/data/random_model.h"

namespace ballast {

void BenchModelParameters::describe(Parameters& p) {
  p.add_model(path, "The model");
  p.add("--shape", shape,
        "A model of random weights instead: 'default', or sizes such as "
        "layers=12,width=768,heads=12,kv=4,head=64,hidden=2048,vocabulary=32000,type=q8_0",
        {.type = "SIZES"});
  p.add("--write-model", keep, "Keep that model in this GGUF file", {.type = "FILE"});
}

BenchModel::BenchModel(const BenchModelParameters& flags) {
  require(flags.path.empty() != flags.shape.empty(), "give -m FILE or --shape, {}",
          flags.path.empty() ? "one of the two" : "not both");
  require(flags.keep.empty() || !flags.shape.empty(), "--write-model needs --shape");
  path_ = flags.path;
  if (flags.shape.empty()) return;
  const RandomModel shape = parse_random_model(flags.shape == "default" ? "" : flags.shape);
  path_ = flags.keep;
  if (flags.keep.empty()) {
    path_ =
        std::filesystem::temp_directory_path() / fmt::format("ballast-bench-{}.gguf", ::getpid());
    note_ = note_partial_file(path_.string());
    temporary_ = true;
  }
  write_random_model(shape, path_);
}

BenchModel::~BenchModel() {
  if (!temporary_) return;
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  forget_partial_file(note_);
}

std::size_t parse_amount(std::string_view text, std::string_view what) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (std::string_view suffix : {"iB", "B"}) {
    if (unit.ends_with(suffix)) {
      unit.remove_suffix(suffix.size());
      break;
    }
  }
  constexpr std::string_view kUnits = "kMG";
  const std::size_t power = unit.empty() ? 0 : kUnits.find(unit[0] == 'K' ? 'k' : unit[0]) + 1;
  const bool known = unit.empty() || (unit.size() == 1 && power > 0);
  const double amount = std::ldexp(value, static_cast<int>(10 * power));
  require(error == std::errc() && known && amount >= 1 && amount < 1e18,
          "{} {}: expected a number such as 512, 16k or 1.5G", what, text);
  return static_cast<std::size_t>(amount);
}

}  // namespace ballast
