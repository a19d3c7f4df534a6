#include "experiments/data/random_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "ballast/engine/gguf.h"
#include "ballast/random.h"
#include "base/fail.h"

namespace ballast {
namespace {

struct SizeName {
  std::string_view name;
  std::size_t RandomModel::*size;
  std::size_t low, high;
};

constexpr std::array kSizes = {
    SizeName{"layers", &RandomModel::layers, 1, 1000},
    SizeName{"width", &RandomModel::width, 1, 1 << 16},
    SizeName{"heads", &RandomModel::heads, 1, 1 << 10},
    SizeName{"kv", &RandomModel::kv, 1, 1 << 10},
    SizeName{"head", &RandomModel::head, 2, 256},
    SizeName{"hidden", &RandomModel::hidden, 1, 1 << 18},
    SizeName{"vocabulary", &RandomModel::vocabulary, 260, 1 << 20},
    SizeName{"positions", &RandomModel::positions, 1, (std::size_t{1} << 31) - 1},
};

constexpr std::array kTypes = {
    TensorType::f32,  TensorType::f16,  TensorType::bf16, TensorType::q4_0,  TensorType::q4_1,
    TensorType::q5_0, TensorType::q5_1, TensorType::q8_0, TensorType::q2_k,  TensorType::q3_k,
    TensorType::q4_k, TensorType::q5_k, TensorType::q6_k, TensorType::iq4_nl};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  return out;
}

TensorType parse_type(std::string_view name) {
  std::vector<std::string> known;
  for (TensorType type : kTypes) {
    known.push_back(lower(to_string(type)));
    if (known.back() == lower(name)) return type;
  }
  fail("a model of type '{}'; known: {}", name, fmt::join(known, ", "));
}

std::size_t parse_size(const SizeName& size, std::string_view text) {
  std::size_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size() && value >= size.low &&
              value <= size.high,
          "a model with {}={}: expected a number from {} to {}", size.name, text, size.low,
          size.high);
  return value;
}

void check(const RandomModel& m) {
  require(m.heads % m.kv == 0, "a model of {} heads and kv={}: each KV head serves as many heads",
          m.heads, m.kv);
  require(m.head % 2 == 0, "a model with head={}: rotary positions need an even number", m.head);
  const std::size_t block = block_size(m.type);
  for (std::size_t cols : {m.width, m.heads * m.head, m.hidden}) {
    require(cols % block == 0, "a model with rows of {} numbers: {} stores blocks of {}", cols,
            to_string(m.type), block);
  }
}

struct Declared {
  std::string name;
  TensorType type;
  std::vector<std::size_t> shape;
};

std::vector<Declared> tensors_of(const RandomModel& m) {
  std::vector<Declared> all = {{"token_embd.weight", m.type, {m.vocabulary, m.width}},
                               {"output_norm.weight", TensorType::f32, {m.width}}};
  for (std::size_t l = 0; l < m.layers; ++l) {
    auto add = [&](std::string_view name, TensorType type, std::vector<std::size_t> shape) {
      all.push_back({fmt::format("blk.{}.{}.weight", l, name), type, std::move(shape)});
    };
    add("attn_norm", TensorType::f32, {m.width});
    add("attn_q", m.type, {m.heads * m.head, m.width});
    add("attn_k", m.type, {m.kv * m.head, m.width});
    add("attn_v", m.type, {m.kv * m.head, m.width});
    add("attn_output", m.type, {m.width, m.heads * m.head});
    add("ffn_norm", TensorType::f32, {m.width});
    add("ffn_gate", m.type, {m.hidden, m.width});
    add("ffn_up", m.type, {m.hidden, m.width});
    add("ffn_down", m.type, {m.width, m.hidden});
  }
  return all;
}

/// Uniform elements of variance 1/cols, which keep the scale of activations over layers.
std::vector<float> random_numbers(std::size_t count, std::size_t cols, std::size_t tensor) {
  const double reach = std::sqrt(3.0 / static_cast<double>(cols));
  std::vector<float> numbers(count);
  const RandomKey key{0, static_cast<std::uint32_t>(tensor), 0};
  for (std::size_t i = 0; i < count; i += 4) {
    const auto bits = random_bits(key, i / 4);
    for (std::size_t j = i; j < std::min(count, i + 4); ++j) {
      numbers[j] = static_cast<float>((static_cast<double>(bits[j - i]) * 0x1p-31 - 1.0) * reach);
    }
  }
  return numbers;
}

