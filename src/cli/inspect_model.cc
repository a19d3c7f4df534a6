#include "cli/inspect_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <optional>

#include "ballast/engine/model.h"
#include "ballast/engine/tokenizer.h"
#include "base/fail.h"
#include "base/printable.h"
#include "report/table.h"
#include "report/terminal.h"
#include "report/units.h"
#include "text/tokenizer/check_sizes.h"

namespace ballast::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array kTypes = {StorageType::f32,  StorageType::bf16, StorageType::int8,
                               StorageType::int4, StorageType::q4,   StorageType::q3,
                               StorageType::q2};
/// The budget of methods that have one, in the table of costs.
constexpr std::string_view kRate = "0.25";

// --- tokenizer ---

std::string_view kind_of(const Vocabulary& v) {
  switch (v.kind) {
    case Vocabulary::Kind::byte_bpe:
      return "byte-level BPE";
    case Vocabulary::Kind::sentencepiece:
      return "SentencePiece";
    case Vocabulary::Kind::library:
      return "SentencePiece model";
  }
  return "";
}

std::string piece_of(const Tokenizer& tokenizer, Token token) {
  return token == kNoToken ? "none"
                           : tokenizer.vocabulary().pieces.at(static_cast<std::size_t>(token));
}

void add_tokenizer(Table& table, const Tokenizer& t) {
  const Vocabulary& v = t.vocabulary();
  table.add({"tokenizer", fmt::format("{}, {} tokens", kind_of(v), format_count(t.size()))});
  table.add({"begin, end", fmt::format("{}, {}{}", piece_of(t, v.bos), piece_of(t, v.eos),
                                       v.add_bos ? "; texts begin with the former" : "")});
  table.add({"chat template", v.chat_template.empty() ? "none" : "yes"});
}

Json tokenizer_json(const Tokenizer& t) {
  const Vocabulary& v = t.vocabulary();
  return {{"kind", kind_of(v)},
          {"tokens", t.size()},
          {"bos", v.bos == kNoToken ? Json() : Json(v.bos)},
          {"eos", v.eos == kNoToken ? Json() : Json(v.eos)},
          {"add_bos", v.add_bos},
          {"chat_template", !v.chat_template.empty()}};
}

// --- tensors ---

struct TypeCount {
  std::size_t tensors = 0;
  std::size_t numbers = 0;
  std::size_t bytes = 0;
};

/// The tensor's type in the file, and the one that it is multiplied in if that is another.
std::string type_of(const ModelFile& file, const TensorView& tensor) {
  const TensorView* stored = file.gguf() ? file.gguf()->find_tensor(tensor.name) : nullptr;
  if (stored == nullptr || stored->type == tensor.type) return std::string(to_string(tensor.type));
  return fmt::format("{} as {}", to_string(stored->type), to_string(tensor.type));
}

std::map<std::string, TypeCount> count_types(const ModelFile& file) {
  std::map<std::string, TypeCount> counts;
  const TensorView* embedding = file.find(Weight::token_embedding);
  const auto add = [&](const TensorView* tensor) {
    if (tensor == nullptr) return;
    TypeCount& count = counts[type_of(file, *tensor)];
    ++count.tensors;
    count.numbers += tensor->size();
    count.bytes += tensor->data.size();
  };
  for (std::size_t layer = 0; layer < file.config().layers; ++layer) {
    for (int w = 0; w < kWeights; ++w) {
      // Tensors outside the layers count as layer 0.
      if (layer > 0 && w < static_cast<int>(Weight::attention_norm)) continue;
      for (Part part : {Part::weight, Part::bias}) {
        const TensorView* tensor = file.find(static_cast<Weight>(w), layer, part);
        const bool tied = w == static_cast<int>(Weight::output) && tensor != nullptr &&
                          tensor->data.data() == embedding->data.data();
        if (!tied) add(tensor);
        for (std::size_t e = 1; e < file.config().experts; ++e) {
          add(file.find(static_cast<Weight>(w), layer, part, e));
        }
      }
    }
  }
  return counts;
}

/// What a file says of itself whose model does not run: the reason follows as an error.
void describe_refused(const Gguf& file, TableOutput& out) {
  std::map<std::string_view, std::size_t> types;
  for (const TensorView& tensor : file.tensors()) ++types[to_string(tensor.type)];
  Table table({{"model"}, {file.path().string()}});
  for (const char* key : {"general.name", "general.architecture"}) {
    const GgufEntry* entry = file.entry(key);
    if (entry == nullptr || entry->is_array || entry->type != GgufType::string) continue;
    table.add({key + 8, printable(*file.find<std::string_view>(key))});
  }
  for (const auto& [name, count] : types) {
    table.add({fmt::format("  {}", name), fmt::format("{} tensors", count)});
  }
  for (const auto& [name, type] : file.unreadable()) {
    table.add({fmt::format("  {}", type), fmt::format("{}, not supported", printable(name))});
  }
  table.add({"runs", "no"});
  out.show(table);
}

