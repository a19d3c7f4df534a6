#include "ballast/engine/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ballast/engine/model.h"
#include "ballast/error.h"
#include "formats/mutate.h"
#include "memory_file.h"
#include "model/families/families.h"
#include "model/tiny_model.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kLayers = 2, kWidth = 8, kHeads = 4, kDim = 2, kFfn = 6, kVocabulary = 10;

// The names and shapes of each family's files, written out here from the models themselves.
std::vector<TinyTensor> hf_llama(bool output) {
  std::string l = "model.layers.{}.";
  std::vector<TinyTensor> t = {
      {"model.embed_tokens.weight", {10, 8}},  {"model.norm.weight", {8}},
      {l + "input_layernorm.weight", {8}},     {l + "self_attn.q_proj.weight", {8, 8}},
      {l + "self_attn.k_proj.weight", {4, 8}}, {l + "self_attn.v_proj.weight", {4, 8}},
      {l + "self_attn.o_proj.weight", {8, 8}}, {l + "post_attention_layernorm.weight", {8}},
      {l + "mlp.gate_proj.weight", {6, 8}},    {l + "mlp.up_proj.weight", {6, 8}},
      {l + "mlp.down_proj.weight", {8, 6}}};
  if (output) t.push_back({"lm_head.weight", {10, 8}});
  return in_layers(t, kLayers);
}

std::string llama_json(std::string model_type, std::string more = "") {
  return R"({"hidden_size": 8, "intermediate_size": 6, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "vocab_size": 10, "model_type": ")" +
         model_type + "\"" + more + "}";
}

class ModelFileTest : public ::testing::Test {
 protected:
  ModelFile folder(const std::string& config, const std::vector<TinyTensor>& tensors) {
    write_text(dir_ / "config.json", config);
    write_tiny_safetensors(dir_ / "model.safetensors", tensors);
    return ModelFile(dir_.path());
  }
  std::vector<float> numbers(const std::string& name, std::vector<std::size_t> shape) {
    return tiny_numbers({name, std::move(shape)});
  }
  TempDir dir_;
};

std::vector<float> rows(const std::vector<float>& all, std::size_t row, std::size_t begin,
                        std::size_t count) {
  auto at = all.begin() + static_cast<std::ptrdiff_t>(begin * row);
  return {at, at + static_cast<std::ptrdiff_t>(count * row)};
}

TEST_F(ModelFileTest, LlamaFolder) {
  ModelFile model = folder(llama_json("llama"), hf_llama(true));
  EXPECT_EQ(to_float(model.at(Weight::key, 1)),
            numbers("model.layers.1.self_attn.k_proj.weight", {4, 8}));
  EXPECT_EQ(to_float(model.at(Weight::ffn_norm, 0)),
            numbers("model.layers.0.post_attention_layernorm.weight", {8}));
  EXPECT_EQ(to_float(model.at(Weight::output)), numbers("lm_head.weight", {10, 8}));
  EXPECT_EQ(model.find(Weight::query, 0, Part::bias), nullptr);
  EXPECT_EQ(model.find(Weight::query, 2), nullptr);
  EXPECT_THAT(error_of([&] { (void)model.at(Weight::post_ffn_norm, 1); }),
              HasSubstr("no post_ffn_norm in layer 1"));
  EXPECT_EQ(model.gguf(), nullptr);
  EXPECT_EQ(model.bytes(), 4 * (80 + 8 + 80 + 2 * (8 + 64 + 32 + 32 + 64 + 8 + 48 * 3)));
  // The same by other paths.
  EXPECT_EQ(ModelFile(dir_ / "model.safetensors").config().width, kWidth);
  EXPECT_EQ(ModelFile(dir_ / "config.json").config().width, kWidth);
  EXPECT_TRUE(model.tokenizer().tokenizer_json.empty());
  write_text(dir_ / "tokenizer.model", "");
  EXPECT_EQ(model.tokenizer().tokenizer_model, dir_ / "tokenizer.model");
  write_text(dir_ / "tokenizer.json", "");
  EXPECT_EQ(model.tokenizer().tokenizer_json, dir_ / "tokenizer.json");
  EXPECT_TRUE(model.tokenizer().tokenizer_model.empty());
}

TEST_F(ModelFileTest, TiedEmbeddings) {
  ModelFile model = folder(llama_json("llama", ", \"tie_word_embeddings\": true"), hf_llama(false));
  EXPECT_EQ(&model.at(Weight::output), &model.at(Weight::token_embedding));
  std::filesystem::remove(dir_ / "model.safetensors");
  EXPECT_THAT(error_of([&] { folder(llama_json("llama"), hf_llama(false)); }),
              HasSubstr("the tensor 'lm_head.weight' is missing"));
}