/// Rows that are quantized; the rest of a tensor repeats them. Slow encoders then take seconds
/// instead of minutes.
constexpr std::size_t kRows = 61;

void write_tensor(GgufWriter& writer, const Declared& t, std::size_t number) {
  if (t.shape.size() == 1) return writer.write(std::vector<float>(t.shape[0], 1.0f));
  const std::size_t rows = t.shape[0], cols = t.shape[1];
  const std::size_t made = std::min(rows, kRows);
  const std::vector<std::byte> bytes = encode(t.type, random_numbers(made * cols, cols, number));
  const std::size_t row = bytes.size() / made;
  for (std::size_t done = 0; done < rows; done += made) {
    writer.write(std::span(bytes).first(std::min(made, rows - done) * row));
  }
}

/// Special tokens, the bytes, the space, and words that no text contains.
void add_vocabulary(GgufWriter& writer, std::size_t size) {
  std::vector<std::string> pieces = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    pieces.push_back(fmt::format("<0x{:02X}>", byte));
    types.push_back(6);
  }
  while (pieces.size() < size) {
    const std::size_t id = pieces.size();
    pieces.push_back(id == 259 ? "\xe2\x96\x81" : fmt::format("\xe2\x96\x81w{}", id));
    types.push_back(1);
  }
  std::vector<float> scores(size);
  for (std::size_t i = 0; i < size; ++i) scores[i] = -static_cast<float>(i);
  writer.add("tokenizer.ggml.model", "llama");
  writer.add_array("tokenizer.ggml.tokens", pieces);
  writer.add_array<float>("tokenizer.ggml.scores", scores);
  writer.add_array<std::int32_t>("tokenizer.ggml.token_type", types);
  writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{1});
  writer.add("tokenizer.ggml.eos_token_id", std::uint32_t{2});
  writer.add("tokenizer.ggml.unknown_token_id", std::uint32_t{0});
}

void add_sizes(GgufWriter& writer, const RandomModel& m) {
  auto add = [&](std::string_view key, std::size_t value) {
    writer.add(fmt::format("llama.{}", key), static_cast<std::uint32_t>(value));
  };
  writer.add("general.architecture", "llama");
  writer.add("general.name", "random weights: " + to_string(m));
  add("block_count", m.layers);
  add("context_length", m.positions);
  add("embedding_length", m.width);
  add("feed_forward_length", m.hidden);
  add("attention.head_count", m.heads);
  add("attention.head_count_kv", m.kv);
  add("attention.key_length", m.head);
  add("attention.value_length", m.head);
  add("rope.dimension_count", m.head);
  add("vocab_size", m.vocabulary);
  writer.add("llama.rope.freq_base", 10000.0f);
  writer.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

}  // namespace

RandomModel parse_random_model(std::string_view text) {
  RandomModel model;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view name = item.substr(0, equals);
    const std::string_view value = item.substr(std::min(equals + 1, item.size()));
    if (name == "type") {
      model.type = parse_type(value);
      continue;
    }
    const auto* size = std::ranges::find(kSizes, name, &SizeName::name);
    if (size == kSizes.end()) {
      std::vector<std::string_view> known;
      for (const SizeName& s : kSizes) known.push_back(s.name);
      fail("a model with unknown size '{}'; known: {}, type", name, fmt::join(known, ", "));
    }
    model.*(size->size) = parse_size(*size, value);
  }
  check(model);
  return model;
}

std::string to_string(const RandomModel& model) {
  std::string out;
  for (const SizeName& s : kSizes) out += fmt::format("{}={},", s.name, model.*(s.size));
  return out + "type=" + lower(to_string(model.type));
}

void write_random_model(const RandomModel& model, const std::filesystem::path& path) {
  check(model);
  GgufWriter writer(path);
  add_sizes(writer, model);
  add_vocabulary(writer, model.vocabulary);
  const std::vector<Declared> tensors = tensors_of(model);
  for (const Declared& t : tensors) writer.declare(t.name, t.type, t.shape);
  for (std::size_t i = 0; i < tensors.size(); ++i) write_tensor(writer, tensors[i], i);
  writer.commit();
}

}  // namespace ballast
