// GGUF files that are odd but legal: a model written in unusual ways computes the same bits.
#include <algorithm>
#include <functional>

#include "ballast/engine/gguf.h"
#include "experiments/data/random_model.h"
#include "model/reference_case.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

/// How a file differs from that of write_random_model().
struct Oddity {
  const char* name;
  std::uint32_t alignment = 32;
  bool reversed_keys = false, reversed_tensors = false;
  std::function<bool(GgufWriter&, const GgufEntry&)> key = {};  ///< whether it wrote the key itself
  std::function<void(GgufWriter&)> more_keys = {};
  std::vector<std::string> left_out = {};
  std::function<void(GgufWriter&, const Gguf&)> declare_more = {};
  std::function<void(GgufWriter&, const Gguf&)> write_more = {};
  bool half_norms = false;
  std::function<void(std::string&)> patch = {};  ///< of the file's bytes
};

template <typename T>
std::vector<T> elements(const GgufEntry& entry) {
  std::vector<T> out(entry.count);
  std::memcpy(out.data(), entry.data.data(), entry.data.size());
  return out;
}

void copy(const Gguf& from, const GgufEntry& entry, GgufWriter& to) {
  if (entry.type == GgufType::string && entry.is_array) {
    std::vector<std::string> all;
    for (std::string_view text : from.get<std::vector<std::string_view>>(entry.key)) {
      all.emplace_back(text);
    }
    to.add_array(entry.key, all);
  } else if (entry.type == GgufType::string) {
    to.add(entry.key, from.get<std::string_view>(entry.key));
  } else if (entry.type == GgufType::f32 && entry.is_array) {
    to.add_array<float>(entry.key, elements<float>(entry));
  } else if (entry.type == GgufType::f32) {
    to.add(entry.key, from.get<float>(entry.key));
  } else if (entry.is_array) {
    to.add_array<std::int32_t>(entry.key, elements<std::int32_t>(entry));
  } else {
    to.add(entry.key, static_cast<std::uint32_t>(from.get<std::uint64_t>(entry.key)));
  }
}

void write(const Gguf& from, const fs::path& path, const Oddity& odd) {
  GgufWriter to(path, odd.alignment);
  std::vector<GgufEntry> keys = from.metadata();
  if (odd.reversed_keys) std::ranges::reverse(keys);
  for (const GgufEntry& entry : keys) {
    if (std::ranges::count(odd.left_out, entry.key) > 0) continue;
    if (!odd.key || !odd.key(to, entry)) copy(from, entry, to);
  }
  if (odd.more_keys) odd.more_keys(to);
  std::vector<const TensorView*> tensors;
  for (const TensorView& t : from.tensors()) tensors.push_back(&t);
  if (odd.reversed_tensors) std::ranges::reverse(tensors);
  if (odd.declare_more) odd.declare_more(to, from);
  for (const TensorView* t : tensors) {
    const bool norm = t->shape.size() == 1;
    to.declare(t->name, norm && odd.half_norms ? TensorType::f16 : t->type, t->shape);
  }
  if (odd.write_more) odd.write_more(to, from);
  for (const TensorView* t : tensors) to.write(std::span<const float>(to_float(*t)));
  to.commit();
  if (!odd.patch) return;
  std::string bytes = read_text(path);
  odd.patch(bytes);
  write_text(path, bytes);
}

template <typename T>
std::function<bool(GgufWriter&, const GgufEntry&)> integers_as() {
  return [](GgufWriter& to, const GgufEntry& entry) {
    if (entry.is_array || entry.type != GgufType::u32) return false;
    std::uint32_t value = 0;
    std::memcpy(&value, entry.data.data(), sizeof value);
    to.add(entry.key, static_cast<T>(value));
    return true;
  };
}