TEST_F(ModelFileTest, SaysWhichTensorIsMissingOrWrong) {
  std::vector<TinyTensor> tensors = hf_llama(true);
  std::erase_if(tensors,
                [](const TinyTensor& t) { return t.name == "model.layers.1.mlp.up_proj.weight"; });
  EXPECT_THAT(error_of([&] { folder(llama_json("llama"), tensors); }),
              HasSubstr("'model.layers.1.mlp.up_proj.weight' is missing"));
  tensors.push_back({"model.layers.1.mlp.up_proj.weight", {8, 6}});
  EXPECT_THAT(error_of([&] { folder(llama_json("llama"), tensors); }),
              AllOf(HasSubstr("has shape [8, 6]"), HasSubstr("needs [6, 8]")));
  EXPECT_THAT(error_of([&] { folder(llama_json("qwen2"), hf_llama(true)); }),
              HasSubstr("q_proj.bias' is missing"));
  EXPECT_THAT(error_of([&] { folder(llama_json("qwen3"), hf_llama(true)); }),
              HasSubstr("q_norm.weight' is missing"));
  std::filesystem::remove(dir_ / "config.json");
  EXPECT_THAT(error_of([&] { ModelFile m(dir_.path()); }), HasSubstr("no config.json"));
}

// They were read as if their scales were 1.
TEST_F(ModelFileTest, QuantizedWeightsOfAnUnknownFormAreRefused) {
  const auto refusal = [&](TensorType type) {
    std::vector<TinyTensor> tensors = hf_llama(true);
    const std::string quantized = "model.layers.1.mlp.up_proj.weight";
    std::vector<SafetensorsWriter::Declaration> declarations;
    for (const TinyTensor& t : tensors) {
      declarations.push_back({t.name, t.name == quantized ? type : TensorType::f32, t.shape});
    }
    write_text(dir_ / "config.json", llama_json("llama"));
    SafetensorsWriter writer(dir_ / "model.safetensors", declarations);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      writer.write(encode(declarations[i].type, tiny_numbers(tensors[i])));
    }
    writer.commit();
    return error_of([&] { const ModelFile model(dir_.path()); });
  };
  for (TensorType type : {TensorType::i8, TensorType::u8, TensorType::i32, TensorType::boolean}) {
    EXPECT_THAT(refusal(type), AllOf(HasSubstr("up_proj.weight' holds quantized weights"),
                                     HasSubstr("quantization_config")));
  }
  EXPECT_EQ(refusal(TensorType::bf16), "");
}

TEST_F(ModelFileTest, NamesWithoutThePrefix) {
  std::vector<TinyTensor> tensors = hf_llama(true);
  for (TinyTensor& t : tensors) {
    if (t.name.starts_with("model.")) t.name = t.name.substr(6);
  }
  ModelFile model = folder(llama_json("mistral"), tensors);
  EXPECT_EQ(to_float(model.at(Weight::output_norm)), numbers("norm.weight", {8}));
}

TEST_F(ModelFileTest, Phi3FusedRows) {
  std::string l = "model.layers.{}.";
  ModelFile model =
      folder(llama_json("phi3"), in_layers({{"model.embed_tokens.weight", {10, 8}},
                                            {"model.norm.weight", {8}},
                                            {"lm_head.weight", {10, 8}},
                                            {l + "input_layernorm.weight", {8}},
                                            {l + "self_attn.qkv_proj.weight", {16, 8}},
                                            {l + "self_attn.o_proj.weight", {8, 8}},
                                            {l + "post_attention_layernorm.weight", {8}},
                                            {l + "mlp.gate_up_proj.weight", {12, 8}},
                                            {l + "mlp.down_proj.weight", {8, 6}}},
                                           kLayers));
  std::vector<float> qkv = numbers("model.layers.1.self_attn.qkv_proj.weight", {16, 8});
  EXPECT_EQ(to_float(model.at(Weight::query, 1)), rows(qkv, 8, 0, 8));
  EXPECT_EQ(to_float(model.at(Weight::key, 1)), rows(qkv, 8, 8, 4));
  EXPECT_EQ(to_float(model.at(Weight::value, 1)), rows(qkv, 8, 12, 4));
  std::vector<float> gate_up = numbers("model.layers.1.mlp.gate_up_proj.weight", {12, 8});
  EXPECT_EQ(to_float(model.at(Weight::ffn_gate, 1)), rows(gate_up, 8, 0, 6));
  EXPECT_EQ(to_float(model.at(Weight::ffn_up, 1)), rows(gate_up, 8, 6, 6));
  EXPECT_THAT(model.at(Weight::ffn_up, 1).shape, ElementsAre(6, 8));
}

