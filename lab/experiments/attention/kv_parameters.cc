#include "experiments/attention/kv_parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <numeric>

#include "base/fail.h"
#include "experiments/data/kv_file.h"
#include "report/units.h"

namespace ballast {

void describe_synth(Parameters& p, SynthOptions& o) {
  p.add("--tokens", o.tokens, "Tokens");
  p.add("--layers", o.layers, "Layers");
  p.add("--heads", o.heads, "Query heads, a multiple of --kv-heads");
  p.add("--kv-heads", o.kv_heads, "KV heads");
  p.add("--dim", o.dim, "Head dimension, up to 256");
  p.add("--clusters", o.clusters, "Clusters of keys in a head");
  p.add("--query-norm", o.query_norm, "Mean length of queries");
  p.add("--key-norm", o.key_norm, "Mean length of keys less their mean");
  p.add("--value-norm", o.value_norm, "Mean length of values");
  p.add("--sink-tokens", o.sink, "First tokens, which attract about half of all attention");
  p.add("--needle", o.needle,
        "Plant a needle there, 0 to 1 of the text: a key that the last query of the last head "
        "matches; -1: none");
}

std::vector<std::size_t> parse_selection(std::string_view text, std::string_view what) {
  std::vector<std::size_t> out;
  auto number = [&](std::string_view part) {
    std::uint32_t value = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    require(error == std::errc() && end == part.data() + part.size() && value < 1000000,
            "{} {}: expected numbers and ranges such as 0,2,5-7", what, text);
    return std::size_t{value};
  };
  for (std::string_view rest = text; !text.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const std::size_t dash = item.find('-');
    const std::size_t low = number(item.substr(0, dash));
    const std::size_t high = dash == std::string_view::npos ? low : number(item.substr(dash + 1));
    require(low <= high, "{} {}: the range {} ends before it begins", what, text, item);
    for (std::size_t i = low; i <= high; ++i) out.push_back(i);
    if (item.size() == rest.size()) break;
    rest.remove_prefix(item.size() + 1);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void KvParameters::describe(Parameters& p, const char* seed_help, bool folders) {
  std::string help = "Tensors layer.{i}.q|k|v of [heads, tokens, dim] (safetensors)";
  if (folders) help += "; or a folder of such files: means over them";
  p.add("FILE", file, help);
  p.add("--synth", synth, "Use a made-up stream instead of a file");
  p.add("--seed", synth_options.seed, seed_help);
  p.add("--select-layers", layers, "Only these layers, such as 0,2,5-7", {.type = "LIST"});
  p.add("--select-kv-heads", kv_heads, "Only these KV heads", {.type = "LIST"});
  p.group("With --synth");
  describe_synth(p, synth_options);
  p.group("");
}

std::unique_ptr<KvSource> KvParameters::open(const std::string& command) const {
  require(synth != !file.empty(), "{}: give a file or --synth, {}", command,
          synth ? "not both" : "one of the two");
  if (synth) return std::make_unique<Synth>(synth_options);
  return std::make_unique<KvFile>(file);
}

std::vector<KvParameters> KvParameters::each() const {
  if (synth || !std::filesystem::is_directory(file)) return {*this};
  std::vector<KvParameters> out;
  for (const auto& entry : std::filesystem::directory_iterator(file)) {
    if (entry.path().extension() != ".safetensors") continue;
    out.push_back(*this);
    out.back().file = entry.path().string();
  }
  require(!out.empty(), "{}: a folder without safetensors files; ballast capture --data makes them",
          file);
  std::ranges::sort(out, {}, &KvParameters::file);
  return out;
}

std::vector<std::size_t> KvParameters::selected_layers(const KvSource& source) const {
  const std::size_t count = source.shape().layers;
  std::vector<std::size_t> out;
  for (std::size_t number : parse_selection(layers, "--select-layers")) {
    std::size_t i = 0;
    while (i < count && source.layer_number(i) != number) ++i;
    require(i < count, "{}: there is no layer {}", source.name(), number);
    out.push_back(i);
  }
  if (out.empty()) {
    out.resize(count);
    std::iota(out.begin(), out.end(), std::size_t{0});
  }
  return out;
}

std::vector<std::size_t> KvParameters::selected_kv_heads(const KvSource& source) const {
  const std::size_t count = source.shape().kv_heads;
  std::vector<std::size_t> out = parse_selection(kv_heads, "--select-kv-heads");
  for (std::size_t head : out) {
    require(head < count, "{}: there is no KV head {}; there are {}, counted from 0", source.name(),
            head, count);
  }
  if (out.empty()) {
    out.resize(count);
    std::iota(out.begin(), out.end(), std::size_t{0});
  }
  return out;
}

Json KvParameters::settings(const KvSource& source) const {
  const KvShape& s = source.shape();
  Json layer_numbers = Json::array();
  for (std::size_t l : selected_layers(source)) layer_numbers.push_back(source.layer_number(l));
  Json out = {{"source", source.name()}, {"layers", layer_numbers},
              {"heads", s.heads},        {"kv_heads", selected_kv_heads(source)},
              {"tokens", s.tokens},      {"dim", s.key_dim}};
  if (synth) {
    out["synth"] = {{"seed", synth_options.seed},
                    {"clusters", synth_options.clusters},
                    {"needle", synth_options.needle}};
  }
  return out;
}

Json KvParameters::identity(const KvSource& source) const {
  Json out = settings(source);
  if (synth) {
    const SynthOptions& s = synth_options;
    out["norms"] = {s.query_norm, s.key_norm, s.value_norm};
    out["sink"] = s.sink;
  } else {
    out["bytes"] = std::filesystem::file_size(file);
    out["written"] = std::filesystem::last_write_time(file).time_since_epoch().count();
  }
  return out;
}

std::string describe(const KvSource& source, std::size_t layers, std::size_t kv_heads) {
  const KvShape& s = source.shape();
  return fmt::format("{}: {} tokens, {} layer{}, {} of {} query heads, dimension {}", source.name(),
                     format_count(s.tokens), layers, layers == 1 ? "" : "s", kv_heads * s.group(),
                     s.heads, s.key_dim);
}

}  // namespace ballast