// --- what a cache costs ---

struct Cost {
  std::string method;
  std::array<std::optional<double>, kTypes.size()> bytes;  ///< per 1,000 tokens; none: impossible
};

std::vector<Cost> costs(const Model& model, std::size_t tokens) {
  std::vector<Cost> out;
  for (const MethodInfo* info : methods()) {
    Policy policy = Policy::parse(info->name);
    if (info->global_budget) {
      policy = policy.with("bytes", kRate);
    } else if (info->window_policy != WindowPolicy::all) {
      policy = policy.with("rate", kRate);
    }
    Cost cost{policy.to_string(), {}};
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      CacheOptions options;
      options.policy = policy;
      options.protocol = info->global_budget ? Protocol::prefill : Protocol::stream;
      options.key_type = options.value_type = kTypes[i];
      options.expected_tokens = tokens;
      try {
        const MemoryEstimate estimate = model.estimate(options, tokens);
        const std::size_t held = info->global_budget ? estimate.kept : estimate.cache;
        cost.bytes[i] = 1000.0 * static_cast<double>(held) / static_cast<double>(tokens);
      } catch (const Error&) {
        // The text is too short for this method to have anything between sink and window.
      }
    }
    out.push_back(std::move(cost));
  }
  return out;
}

void show_costs(TableOutput& out, const std::vector<Cost>& costs, std::size_t tokens) {
  std::vector<Table::Column> columns = {{"cache per 1,000 tokens"}};
  for (StorageType type : kTypes) columns.push_back({std::string(to_string(type)), Align::right});
  Table table(columns);
  for (const Cost& cost : costs) {
    std::vector<Table::Cell> row = {cost.method};
    for (const auto& bytes : cost.bytes) {
      row.push_back(bytes ? Table::Cell(format_bytes(*bytes), *bytes) : Table::Cell("-", NAN));
    }
    table.add_cells(row);
  }
  out.say("\n");
  out.show(table);
  out.say(
      fmt::format("of a text of {} tokens, all layers and heads together\n", format_count(tokens)));
}

// --- the whole ---

std::string windows_text(const ModelConfig& c) {
  const auto sliding = std::ranges::count_if(c.sliding_windows, [](auto w) { return w > 0; });
  if (sliding == 0) return "none";
  return fmt::format("{} in {} of {} layers", *std::ranges::max_element(c.sliding_windows), sliding,
                     c.layers);
}

std::string positions_text(const ModelConfig& c) {
  const char* kind = c.alibi_max_bias > 0              ? "ALiBi"
                     : c.learned_positions             ? "learned"
                     : c.rope.style != RopeStyle::none ? "rotary"
                                                       : "none";
  return fmt::format("{}, {}", format_count(c.max_positions), kind);
}

/// What the table says beside the costs. `numbers`: parameters.
Table table_of(const std::string& path, const Model& model, const Tokenizer& tokenizer,
               const std::map<std::string, TypeCount>& types, std::size_t numbers) {
  const ModelConfig& c = model.config();
  const ModelFile& file = model.file();
  Table table({{"model"}, {path}});
  if (!c.name.empty()) table.add({"name", c.name});
  table.add({"architecture", std::string(to_string(c.family))});
  table.add_cells({"parameters", {format_count(numbers), static_cast<double>(numbers)}});
  const auto bytes = static_cast<double>(file.bytes());
  table.add_cells({"weights", {format_bytes(bytes), bytes}});
  for (const auto& [name, count] : types) {
    table.add({"  " + name, fmt::format("{} tensors, {}", count.tensors,
                                        format_bytes(static_cast<double>(count.bytes)))});
  }
  table.add({"layers, width", fmt::format("{}, {}", c.layers, c.width)});
  table.add({"heads", fmt::format("{} query, {} KV", c.heads, c.kv_heads)});
  table.add({"key, value dimension", fmt::format("{}, {}", c.key_dim, c.value_dim)});
  table.add_cells(
      {"feed-forward width", {format_count(c.ffn_width), static_cast<double>(c.ffn_width)}});
  if (!c.kinds.empty()) {
    const std::size_t attending = c.attending().size();
    table.add(
        {"attention layers", fmt::format("{}; {} are recurrent", attending, c.layers - attending)});
  }
  table.add({"positions", positions_text(c)});
  table.add({"sliding windows", windows_text(c)});
  if (c.experts > 0) {
    const std::string dense =
        c.dense_layers == 0 ? "" : fmt::format("; none in the first {} layers", c.dense_layers);
    table.add({"experts",
               fmt::format("{}, of which a token uses {}{}", c.experts, c.experts_used, dense)});
  }
  add_tokenizer(table, tokenizer);
  const std::vector<std::string> unused = file.unused();
  table.add({"runs", unused.empty() ? "yes"
                                    : fmt::format("yes; {} tensors are not used, such as {}",
                                                  unused.size(), printable(unused[0]))});
  return table;
}