TEST_F(ModelFileTest, GptNeoXRowsPerHead) {
  std::string l = "gpt_neox.layers.{}.";
  std::vector<TinyTensor> tensors = {{"gpt_neox.embed_in.weight", {10, 8}},
                                     {"embed_out.weight", {10, 8}}};
  auto with_bias = [&](std::string name, std::vector<std::size_t> shape) {
    tensors.push_back({name + ".weight", shape});
    tensors.push_back({name + ".bias", {shape[0]}});
  };
  with_bias("gpt_neox.final_layer_norm", {8});
  with_bias(l + "input_layernorm", {8});
  with_bias(l + "attention.query_key_value", {24, 8});
  with_bias(l + "attention.dense", {8, 8});
  with_bias(l + "post_attention_layernorm", {8});
  with_bias(l + "mlp.dense_h_to_4h", {6, 8});
  with_bias(l + "mlp.dense_4h_to_h", {8, 6});
  ModelFile model = folder(R"({"model_type": "gpt_neox", "hidden_size": 8, "intermediate_size": 6,
      "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 64,
      "rotary_pct": 1.0, "vocab_size": 10})",
                           in_layers(tensors, kLayers));
  std::vector<float> weight =
      numbers("gpt_neox.layers.1.attention.query_key_value.weight", {24, 8});
  std::vector<float> bias = numbers("gpt_neox.layers.1.attention.query_key_value.bias", {24});
  std::vector<float> key = to_float(model.at(Weight::key, 1));
  std::vector<float> value_bias = to_float(model.at(Weight::value, 1, Part::bias));
  for (std::size_t head = 0; head < kHeads; ++head) {
    // Of each head's 3·2 rows, the middle two are its key's and the last two its value's.
    EXPECT_EQ(rows(key, 8, head * kDim, kDim), rows(weight, 8, head * 3 * kDim + kDim, kDim));
    EXPECT_EQ(rows(value_bias, 1, head * kDim, kDim),
              rows(bias, 1, head * 3 * kDim + 2 * kDim, kDim));
  }
  EXPECT_EQ(to_float(model.at(Weight::ffn_up, 0, Part::bias)),
            numbers("gpt_neox.layers.0.mlp.dense_h_to_4h.bias", {6}));
  EXPECT_EQ(model.find(Weight::ffn_gate, 0), nullptr);
}

TEST_F(ModelFileTest, OptAndMpt) {
  std::string l = "model.decoder.layers.{}.";
  std::vector<TinyTensor> tensors = {{"model.decoder.embed_tokens.weight", {10, 8}},
                                     {"model.decoder.embed_positions.weight", {66, 8}}};
  auto with_bias = [&](std::string name, std::vector<std::size_t> shape) {
    tensors.push_back({name + ".weight", shape});
    tensors.push_back({name + ".bias", {shape[0]}});
  };
  with_bias("model.decoder.final_layer_norm", {8});
  with_bias(l + "self_attn_layer_norm", {8});
  for (std::string p : {"q", "k", "v", "out"}) with_bias(l + "self_attn." + p + "_proj", {8, 8});
  with_bias(l + "final_layer_norm", {8});
  with_bias(l + "fc1", {6, 8});
  with_bias(l + "fc2", {8, 6});
  {
    ModelFile opt =
        folder(R"({"model_type": "opt", "hidden_size": 8, "ffn_dim": 6, "vocab_size": 10,
        "num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 64})",
               in_layers(tensors, kLayers));
    EXPECT_EQ(to_float(opt.at(Weight::position_embedding)).size(), 66u * 8);
    EXPECT_EQ(to_float(opt.at(Weight::ffn_norm, 1, Part::bias)),
              numbers("model.decoder.layers.1.final_layer_norm.bias", {8}));
    EXPECT_EQ(to_float(opt.at(Weight::output_norm)),
              numbers("model.decoder.final_layer_norm.weight", {8}));
  }
  std::string b = "transformer.blocks.{}.";
  ModelFile mpt = folder(R"({"model_type": "mpt", "d_model": 8, "n_heads": 4, "n_layers": 2,
      "expansion_ratio": 4, "max_seq_len": 64, "vocab_size": 10, "attn_config": {"alibi": true}})",
                         in_layers({{"transformer.wte.weight", {10, 8}},
                                    {"transformer.norm_f.weight", {8}},
                                    {b + "norm_1.weight", {8}},
                                    {b + "attn.Wqkv.weight", {24, 8}},
                                    {b + "attn.out_proj.weight", {8, 8}},
                                    {b + "norm_2.weight", {8}},
                                    {b + "ffn.up_proj.weight", {32, 8}},
                                    {b + "ffn.down_proj.weight", {8, 32}}},
                                   kLayers));
  EXPECT_EQ(to_float(mpt.at(Weight::value, 1)),
            rows(numbers("transformer.blocks.1.attn.Wqkv.weight", {24, 8}), 8, 16, 8));
  EXPECT_EQ(mpt.find(Weight::attention_norm, 0, Part::bias), nullptr);
  EXPECT_EQ(mpt.find(Weight::position_embedding), nullptr);
}

