// Writes fuzz/corpus: for each target small valid files to start from, and files with each defect
// that once broke something.
#include <array>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "ballast/cache.h"
#include "ballast/codec.h"
#include "ballast/engine/gguf.h"
#include "ballast/engine/safetensors.h"
#include "model/families/families.h"
#include "parts.h"
#include "small_codec.h"
#include "text/tokenizer/sentencepiece_model.h"

namespace {

using namespace ballast;
namespace fs = std::filesystem;

void write_safetensors(const fs::path& folder) {
  fs::create_directories(folder);
  SafetensorsWriter small(folder / "small",
                          {{"a", TensorType::f32, {2, 3}},
                           {"b", TensorType::bf16, {4}},
                           {"scalar", TensorType::i64, {}},
                           {"none", TensorType::u8, {0}}},
                          {{"format", "pt"}});
  small.write(std::vector<float>(6, 1.0f));
  small.write(std::vector<float>(4, -2.0f));
  small.write(std::vector<float>(1, 3.0f));
  small.commit();
  SafetensorsWriter(folder / "empty", {}).commit();
}

/// One tensor of every type, and every type of metadata.
void write_types(const fs::path& path) {
  GgufWriter w(path, 8);
  w.add("u8", std::uint8_t{1});
  w.add("i16", std::int16_t{-1});
  w.add("u64", std::uint64_t{1} << 40);
  w.add("f64", 0.5);
  w.add("yes", true);
  w.add("text", "text");
  w.add_array("texts", std::vector<std::string>{"a", "", "bc"});
  w.add_array("numbers", std::span<const float>(std::vector<float>{1, 2}));
  std::vector<std::size_t> shape = {256};
  int last = static_cast<int>(TensorType::iq4_nl);
  for (int t = static_cast<int>(TensorType::q4_0); t <= last; ++t) {
    w.declare(to_string(static_cast<TensorType>(t)), static_cast<TensorType>(t), shape);
  }
  for (int t = static_cast<int>(TensorType::q4_0); t <= last; ++t) {
    w.write(std::vector<float>(256, 1.0f));
  }
  w.commit();
}

/// Rows of a tensor in a model whose sizes are all 4, with one head and one layer.
std::vector<std::size_t> shape_of(const TensorRule& rule, bool gguf, bool bias,
                                  std::size_t positions) {
  std::size_t rows = 4;
  const Fusion fusion = gguf ? rule.gguf_fusion : rule.hf_fusion;
  if (fusion != Fusion::none) rows = rule.first == Weight::query ? 12 : 8;
  if (rule.first == Weight::position_embedding) rows = positions;
  if (rule.first == Weight::router) rows = 1;
  const bool norm = rule.first == Weight::output_norm || rule.first == Weight::attention_norm ||
                    rule.first == Weight::query_norm || rule.first == Weight::key_norm ||
                    rule.first == Weight::post_attention_norm || rule.first == Weight::ffn_norm ||
                    rule.first == Weight::post_ffn_norm;
  if (bias || norm) return {rows};
  if (gguf && rule.first >= Weight::expert_gate) return {1, rows, 4};
  return {rows, 4};
}

std::string stem_of(std::string_view pattern) {
  std::string name(pattern);
  for (std::size_t at; (at = name.find("{}")) != std::string::npos;) name.replace(at, 2, "0");
  return name;
}

/// All tensors that the family may have, or only those that it must.
std::vector<SafetensorsWriter::Declaration> tensors_of(const FamilyFacts& family, bool gguf,
                                                       bool all) {
  std::vector<SafetensorsWriter::Declaration> out;
  const std::size_t positions = family.family == Family::opt ? 6 : 4;
  for (const TensorRule& rule : family.rules) {
    for (const bool bias : {false, true}) {
      const Presence presence = bias ? rule.bias : rule.weight;
      const bool extra = rule.first == Weight::output ||
                         (rule.first == Weight::position_embedding && family.family == Family::mpt);
      if (presence == Presence::never || (gguf ? rule.gguf : rule.hf).empty()) continue;
      if (!all && (presence == Presence::optional || extra)) continue;
      out.push_back({stem_of(gguf ? rule.gguf : rule.hf) + (bias ? ".bias" : ".weight"),
                     TensorType::f16, shape_of(rule, gguf, bias, positions)});
    }
  }
  return out;
}

void add_vocabulary(GgufWriter& w, bool bytes) {
  w.add("tokenizer.ggml.model", bytes ? "gpt2" : "llama");
  w.add_array("tokenizer.ggml.tokens",
              bytes ? std::vector<std::string>{"a", "b", "ab", "<s>"}
                    : std::vector<std::string>{"<unk>", "<s>", "\u2581", "a"});
  w.add_array("tokenizer.ggml.token_type",
              std::span<const std::int32_t>(bytes ? std::vector<std::int32_t>{1, 1, 1, 3}
                                                  : std::vector<std::int32_t>{2, 3, 1, 1}));
  if (bytes) {
    w.add("tokenizer.ggml.pre", "llama-bpe");
    w.add_array("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    w.add("tokenizer.ggml.bos_token_id", std::uint32_t{3});
    w.add("tokenizer.chat_template",
          "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}");
  } else {
    w.add_array("tokenizer.ggml.scores", std::span<const float>(std::vector<float>{0, 0, -1, -2}));
    w.add("tokenizer.ggml.add_space_prefix", true);
  }
}

/// A whole model of one layer.
void write_model(const fs::path& path, const FamilyFacts& family, bool all) {
  GgufWriter w(path, 8);
  const std::string name(family.gguf);
  w.add("general.architecture", name);
  w.add("general.name", name);
  for (std::string key : {"block_count", "attention.head_count"})
    w.add(name + "." + key, std::uint32_t{1});
  for (std::string key : {"embedding_length", "feed_forward_length", "context_length"})
    w.add(name + "." + key, std::uint32_t{4});
  w.add(name + ".attention.layer_norm_rms_epsilon", 1e-5f);
  w.add(name + ".attention.layer_norm_epsilon", 1e-5f);
  if (family.family == Family::qwen3moe || family.family == Family::olmoe) {
    for (std::string key : {"expert_count", "expert_used_count"})
      w.add(name + "." + key, std::uint32_t{1});
  }
  if (all) {
    w.add_array(name + ".attention.head_count_kv",
                std::span<const std::int32_t>(std::vector<std::int32_t>{1}));
    w.add(name + ".attention.sliding_window", std::uint32_t{2});
    w.add(name + ".attention.max_alibi_bias", 8.0f);
    w.add(name + ".attention.clamp_kqv", 6.0f);
    w.add(name + ".rope.dimension_count", std::uint32_t{4});
    w.add(name + ".rope.scaling.type", family.family == Family::qwen2 ? "linear" : "yarn");
    w.add(name + ".rope.scaling.factor", 2.0f);
    add_vocabulary(w, family.family != Family::llama);
  }
  std::size_t count = 0;
  const auto tensors = tensors_of(family, true, all);
  for (const auto& tensor : tensors) {
    w.declare(tensor.name, tensor.type, tensor.shape);
    count += element_count(tensor.shape);
  }
  if (all) w.declare("rope_freqs.weight", TensorType::f32, std::vector<std::size_t>{2});
  std::vector<std::byte> zeros(count * 2);
  w.write(std::span<const std::byte>(zeros));
  if (all) w.write(std::vector<float>{1, 2});
  w.commit();
}

void write_models(const fs::path& folder) {
  for (const FamilyFacts& family : families()) {
    if (family.gguf.empty()) continue;
    for (const bool all : {false, true})
      write_model(folder / (std::string(family.gguf) + (all ? "-all" : "-least")), family, all);
  }
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The same model in two pieces; see gguf_pieces_fuzz.cc.
void write_pieces(const fs::path& folder) {
  fs::create_directories(folder);
  write_model(folder / "whole", *family_of_gguf("llama"), false);
  const Gguf whole(folder / "whole");
  const std::size_t all = whole.tensors().size();
  for (const bool none_in_first : {false, true}) {
    std::string pieces[2];
    std::size_t next = 0;
    for (std::uint16_t i = 0; i < 2; ++i) {
      const fs::path path = folder / "piece";
      GgufWriter w(path, 8);
      w.add("split.no", i);
      w.add("split.count", std::uint16_t{2});
      w.add("split.tensors.count", static_cast<std::int32_t>(all));
      if (i == 0) {
        for (const GgufEntry& entry : whole.metadata()) {
          if (entry.key == "general.alignment") continue;
          if (entry.type == GgufType::string) {
            w.add(entry.key, whole.get<std::string_view>(entry.key));
          } else if (entry.type == GgufType::f32) {
            w.add(entry.key, whole.get<float>(entry.key));
          } else {
            w.add(entry.key, static_cast<std::uint32_t>(whole.get<std::uint64_t>(entry.key)));
          }
        }
      }
      const std::size_t end = i == 1 ? all : none_in_first ? 0 : all / 2;
      for (std::size_t t = next; t < end; ++t) {
        w.declare(whole.tensors()[t].name, whole.tensors()[t].type, whole.tensors()[t].shape);
      }
      for (; next < end; ++next) w.write(whole.tensors()[next].data);
      w.commit();
      pieces[i] = read(path);
      fs::remove(path);
    }
    const auto size = static_cast<std::uint32_t>(pieces[0].size());
    std::string out(sizeof size, '\0');
    std::memcpy(out.data(), &size, sizeof size);
    std::ofstream(folder / (none_in_first ? "none-in-first" : "halves"), std::ios::binary)
        << out << pieces[0] << pieces[1];
  }
  fs::remove(folder / "whole");
}

void write(const fs::path& path, std::string_view text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
}

// Saved caches -------------------------------------------------------------------------------

Cache make_cache(const std::string& method, Protocol protocol, std::size_t tokens,
                 std::size_t prompt, StorageType keys = StorageType::f32,
                 StorageType values = StorageType::f32) {
  CacheShape shape;
  shape.layers = shape.kv_heads = 2;
  shape.key_dim = shape.value_dim = 4;
  shape.logits.scale = 0.5f;
  CacheOptions options;
  options.policy = Policy::parse(method);
  options.protocol = protocol;
  options.key_type = keys;
  options.value_type = values;
  Cache cache(shape, options);
  Matrix k(tokens, 8), out(1, 8);
  for (std::size_t i = 0; i < tokens * 8; ++i)
    k.data()[i] = static_cast<float>((i * i + i / 3) % 13) / 6 - 1;
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto row = k.view().slice(t, 1);
    for (std::size_t l = 0; l < 2; ++l) cache.forward(l, row, row, row, out.view());
    if (t + 1 == prompt) cache.finish_prompt();
  }
  return cache;
}

/// As the target takes it: without magic number, version and checksum; one byte chooses the
/// version.
std::string input_of(const Cache& cache) {
  const std::vector<std::byte> bytes = cache.to_bytes();
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return '\0' + text.substr(12, text.size() - 16);
}

std::string u64(std::uint64_t x) { return {reinterpret_cast<const char*>(&x), sizeof(x)}; }

/// The n-th place of `what`, from 0.
std::size_t place(const std::string& text, const std::string& what, int n) {
  std::size_t at = text.find(what);
  for (; n > 0 && at != std::string::npos; --n) at = text.find(what, at + 1);
  if (at == std::string::npos) throw std::runtime_error("a field is not where it was");
  return at;
}

/// Saved caches that once corrupted the heap, looped, or took memory out of proportion.
void write_broken_caches(const fs::path& folder) {
  // Sink of 4, a ring of 8 that is full and begins at slot 0, as it does every eighth token.
  const std::string window = u64(8) + u64(0) + u64(8);
  std::size_t tokens = 16;
  std::string good;
  do {
    good = input_of(make_cache("streaming-llm:budget=12", Protocol::stream, ++tokens, 0));
  } while (good.find(window) == std::string::npos && tokens < 32);
  constexpr std::size_t kRow = 4 * sizeof(float);
  const auto with_size = [&](std::size_t size) {
    std::string bad = good;
    const std::size_t at = place(bad, window, 1), rows = at + window.size();
    bad.erase(rows + (8 + size) * kRow, (8 - size) * kRow);  // values
    bad.erase(rows + size * kRow, (8 - size) * kRow);        // keys
    return bad.replace(at, window.size(), u64(8) + u64(0) + u64(size));
  };
  write(folder / "head-with-empty-window", with_size(0));
  write(folder / "head-with-shorter-window", with_size(7));
  write(folder / "head-with-one-token", with_size(1));
  const std::string layer = std::string("\2\0", 2) + u64(tokens) + u64(4);
  const auto with_layer = [&](std::uint64_t other) {
    std::string bad = good;
    return bad.replace(place(bad, layer, 1) + 2, 8, u64(other));
  };
  write(folder / "layers-disagree", with_layer(tokens - 1));
  write(folder / "layers-disagree-by-far", with_layer(2'000'000'000));
  std::string bad = good;
  for (std::size_t at = 0; (at = bad.find(layer, at)) != std::string::npos;)
    bad.replace(at + 2, 8, u64(0x7fffffff));
  write(folder / "last-position", bad);
  const std::string uniform =
      input_of(make_cache("uniform:budget=16,sink=2,window=4", Protocol::stream, 60, 0));
  const Budget budget =
      Policy::parse("uniform:budget=16,sink=2,window=4").budget(0, Protocol::stream, 0, 2);
  const std::string capacity = u64(budget.summary);
  std::string huge = uniform;
  for (std::size_t at = 0; (at = huge.find(capacity, at)) != std::string::npos; at += 8)
    huge.replace(at, 8, u64(std::uint64_t{2} << 20));
  write(folder / "summary-of-two-million", huge);
  // Behind the method: four enumerators, the seed, and the tokens that are expected.
  const std::string twice = "kvzip:bytes=1/2";
  std::string expects = input_of(make_cache(twice, Protocol::prefill, 20, 0));
  expects.replace(place(expects, twice, 0) + twice.size() + 12, 8, u64(0x7fffffff));
  write(folder / "expects-two-billion", expects);
}

void write_caches(const fs::path& folder) {
  for (const MethodInfo* info : methods()) {
    const std::string name(info->name);
    if (info->global_budget) continue;
    const bool exact = info->window_policy == WindowPolicy::all;
    std::string method = exact ? name : name + ":budget=96";
    if (info->needs.fits_values) method = name + ":budget=24,observe=4,window=8,step=16";
    const std::size_t tokens = exact ? 6 : 110;
    write(folder / (name + "-stream"), input_of(make_cache(method, Protocol::stream, tokens, 0)));
  }
  const auto growing =
      make_cache("uniform:budget=16,sink=2,window=4,generated=keep", Protocol::prefill, 30, 26);
  write(folder / "growing", input_of(growing));
  write(folder / "whole",
        input_of(make_cache("h2o:budget=16,sink=2,window=4", Protocol::prefill, 5, 0)));
  write(folder / "types", input_of(make_cache("uniform:budget=16,sink=2,window=4", Protocol::stream,
                                              40, 0, StorageType::q3, StorageType::int4)));
  for (const char* method : {"replay", "kvzip", "kvzip-plus"}) {
    const std::string name = std::string(method) + ":bytes=1200B,chunk=16,sink=1";
    write(folder / (std::string(method) + "-stream"),
          input_of(make_cache(name, Protocol::stream, 12, 0)));
    write(folder / (std::string(method) + "-prefill"),
          input_of(make_cache(std::string(method) + ":bytes=1/2", Protocol::prefill, 40, 0)));
  }
  write_broken_caches(folder);
}

void write_packed_caches(const fs::path& folder) {
  fs::create_directories(folder);
  for (std::size_t tokens : {1, 20, 150}) {
    const auto file = pack(fuzz::small_cache(tokens), fuzz::small_codec(), {16, 0.5f, 0.01f}, "n");
    const std::string text(reinterpret_cast<const char*>(file.data()), file.size());
    // The target adds magic, version and checksum.
    write(folder / std::to_string(tokens), text.substr(12, text.size() - 16));
  }
}

void write_chunks(const fs::path& folder) {
  fs::create_directories(folder);
  CacheShape shape;
  shape.layers = shape.kv_heads = 2;
  shape.key_dim = shape.value_dim = 8;
  const Codec codec(shape, "fast-3");
  for (std::size_t tokens : {1, 20, 300}) {
    std::vector<float> memory(tokens * 16);
    for (std::size_t i = 0; i < memory.size(); ++i) {
      memory[i] = static_cast<float>(i * i % 23) - (i / 16 == 3 ? 90.0f : 11.0f);
    }
    const std::vector<HeadsView> views(
        2, HeadsView::token_major(memory.data(), ElementType::f32, tokens, 2, 8));
    std::vector<std::byte> chunk(codec.bound(tokens));
    const std::string text(reinterpret_cast<const char*>(chunk.data()),
                           codec.encode(views, views, chunk));
    write(folder / std::to_string(tokens), text.substr(16));  // the target adds what is before
  }
}

/// Options that cache_fuzz.cc chooses from, and each method.
void write_methods(const fs::path& folder) {
  const auto seed = [&](const std::string& name, const std::string& method,
                        std::array<unsigned char, 8> choices) {
    write(folder / name, std::string(choices.begin(), choices.end()) + method);
  };
  unsigned char n = 0;
  for (const MethodInfo* info : methods()) {
    const std::string name(info->name);
    const bool exact = info->window_policy == WindowPolicy::all;
    const std::string method = name +
                               (exact                 ? ""
                                : info->global_budget ? ":bytes=2K,chunk=16"
                                                      : ":budget=24,sink=2,window=8") +
                               (info->needs.fits_values ? ",observe=4,step=16" : "");
    seed(name + "-prefill", method, {static_cast<unsigned char>(n * 37), 0, 0, 0, 60, 20, 1, n});
    seed(name + "-stream", method, {7, static_cast<unsigned char>(n % 8), n, 1, 60, 7, 1, 0});
    if (!exact) {
      seed(name + "-bytes", name + ":bytes=1/2,type=q4", {5, 0, 0, 0, 70, 30, 1, 1});
      seed(name + "-rolling", method, {6, 0, 0, 1 + 6 + 8, 60, 5, 1, 1});
      seed(name + "-pyramid", method + ",layers=pyramid", {5, 0, 0, 0, 70, 30, 1, 1});
      seed(name + "-adaptive", method + ",heads=adaptive", {7, 0, 0, 0, 70, 30, 1, 1});
    }
    ++n;
  }
  for (unsigned char recording = 1; recording < 8; ++recording)
    seed("exact-recording-" + std::to_string(recording), "exact",
         {5, 0, 0, 0, static_cast<unsigned char>(60 + recording), 20, 1, recording});
  int number = 0;
  for (const char* method :
       {"replay:bytes=1/2,refit=values", "replay:bytes=1/2,rest=balance",
        "replay:bytes=1/4,rest=uniform", "replay:bytes=1/2,score=rms",
        "replay:bytes=1/2,score=mean,reading=own,chunk=16", "replay:bytes=1/2,question=known",
        "replay:bytes=3/4,floor=0.5", "replay:bytes=1/2,tiers=f32+int4+q2",
        "balancekv:budget=24,outliers=yes", "balancekv-stream:mode=theory,t=8,T=64,r=4",
        "snapkv:budget=24,window=8,kernel=3", "exact:type=q4/q2",
        "attention-matching:budget=24,keys=omp,observe=8",
        "h2o:budget=24,score=mean,generated=evict", "uniform:rate=0.5,generated=keep"})
    for (unsigned char protocol : {0, 1})
      seed("other-" + std::to_string(number++), method, {7, 0, 0, protocol, 70, 16, 1, 0});
}

// Texts --------------------------------------------------------------------------------------

/// A config.json with all keys of all families; `more` before them.
std::string config_of(const FamilyFacts& family, const std::string& more) {
  return "{" + more + R"("model_type": ")" + std::string(family.hf) + R"(", "architectures": [")" +
         std::string(family.hf_class) + R"("], "hidden_size": 4, "num_hidden_layers": 1,
 "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 4, "intermediate_size": 4,
 "vocab_size": 4, "max_position_embeddings": 4, "rms_norm_eps": 1e-5, "layer_norm_eps": 1e-5,
 "sliding_window": 2, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
 "query_pre_attn_scalar": 4, "rotary_pct": 1.0, "ffn_dim": 4, "do_layer_norm_before": true,
 "activation_function": "gelu_new", "tie_word_embeddings": false, "d_model": 4, "n_heads": 1,
 "n_layers": 1, "expansion_ratio": 1, "max_seq_len": 4, "logit_scale": 0.5, "n_layer": 1,
 "n_embd": 4, "n_head": 1, "n_inner": 4, "n_positions": 4, "shared_intermediate_size": 4,
 "num_experts": 1, "num_local_experts": 1, "num_experts_per_tok": 1, "moe_intermediate_size": 4,
 "attn_config": {"alibi": true, "alibi_bias_max": 8, "clip_qkv": 6}})";
}

