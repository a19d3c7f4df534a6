#include "cli/kv_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/fail.h"
#include "cli/command.h"
#include "eval/data/kv_file.h"
#include "report/units.h"

namespace ballast::cli {

void KvOptions::add_to(CLI::App& app, const char* seed_help, bool folders) {
  std::string help = "Tensors layer.{i}.q|k|v of [heads, tokens, dim] (safetensors)";
  if (folders) help += "; or a folder of such files: means over them";
  app.add_option("FILE", file, help)->type_name("");
  app.add_flag("--synth", synth, "Use a made-up stream instead of a file");
  app.add_option("--seed", synth_options.seed, seed_help)->capture_default_str();
  app.add_option("--select-layers", layers, "Only these layers, such as 0,2,5-7")
      ->type_name("LIST");
  app.add_option("--select-kv-heads", kv_heads, "Only these KV heads")->type_name("LIST");
  add_synth_options(app, synth_options, "With --synth");
}

std::unique_ptr<KvSource> KvOptions::open(const std::string& command) const {
  require(synth != !file.empty(), "{}: give a file or --synth, {}", command,
          synth ? "not both" : "one of the two");
  if (synth) return std::make_unique<Synth>(synth_options);
  return std::make_unique<KvFile>(file);
}

std::vector<KvOptions> KvOptions::each() const {
  if (synth || !std::filesystem::is_directory(file)) return {*this};
  std::vector<KvOptions> out;
  for (const auto& entry : std::filesystem::directory_iterator(file)) {
    if (entry.path().extension() != ".safetensors") continue;
    out.push_back(*this);
    out.back().file = entry.path().string();
  }
  require(!out.empty(), "{}: a folder without safetensors files; ballast capture --data makes them",
          file);
  std::ranges::sort(out, {}, &KvOptions::file);
  return out;
}

std::vector<std::size_t> KvOptions::selected_layers(const KvSource& source) const {
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

std::vector<std::size_t> KvOptions::selected_kv_heads(const KvSource& source) const {
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

Json KvOptions::settings(const KvSource& source) const {
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

Json KvOptions::identity(const KvSource& source) const {
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

}  // namespace ballast::cli