class GgufModelTest : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Architectures, GgufModelTest,
                         ::testing::Values("llama", "qwen2", "qwen3", "gemma2", "phi3", "gptneox",
                                           "mpt"),
                         [](const auto& info) { return info.param; });

/// The tensors of a GGUF file of the architecture.
std::vector<TinyTensor> gguf_tensors(const std::string& a) {
  std::string l = "blk.{}.";
  bool layer_norm = a == "gptneox" || a == "mpt";
  std::vector<TinyTensor> t = {{"token_embd.weight", {10, 8}}, {"output_norm.weight", {8}},
                               {l + "attn_norm.weight", {8}},  {l + "attn_output.weight", {8, 8}},
                               {l + "ffn_norm.weight", {8}},   {l + "ffn_down.weight", {8, 6}}};
  if (a == "phi3" || layer_norm) {
    t.push_back({l + "attn_qkv.weight", {16, 8}});
  } else {
    t.insert(t.end(), {{l + "attn_q.weight", {8, 8}},
                       {l + "attn_k.weight", {4, 8}},
                       {l + "attn_v.weight", {4, 8}}});
  }
  t.push_back({l + "ffn_up.weight", {a == "phi3" ? 12u : 6u, 8}});
  if (a != "phi3" && !layer_norm) t.push_back({l + "ffn_gate.weight", {6, 8}});
  if (a == "qwen2") {
    t.insert(t.end(),
             {{l + "attn_q.bias", {8}}, {l + "attn_k.bias", {4}}, {l + "attn_v.bias", {4}}});
  }
  if (a == "qwen3") {
    t.insert(t.end(), {{l + "attn_q_norm.weight", {2}}, {l + "attn_k_norm.weight", {2}}});
  }
  if (a == "gemma2") {
    t.insert(t.end(), {{l + "post_attention_norm.weight", {8}}, {l + "post_ffw_norm.weight", {8}}});
  }
  if (a == "gptneox") {
    t.insert(t.end(), {{"output_norm.bias", {8}},
                       {l + "attn_norm.bias", {8}},
                       {l + "attn_qkv.bias", {16}},
                       {l + "attn_output.bias", {8}},
                       {l + "ffn_norm.bias", {8}},
                       {l + "ffn_up.bias", {6}},
                       {l + "ffn_down.bias", {8}}});
  }
  return in_layers(t, kLayers);
}

void write_gguf_model(const std::filesystem::path& path, const std::string& a) {
  std::vector<TinyTensor> tensors = gguf_tensors(a);
  bool layer_norm = a == "gptneox" || a == "mpt";
  GgufWriter w(path);
  w.add("general.architecture", a);
  for (auto [key, value] : std::map<std::string, std::uint32_t>{{"block_count", kLayers},
                                                                {"embedding_length", kWidth},
                                                                {"feed_forward_length", kFfn},
                                                                {"context_length", 64},
                                                                {"attention.head_count", kHeads},
                                                                {"attention.head_count_kv", 2}}) {
    w.add(a + "." + key, value);
  }
  w.add(a + (layer_norm ? ".attention.layer_norm_epsilon" : ".attention.layer_norm_rms_epsilon"),
        1e-5f);
  for (const TinyTensor& tensor : tensors) w.declare(tensor.name, TensorType::f32, tensor.shape);
  for (const TinyTensor& tensor : tensors) w.write(std::span<const float>(tiny_numbers(tensor)));
  w.commit();
}