constexpr std::string_view kBytes =
    R"({"version": "1.0", "added_tokens": [{"id": 5, "content": "<s>", "special": true}],
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "\u0120": 3}, "merges": ["a b"]}})";

/// Folders in Hugging Face's layout; see folder_fuzz.cc.
void write_folders(const fs::path& folder) {
  fs::create_directories(folder);
  const std::string config =
      R"({"bos_token": "<s>", "eos_token": {"content": "<s>"}, "add_bos_token": true,
 "chat_template": [{"name": "default", "template": "{{ bos_token }}{{ messages[0].content }}"}],
 "added_tokens_decoder": {"6": {"content": "<|x|>", "special": true}}})";
  for (const FamilyFacts& family : families()) {
    const fs::path path = folder / "part";
    const auto tensors = tensors_of(family, false, true);
    SafetensorsWriter w(path, tensors);
    std::size_t count = 0;
    std::string map;
    for (const auto& tensor : tensors) {
      count += element_count(tensor.shape);
      map += (map.empty() ? "\"" : ", \"") + tensor.name + R"(": "model.safetensors")";
    }
    w.write(std::vector<std::byte>(count * 2));
    w.commit();
    const bool index = family.family == Family::qwen2, old = family.family == Family::opt;
    write(folder / std::string(family.hf),
          fuzz::join_parts<std::string>(
              {config_of(family, ""), read(path), index ? R"({"weight_map": {)" + map + "}}" : "",
               old ? "" : std::string(kBytes), "",
               old ? R"({"a": 0, "b": 1, "ab": 2, "</s>": 3})" : "",
               old ? "#version: 0.2\na b\n" : "", index ? "{{ messages[0].role }}" : "", config}));
    fs::remove(path);
  }
  // Once thrown as the exception of a writer of JSON.
  write(folder / "merges-not-utf8",
        fuzz::join_parts<std::string>(
            {"{}", "", "", "", "", R"({"a": 0, "b": 1, "ab": 2})", "a b\n\xb1 \xff\n", "", ""}));
}