std::vector<Oddity> oddities() {
  std::vector<Oddity> all;
  all.push_back({.name = "as it is"});
  all.push_back({.name = "aligned to 8", .alignment = 8});
  all.push_back({.name = "aligned to 4096", .alignment = 4096});
  all.push_back({.name = "keys in reverse", .reversed_keys = true});
  all.push_back({.name = "tensors in reverse", .reversed_tensors = true});
  all.push_back({.name = "integers of 64 bits", .key = integers_as<std::uint64_t>()});
  all.push_back({.name = "signed integers", .key = integers_as<std::int64_t>()});
  all.push_back({.name = "integers of 16 bits", .key = integers_as<std::uint16_t>()});
  all.push_back({.name = "numbers of 64 bits", .key = [](GgufWriter& to, const GgufEntry& entry) {
                   if (entry.is_array || entry.type != GgufType::f32) return false;
                   float value = 0;
                   std::memcpy(&value, entry.data.data(), sizeof value);
                   to.add(entry.key, double{value});
                   return true;
                 }});
  all.push_back({.name = "KV heads of each layer", .key = [](GgufWriter& to, const GgufEntry& e) {
                   if (e.key != "llama.attention.head_count_kv") return false;
                   const std::vector<std::int32_t> each(2, 2);
                   to.add_array<std::int32_t>(e.key, each);
                   return true;
                 }});
  all.push_back({.name = "keys that nobody knows", .more_keys = [](GgufWriter& to) {
                   to.add("\xc3\xa4.leer", "");
                   to.add("x.text", std::string(70000, 'x'));
                   to.add("x.bool", true);
                   to.add("x.i8", std::int8_t{-1});
                   to.add("x.nan", std::numeric_limits<double>::quiet_NaN());
                   to.add_array<std::uint64_t>("x.empty", std::span<const std::uint64_t>());
                   const bool flags[] = {true, false};
                   to.add_array<bool>("x.flags", flags);
                   to.add_array("x.texts", std::vector<std::string>{"", "a", std::string(1, '\0')});
                   to.add("general.quantization_version", std::uint32_t{2});
                   to.add("general.file_type", std::uint32_t{9999});
                 }});
  all.push_back(
      {.name = "keys that can be left out",
       .left_out = {"general.name", "llama.attention.value_length", "llama.attention.key_length",
                    "llama.rope.dimension_count", "llama.vocab_size", "llama.rope.freq_base",
                    "tokenizer.ggml.unknown_token_id"}});
  all.push_back(
      {.name = "tensors that nobody needs",
       .declare_more =
           [](GgufWriter& to, const Gguf&) {
             to.declare("a.scalar", TensorType::f32, std::vector<std::size_t>{});
             to.declare("b.four", TensorType::f16, std::vector<std::size_t>{2, 1, 3, 5});
             to.declare("blk.7.attn_q.weight", TensorType::q8_0, std::vector<std::size_t>{2, 32});
           },
       .write_more =
           [](GgufWriter& to, const Gguf&) {
             to.write(std::vector<float>(1, 1.0f));
             to.write(std::vector<float>(30, 2.0f));
             to.write(std::vector<float>(64, 3.0f));
           }});
  // The output's own matrix, equal to the embeddings that it would else share.
  all.push_back({.name = "an output matrix",
                 .declare_more =
                     [](GgufWriter& to, const Gguf& from) {
                       const TensorView& t = from.tensor("token_embd.weight");
                       to.declare("output.weight", t.type, t.shape);
                     },
                 .write_more =
                     [](GgufWriter& to, const Gguf& from) {
                       to.write(std::span<const float>(to_float(from.tensor("token_embd.weight"))));
                     }});
  all.push_back(
      {.name = "factors of frequencies that change nothing",
       .declare_more =
           [](GgufWriter& to, const Gguf&) {
             to.declare("rope_freqs.weight", TensorType::f32, std::vector<std::size_t>{16});
           },
       .write_more = [](GgufWriter& to, const Gguf&) { to.write(std::vector<float>(16, 1.0f)); }});
  all.push_back({.name = "norms in 16 bits", .half_norms = true});
  all.push_back({.name = "version 2", .patch = [](std::string& bytes) { bytes[4] = 2; }});
  all.push_back({.name = "bytes behind the last tensor",
                 .patch = [](std::string& bytes) { bytes += std::string(1000, '\x7f'); }});
  return all;
}

TEST(OddGguf, ComputesTheSameBits) {
  const TempDir dir;
  RandomModel model = parse_random_model(
      "layers=2,width=64,heads=2,kv=2,head=32,hidden=96,vocabulary=300,positions=128,type=f16");
  write_random_model(model, dir / "plain.gguf");
  const Gguf plain(dir / "plain.gguf");
  std::vector<Token> tokens;
  for (Token t = 0; t < 60; ++t) tokens.push_back((7 * t + 1) % 300);
  const auto logits = [&](const fs::path& path) {
    const Model loaded(path);
    Engine engine(loaded);
    Sequence sequence(loaded, {});
    return test::all_logits(engine, sequence, tokens, 25);
  };
  const std::vector<float> expected = logits(dir / "plain.gguf");
  for (const Oddity& odd : oddities()) {
    SCOPED_TRACE(odd.name);
    write(plain, dir / "odd.gguf", odd);
    try {
      EXPECT_TRUE(logits(dir / "odd.gguf") == expected);
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

}  // namespace
}  // namespace ballast