TEST_P(GgufModelTest, LoadsEveryTensor) {
  std::string a = GetParam();
  TempDir dir;
  write_gguf_model(dir / "m.gguf", a);
  std::vector<TinyTensor> tensors = gguf_tensors(a);
  ModelFile model(dir / "m.gguf");
  EXPECT_EQ(model.config().vocabulary, kVocabulary);
  EXPECT_TRUE(model.config().tied_embeddings);
  EXPECT_EQ(model.tokenizer().gguf, model.gguf());
  // Every tensor of the file can be had by some name, and no number is lost.
  std::size_t found = 0, written = 0;
  for (const TinyTensor& tensor : tensors) written += element_count(tensor.shape);
  for (std::size_t layer = 0; layer < kLayers; ++layer) {
    for (int w = 0; w <= static_cast<int>(Weight::post_ffn_norm); ++w) {
      auto weight = static_cast<Weight>(w);
      if (weight == Weight::output || (layer > 0 && weight < Weight::attention_norm)) continue;
      for (Part part : {Part::weight, Part::bias}) {
        if (const TensorView* view = model.find(weight, layer, part)) found += view->size();
      }
    }
  }
  EXPECT_EQ(found, written);
  EXPECT_EQ(to_float(model.at(Weight::ffn_down, 1)),
            tiny_numbers({"blk.1.ffn_down.weight", {8, 6}}));
  if (a == "phi3" || a == "gptneox" || a == "mpt") {
    EXPECT_EQ(to_float(model.at(Weight::key, 1)),
              rows(tiny_numbers({"blk.1.attn_qkv.weight", {16, 8}}), 8, 8, 4));
  }
}

TEST_P(GgufModelTest, DamagedFilesGiveOneErrorAtMost) {
  TempDir dir;
  write_gguf_model(dir / "m.gguf", GetParam());
  std::string valid = read_text(dir / "m.gguf");
  for (std::uint32_t seed = 0; seed < 1000; ++seed) {
    MemoryFile damaged(mutate(valid, seed));
    std::string message = error_of([&] { ModelFile model(damaged.path()); });
    ASSERT_EQ(message.find('\n'), std::string::npos);
  }
}

TEST(GgufModels, VocabulariesAreRefused) {
  TempDir dir;
  {
    GgufWriter w(dir / "v.gguf");
    w.add("general.architecture", "llama");
    w.commit();
  }
  EXPECT_THAT(error_of([&] { ModelFile m(dir / "v.gguf"); }), HasSubstr("no weights"));
}

/// Writes the model of write_gguf_model() in `count` pieces, the first without tensors if
/// `no_tensors_first`, and returns the path of the first.
std::filesystem::path write_pieces(const TempDir& dir, std::uint16_t count,
                                   bool no_tensors_first = false) {
  write_gguf_model(dir / "whole.gguf", "llama");
  const Gguf whole(dir / "whole.gguf");
  std::size_t next = 0;
  const std::size_t total = whole.tensors().size();
  for (std::uint16_t i = 0; i < count; ++i) {
    GgufWriter w(dir / fmt::format("m-{:05}-of-{:05}.gguf", i + 1, count));
    if (i == 0) {
      w.add("general.architecture", "llama");
      for (const char* key :
           {"block_count", "embedding_length", "feed_forward_length", "context_length",
            "attention.head_count", "attention.head_count_kv"}) {
        const std::string name = std::string("llama.") + key;
        w.add(name, static_cast<std::uint32_t>(whole.get<std::uint64_t>(name)));
      }
      w.add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    }
    w.add("split.no", i);
    w.add("split.count", count);
    w.add("split.tensors.count", static_cast<std::int32_t>(total));
    const std::size_t end = i == 0 && no_tensors_first ? 0 : total * (i + 1) / count;
    for (std::size_t t = next; t < end; ++t) {
      w.declare(whole.tensors()[t].name, whole.tensors()[t].type, whole.tensors()[t].shape);
    }
    for (; next < end; ++next) w.write(whole.tensors()[next].data);
    w.commit();
  }
  return dir / fmt::format("m-00001-of-{:05}.gguf", count);
}