void write_texts(const fs::path& out) {
  const fs::path json = out / "tokenizer_json";
  const char* bpe = R"({"version": "1.0", "added_tokens": [{"id": 5, "content": "<s>",
 "special": true, "lstrip": false, "rstrip": true, "normalized": false, "single_word": false}],
 "normalizer": {"type": "NFC"},
 "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
 "decoder": {"type": "ByteLevel"},
 "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3, "Ċ": 4}, "merges": ["a b"]}})";
  const char* unigram = R"({"added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
 "normalizer": {"type": "Sequence", "normalizers": [{"type": "Replace",
 "pattern": {"String": " "}, "content": "▁"}]},
 "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"},
 "decoder": {"type": "Metaspace", "replacement": "▁"},
 "model": {"type": "Unigram", "unk_id": 0,
 "vocab": [["<unk>", 0], ["▁", -1], ["a", -2.5], ["b", -2.5], ["ab", -3]]}})";
  write(json / "bpe", bpe);
  write(json / "unigram", unigram);
  write(json / "bytes", kBytes);
  write(json / "sentencepiece", R"({"added_tokens": [{"id": 0, "content": "<unk>", "special": true,
 "lstrip": true, "rstrip": true}, {"id": 1, "content": "<s>", "special": true},
 {"id": 9, "content": "xx"}], "normalizer": {"type": "Sequence", "normalizers": [
 {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
 "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>",
 "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
 "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
 "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": true, "ignore_merges": false,
 "vocab": {"<unk>": 0, "<s>": 1, "<0x0A>": 2, "<0xC3>": 3, "▁": 4, "a": 5, "b": 6, "▁a": 7, "ab": 8},
 "merges": [["▁", "a"], ["a", "b"]]}})");
  write(json / "splits", R"({"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "Sequence",
 "pretokenizers": [{"type": "Split", "pattern": {"Regex": " ?[a-z]+|\\s+"}, "behavior": "Isolated",
 "invert": false}, {"type": "Digits", "individual_digits": true}, {"type": "ByteLevel",
 "add_prefix_space": false, "use_regex": false}]}, "post_processor": {"type": "Sequence",
 "processors": [{"type": "ByteLevel"}, {"type": "TemplateProcessing", "single": [
 {"Sequence": {"id": "A"}}, {"SpecialToken": {"id": "</s>"}}],
 "special_tokens": {"</s>": {"ids": [4]}}}]}, "model": {"vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3,
 "</s>": 4}, "merges": ["a b"]}})");
  write(json / "looks-ahead", R"({"pre_tokenizer": {"type": "Sequence", "pretokenizers": [
 {"type": "Split", "pattern": {"Regex": "[\\s\\S](?=[\\s\\S]*)|(?:[\\s\\S]*+y|x)*"}, "behavior": "Isolated"},
 {"type": "ByteLevel", "use_regex": false}]},
 "model": {"vocab": {"a": 0, "\u0000": 1}, "merges": ["\u0000 \u001b", "a"]}})");
  write(json / "prefix", R"({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true},
 "model": {"type": "BPE", "vocab": {"a": 0, "Ġ": 1, "Ġa": 2}, "merges": ["Ġ a"]}})");
  write(json / "unigram-bytes", R"({"normalizer": {"type": "Replace", "pattern": {"Regex": " {2,}"},
 "content": " "}, "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"},
 {"type": "Metaspace", "replacement": "▁", "add_prefix_space": true}]},
 "added_tokens": [{"id": 1, "content": "<s>", "special": true}, {"id": 2, "content": "</s>",
 "special": true}], "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
 "vocab": [["<unk>", 0], ["<s>", 0], ["</s>", 0], ["▁", -1], ["a", -2], ["▁a", -1.5]]}})");
  for (const char* mark :
       {"<|im_start|>", "<|start_header_id|>", "<start_of_turn>", "<|end|>", "[INST]"}) {
    std::string chat(kBytes);
    chat.replace(chat.find("<s>"), 3, mark);
    std::string name;
    for (const char* c = mark; *c != 0; ++c) name += std::isalpha(*c) != 0 ? *c : '-';
    write(json / ("chat" + name), chat);
  }
  std::string charsmap = unigram;
  charsmap.replace(
      charsmap.find("\"normalizer\""), std::string("\"normalizer\"").size(),
      R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "CAAAAP////8AAAAAYWFh"}, "x")");
  write(json / "damaged-character-map", charsmap);
  std::string ids = bpe;
  ids.replace(ids.find("\"id\": 5"), 7, "\"id\": 4000000000");
  write(json / "id-out-of-range", ids);

  for (const FamilyFacts& family : families())
    write(out / "config_json" / std::string(family.hf), config_of(family, ""));
  const char* scalings[] = {
      R"({"type": "linear", "factor": 2.0})",
      R"({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
 "original_max_position_embeddings": 32})",
      R"({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2, "beta_fast": 32})",
      R"({"type": "longrope", "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0],
 "original_max_position_embeddings": 2})",
      R"({"type": "su", "short_factor": [1.0, 1.5], "long_factor": [2.0, 3.0], "factor": 2.0})"};
  int scaling = 0;
  for (const char* each : scalings) {
    write(out / "config_json" / ("scaling-" + std::to_string(scaling++)),
          config_of(*family_of_hf("llama"), std::string(R"("rope_scaling": )") + each + ","));
  }
  write(out / "config_json/parameters",
        config_of(*family_of_hf("qwen3"), R"("rope_parameters": {"rope_type": "default",
 "rope_theta": 5000.0, "partial_rotary_factor": 0.5}, "layer_types": ["full_attention"],
 "use_sliding_window": true, "sliding_window": 2, "max_window_layers": 0,)"));

  write(out / "benchmarks/longbench",
        R"({"input": "Who?", "context": "A text.", "answers": ["a", "b"],
 "length": 12, "dataset": "qasper", "language": "en", "all_classes": null, "_id": "0f"})"
        "\n");
  write(out / "benchmarks/ruler",
        R"({"index": 0, "input": "A text.\nWhat is it?", "outputs": ["5"], "length": 9})"
        "\n");
  write(out / "benchmarks/lines", R"({"random_idx": ["a-b", 3], "expected_number": 17,
 "num_lines": 4, "correct_line": "line a-b: REGISTER_CONTENT is <17>", "prompt": "line a-b\nTell"})"
                                  "\n");
  write(out / "benchmarks/summaries",
        R"({"article": "### Article: a", "summary_gt": "b", "max_tokens": 8, "stop": ["###"]})"
        "\n");

  write(out / "results/progress", "{\"experiment\": \"fuzz\"}\n{\"key\": \"a\", \"value\": 1}\n");
  write(out / "results/result", R"({"experiment": "needle", "title": "t", "command": "c",
 "settings": {"a": [1, 2]}, "columns": [{"key": "a", "title": "A", "unit": "percent",
 "error_key": "b"}], "gap_key": "a", "rows": [{"a": 0.5, "b": null}], "plots": [], "notes": ["n"]})");

  write(
      out / "chat_template/chatml",
      "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' }}"
      "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}");
  write(
      out / "chat_template/loops",
      "{% macro m(x, y=2) %}{{ x ~ y }}{% endmacro %}{% for m in messages if m.content recursive %}"
      "{{ loop.index }}{{ m['content'][1:-1] | trim | upper }}{{ '%s|%5.2f' % ('a', 1) }}"
      "{% else %}none{% endfor %}{% set ns = namespace(a=[1]) %}{% set ns.a = ns.a + [2] %}"
      "{{ ns.a | tojson }}{{ dict(a=1).items() | list }}{{ 'a b'.split() | join('-') }}");
  write(
      out / "chat_template/costs",
      "{% set s = 'a' * 100000 %}{% set u = 'a' * 50000 + 'b' %}{{ u in s }}{{ s.rfind(u) }}"
      "{{ s.split('a') | length }}{{ s.strip('bc' * 9999) | length }}{% set d = {s: 1} %}"
      "{% for i in range(9999) %}{% if u in d or s | length or s[9] %}{% endif %}{% endfor %}"
      "{{ s | title | list | length }}{{ range(9) | slice(9999) }}{{ range(9) | batch(9999, 1) }}");
  int number = 0;
  for (const MethodInfo* info : methods())
    write(out / "method" / std::to_string(number++), std::string(info->name) + ":budget=64,sink=2");
  write(out / "method/rates", "streaming-llm:rate=0.25,window=8,generated=keep");
}