Json to_json(const std::map<std::string, TypeCount>& types) {
  Json out = Json::object();
  for (const auto& [name, count] : types) {
    out[name] = {{"tensors", count.tensors}, {"numbers", count.numbers}, {"bytes", count.bytes}};
  }
  return out;
}

Json to_json(const std::vector<Cost>& costs) {
  Json out = Json::array();
  for (const Cost& one : costs) {
    Json bytes = Json::object();
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      bytes[std::string(to_string(kTypes[i]))] = one.bytes[i] ? Json(*one.bytes[i]) : Json();
    }
    out.push_back({{"method", one.method}, {"bytes", std::move(bytes)}});
  }
  return out;
}

void describe(const std::string& path, TableOutput& out) {
  const Model model(path);
  const ModelConfig& c = model.config();
  const ModelFile& file = model.file();
  const Tokenizer tokenizer(file.gguf() != nullptr ? read_vocabulary(*file.gguf())
                                                   : read_vocabulary(file.tokenizer().folder));
  check_rows(tokenizer, c.vocabulary, path);
  const auto types = count_types(file);
  std::size_t numbers = 0;
  for (const auto& [name, count] : types) numbers += count.numbers;
  const std::size_t tokens = std::min<std::size_t>(c.max_positions, 32768);
  const std::vector<Cost> cost = costs(model, tokens);
  out.show(table_of(path, model, tokenizer, types, numbers));
  show_costs(out, cost, tokens);
  out.finish({{"kind", "model"},
              {"file", path},
              {"name", c.name},
              {"architecture", to_string(c.family)},
              {"parameters", numbers},
              {"weight_bytes", file.bytes()},
              {"tensor_types", to_json(types)},
              {"layers", c.layers},
              {"attention_layers", c.attending().size()},
              {"width", c.width},
              {"heads", c.heads},
              {"kv_heads", c.kv_heads},
              {"key_dim", c.key_dim},
              {"value_dim", c.value_dim},
              {"ffn_width", c.ffn_width},
              {"vocabulary", c.vocabulary},
              {"positions", c.max_positions},
              {"experts", c.experts},
              {"unused_tensors", file.unused()},
              {"sliding_windows", c.sliding_windows},
              {"tokenizer", tokenizer_json(tokenizer)},
              {"cache_per_1000_tokens", {{"text", tokens}, {"methods", to_json(cost)}}}});
}

void describe_vocabulary(const std::string& path, const Gguf& file, TableOutput& out) {
  const Tokenizer tokenizer{read_vocabulary(file)};
  Table table({{"vocabulary"}, {path}});
  add_tokenizer(table, tokenizer);
  out.show(table);
  out.finish({{"kind", "vocabulary"}, {"file", path}, {"tokenizer", tokenizer_json(tokenizer)}});
}

bool begins_with_gguf(const std::string& path) {
  char magic[4] = {};
  std::ifstream in(path, std::ios::binary);
  return in.read(magic, 4) && std::string_view(magic, 4) == "GGUF";
}

}  // namespace

bool is_model(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return true;
  if (!fs::is_regular_file(path, ignored)) return false;
  // A safetensors file belongs to a model if config.json lies beside it.
  return begins_with_gguf(path) || path.ends_with(".index.json") ||
         (path.ends_with(".safetensors") &&
          fs::exists(fs::path(path).parent_path() / "config.json", ignored));
}

void inspect_model(const std::string& path, TableOutput& out) {
  if (begins_with_gguf(path)) {
    const Gguf file(path);
    if (file.tensors().empty()) return describe_vocabulary(path, file, out);
    try {
      (void)ModelFile(path);
    } catch (const Error&) {
      describe_refused(file, out);
      throw;
    }
  }
  describe(path, out);
}

}  // namespace ballast::cli