TEST(GgufPieces, AreReadAsOneModel) {
  for (bool no_tensors_first : {false, true}) {
    TempDir dir;
    const auto first = write_pieces(dir, 3, no_tensors_first);
    const ModelFile whole(dir / "whole.gguf"), joined(first);
    EXPECT_EQ(joined.bytes(), whole.bytes());
    EXPECT_EQ(joined.files().size(), 3u);
    EXPECT_EQ(joined.config().vocabulary, kVocabulary);
    for (std::size_t layer = 0; layer < kLayers; ++layer) {
      for (int w = 0; w <= static_cast<int>(Weight::post_ffn_norm); ++w) {
        const TensorView* a = whole.find(static_cast<Weight>(w), layer);
        const TensorView* b = joined.find(static_cast<Weight>(w), layer);
        ASSERT_EQ(a == nullptr, b == nullptr);
        if (a != nullptr) {
          EXPECT_EQ(to_float(*a), to_float(*b));
        }
      }
    }
  }
}

TEST(GgufPieces, ThatAreNotAllThereAreRefused) {
  TempDir dir;
  const auto first = write_pieces(dir, 3);
  const auto second = dir / "m-00002-of-00003.gguf", third = dir / "m-00003-of-00003.gguf";
  EXPECT_THAT(error_of([&] { ModelFile m(second); }),
              AllOf(HasSubstr("piece 2 of a model in 3; give the first"),
                    HasSubstr("m-00001-of-00003.gguf")));
  std::filesystem::rename(third, dir / "elsewhere");
  EXPECT_THAT(error_of([&] { ModelFile m(first); }), HasSubstr("m-00003-of-00003.gguf"));
  std::filesystem::copy_file(second, third);
  EXPECT_THAT(error_of([&] { ModelFile m(first); }),
              HasSubstr("m-00003-of-00003.gguf: not piece 3 of 3"));
  std::filesystem::remove(third);
  {
    GgufWriter w(third);
    w.add("split.no", std::uint16_t{2});
    w.add("split.count", std::uint16_t{3});
    w.commit();
  }
  EXPECT_THAT(error_of([&] { ModelFile m(first); }), HasSubstr("tensors, its 3 pieces hold"));
  std::filesystem::copy_file(first, dir / "renamed.gguf");
  EXPECT_THAT(error_of([&] { ModelFile m(dir / "renamed.gguf"); }),
              HasSubstr("names end with -00001-of-00003.gguf"));
}

TEST(GgufModels, MixturesOfExpertsOfOtherFamiliesAreRefused) {
  TempDir dir;
  {
    GgufWriter w(dir / "m.gguf");
    w.add("general.architecture", "phi3");
    w.add("phi3.expert_count", std::uint32_t{8});
    w.declare("a", TensorType::f32, std::vector<std::size_t>{1});
    w.write(std::vector<float>{1});
    w.commit();
  }
  EXPECT_THAT(error_of([&] { ModelFile m(dir / "m.gguf"); }),
              HasSubstr("8 experts in a model of phi3, which is not supported"));
}

TEST_F(ModelFileTest, NumbersThatAreNotFiniteAreNamed) {
  const std::vector<TinyTensor> tensors = hf_llama(true);
  EXPECT_NO_THROW(folder(llama_json("llama"), tensors).require_finite());
  for (const float bad : {std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    for (const TinyTensor& tensor : tensors) {
      write_tiny_safetensors(dir_ / "model.safetensors", tensors, tensor.name, bad);
      const ModelFile file(dir_.path());
      const std::size_t row = tensor.shape.size() == 1 ? 0 : tensor.shape[0] - 1;
      try {
        file.require_finite();
        ADD_FAILURE() << tensor.name;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::bad_file);
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr(dir_.path().string()), HasSubstr("'" + tensor.name +
                                                                     "' holds a number that is "
                                                                     "not finite in row " +
                                                                     std::to_string(row) + ":")));
      }
    }
  }
}

// Wherever the number is, a prompt or the step after it ends with that error.
TEST_F(ModelFileTest, ARunSaysWhichTensorIsNotFinite) {
  const std::vector<TinyTensor> tensors = hf_llama(true);
  for (const TinyTensor& tensor : tensors) {
    folder(llama_json("llama"), tensors);
    write_tiny_safetensors(dir_ / "model.safetensors", tensors, tensor.name, std::nanf(""));
    const Model model(dir_.path());
    Engine engine(model);
    Sequence sequence(model, {});
    // The spoiled row of the embedding is the last token's.
    const std::vector<Token> prompt = {1, 2, 9};
    try {
      engine.prefill(sequence, prompt);
      ADD_FAILURE() << tensor.name;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("'" + tensor.name + "' holds"));
    }
  }
}

}  // namespace
}  // namespace ballast
