// Writes fuzz/corpus: for each target small valid files to start from, and files with each defect
// that once broke something.
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
#include "ballast/engine/gguf.h"
#include "ballast/engine/safetensors.h"
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

/// A whole model of one layer.
void write_model(const fs::path& path) {
  GgufWriter w(path, 8);
  w.add("general.architecture", "llama");
  for (std::string key : {"block_count", "attention.head_count"}) {
    w.add("llama." + key, std::uint32_t{1});
  }
  for (std::string key : {"embedding_length", "feed_forward_length", "context_length"}) {
    w.add("llama." + key, std::uint32_t{4});
  }
  w.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  w.add("llama.rope.scaling.type", "yarn");
  w.add("llama.rope.scaling.factor", 2.0f);
  std::vector<std::size_t> square = {4, 4}, line = {4};
  std::size_t count = 0;
  for (std::string name :
       {"token_embd", "blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v", "blk.0.attn_output",
        "blk.0.ffn_gate", "blk.0.ffn_up", "blk.0.ffn_down"}) {
    w.declare(name + ".weight", TensorType::f16, square);
    count += 16;
  }
  for (std::string name : {"output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
    w.declare(name + ".weight", TensorType::f16, line);
    count += 4;
  }
  std::vector<std::byte> zeros(count * 2);
  w.write(std::span<const std::byte>(zeros));
  w.commit();
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The same model in two pieces; see gguf_pieces_fuzz.cc.
void write_pieces(const fs::path& folder) {
  fs::create_directories(folder);
  write_model(folder / "whole");
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
}

void write_caches(const fs::path& folder) {
  for (const MethodInfo* info : methods()) {
    const std::string name(info->name);
    if (info->whole_cache) continue;
    const bool exact = info->window_policy == WindowPolicy::all;
    const std::string method = exact ? name : name + ":budget=96";
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
  write_broken_caches(folder);
}

// Texts --------------------------------------------------------------------------------------

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
  std::string charsmap = unigram;
  charsmap.replace(
      charsmap.find("\"normalizer\""), std::string("\"normalizer\"").size(),
      R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "CAAAAP////8AAAAAYWFh"}, "x")");
  write(json / "damaged-character-map", charsmap);
  std::string ids = bpe;
  ids.replace(ids.find("\"id\": 5"), 7, "\"id\": 4000000000");
  write(json / "id-out-of-range", ids);

  write(out / "config_json/llama", R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"],
 "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
 "intermediate_size": 16, "vocab_size": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
 "rope_theta": 10000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
 "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}})");
  write(out / "config_json/gemma2", R"({"model_type": "gemma2", "hidden_size": 8,
 "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4,
 "intermediate_size": 16, "vocab_size": 32, "max_position_embeddings": 64, "rms_norm_eps": 1e-6,
 "sliding_window": 8, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
 "query_pre_attn_scalar": 4})");
  write(out / "config_json/mpt", R"({"model_type": "mpt", "d_model": 8, "n_heads": 2, "n_layers": 2,
 "expansion_ratio": 4, "max_seq_len": 64, "vocab_size": 32,
 "attn_config": {"alibi": true, "alibi_bias_max": 8, "clip_qkv": 6}})");

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
    write_model(fs::path(argv[1]) / "gguf" / "model");
    write_pieces(fs::path(argv[1]) / "gguf_pieces");
    write_caches(fs::path(argv[1]) / "saved_cache");
    write_texts(argv[1]);
    write_sentencepiece(fs::path(argv[1]) / "sentencepiece");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
  return 0;
}