void write_sentencepiece(const fs::path& folder) {
  SentencePieceParts parts;
  for (const char* piece : {"<unk>", "<s>", "</s>", "▁", "a", "b", "▁ab"})
    parts.pieces.emplace_back(piece);
  parts.scores = {0, 0, 0, -1, -2, -2.5f, -3};
  parts.types.assign(7, TokenType::normal);
  parts.types[0] = TokenType::unknown;
  parts.types[1] = parts.types[2] = TokenType::control;
  write(folder / "unigram", serialize(parts));
  parts.unigram = false;
  write(folder / "bpe", serialize(parts));
  parts.pieces[4] = "";
  parts.unigram = true;
  write(folder / "empty-piece", serialize(parts));
  parts.pieces[4] = "a";
  // The rule "A" -> "b": the root's children begin at unit 256, and what ends "A" is unit 320.
  std::vector<std::uint32_t> units(512, 1u << 31);
  units[0] = 256 << 10;
  units[256 + 'A'] = 'A' | 1u << 8 | 1 << 10;
  units[(256 + 'A') ^ 1] = 1u << 31;
  const auto size = static_cast<std::uint32_t>(units.size() * sizeof(std::uint32_t));
  parts.character_map = std::string(reinterpret_cast<const char*>(&size), sizeof(size)) +
                        std::string(reinterpret_cast<const char*>(units.data()), size) +
                        std::string("b\0", 2);
  write(folder / "character-map", serialize(parts));
  parts.character_map = std::string("\x08\0\0\0\xff\xff\xff\xff\0\0\0\0aaa", 15);
  write(folder / "damaged-character-map", serialize(parts));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_corpus FOLDER\n");
    return 2;
  }
  try {
    write_safetensors(fs::path(argv[1]) / "safetensors");
    fs::create_directories(fs::path(argv[1]) / "gguf");
    write_types(fs::path(argv[1]) / "gguf" / "types");
    write_models(fs::path(argv[1]) / "gguf");
    write_pieces(fs::path(argv[1]) / "gguf_pieces");
    write_caches(fs::path(argv[1]) / "saved_cache");
    write_packed_caches(fs::path(argv[1]) / "packed_cache");
    write_chunks(fs::path(argv[1]) / "chunk");
    write_methods(fs::path(argv[1]) / "cache");
    write_folders(fs::path(argv[1]) / "folder");
    write_texts(argv[1]);
    write_sentencepiece(fs::path(argv[1]) / "sentencepiece");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
