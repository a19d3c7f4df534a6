#include "ballast/engine/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <optional>

#include "ballast/engine/gguf.h"
#include "ballast/error.h"
#include "formats/mutate.h"
#include "memory_file.h"
#include "model/families/rope_scaling.h"
#include "temp_dir.h"

namespace ballast {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class HfConfigTest : public ::testing::Test {
 protected:
  ModelConfig read(const std::string& json) {
    write_text(dir_ / "config.json", json);
    return read_config(dir_ / "config.json");
  }
  std::string refusal(const std::string& json) {
    return error_of([&] { (void)read(json); });
  }
  TempDir dir_;
};

const char* const kLlama31 = R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
  "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
  "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
  "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "tie_word_embeddings": false, "vocab_size": 128256})";

TEST_F(HfConfigTest, Llama31) {
  ModelConfig c = read(kLlama31);
  EXPECT_EQ(c.family, Family::llama);
  EXPECT_EQ(c.layers, 32u);
  EXPECT_EQ(c.kv_heads, 8u);
  EXPECT_EQ(c.key_dim, 128u);
  EXPECT_EQ(c.ffn_width, 14336u);
  EXPECT_EQ(c.norm, NormKind::rms);
  EXPECT_EQ(c.rope.style, RopeStyle::halves);
  EXPECT_EQ(c.rope.base, 500000.0f);
  EXPECT_FLOAT_EQ(c.attention_scale, 1.0f / std::sqrt(128.0f));
  EXPECT_THAT(c.sliding_windows, AllOf(::testing::SizeIs(32), Each(0u)));
  EXPECT_FALSE(c.tied_embeddings);
  // The published rule, by wavelength, as the paper's reference code states it.
  std::vector<float> frequencies = c.rope.frequencies(4096);
  ASSERT_EQ(frequencies.size(), 64u);
  for (std::size_t i = 0; i < 64; ++i) {
    double plain = std::pow(500000.0, -static_cast<double>(2 * i) / 128.0);
    double wave = 2 * std::numbers::pi / plain;
    double expected;
    if (wave < 8192.0 / 4.0) {
      expected = plain;
    } else if (wave > 8192.0) {
      expected = plain / 8.0;
    } else {
      double smooth = (8192.0 / wave - 1.0) / 3.0;
      expected = (1 - smooth) * plain / 8.0 + smooth * plain;
    }
    EXPECT_NEAR(static_cast<double>(frequencies[i]), expected, 1e-6 * expected) << i;
  }
}

TEST_F(HfConfigTest, RopeParametersOfNewerFiles) {
  std::string json = kLlama31;
  json.replace(json.find("\"rope_theta\": 500000.0,"), 23, "");
  json.replace(json.find("rope_scaling\": {"), 16, "rope_parameters\": {\"rope_theta\": 500000.0,");
  EXPECT_EQ(read(json).rope.frequencies(1), read(kLlama31).rope.frequencies(1));
}

TEST_F(HfConfigTest, Gemma2) {
  ModelConfig c = read(R"({"model_type": "gemma2", "attn_logit_softcapping": 50.0,
    "final_logit_softcapping": 30.0, "head_dim": 128, "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 4608, "intermediate_size": 36864, "max_position_embeddings": 8192,
    "num_attention_heads": 32, "num_hidden_layers": 4, "num_key_value_heads": 16,
    "query_pre_attn_scalar": 144, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
    "sliding_window": 4096, "vocab_size": 256000})");
  EXPECT_EQ(c.family, Family::gemma2);
  EXPECT_THAT(c.sliding_windows, ElementsAre(4096, 0, 4096, 0));
  EXPECT_FLOAT_EQ(c.attention_scale, 1.0f / 12.0f);
  EXPECT_FLOAT_EQ(c.embedding_scale, std::sqrt(4608.0f));
  EXPECT_EQ(c.norm_offset, 1.0f);
  EXPECT_EQ(c.activation, Activation::gelu_tanh);
  EXPECT_EQ(c.attention_softcap, 50.0f);
  EXPECT_EQ(c.output_softcap, 30.0f);
  EXPECT_TRUE(c.tied_embeddings);
}

TEST_F(HfConfigTest, MistralAndQwen) {
  std::string sizes = R"("hidden_size": 64, "intermediate_size": 128, "hidden_act": "silu",
    "max_position_embeddings": 32768, "num_attention_heads": 4, "num_hidden_layers": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "vocab_size": 100, )";
  EXPECT_THAT(
      read("{" + sizes + R"("model_type": "mistral", "sliding_window": 4096})").sliding_windows,
      Each(4096u));
  EXPECT_THAT(
      read("{" + sizes + R"("model_type": "mistral", "sliding_window": null})").sliding_windows,
      Each(0u));
  EXPECT_THAT(read("{" + sizes + R"("model_type": "ministral", "sliding_window": 8, "layer_types":
      ["full_attention","sliding_attention","sliding_attention","full_attention"]})")
                  .sliding_windows,
              ElementsAre(0, 8, 8, 0));
  EXPECT_THAT(read("{" + sizes + R"("model_type": "qwen2", "sliding_window": 8,
      "use_sliding_window": false, "max_window_layers": 2})")
                  .sliding_windows,
              Each(0u));
  EXPECT_THAT(read("{" + sizes + R"("model_type": "qwen2", "sliding_window": 8,
      "use_sliding_window": true, "max_window_layers": 2})")
                  .sliding_windows,
              ElementsAre(0, 0, 8, 8));
  ModelConfig c = read("{" + sizes + R"("model_type": "qwen3", "head_dim": 32})");
  EXPECT_EQ(c.key_dim, 32u);
  EXPECT_THAT(refusal("{" + sizes + R"("model_type": "mistral", "layer_types": ["odd"]})"),
              HasSubstr("lists 1 of 4"));
}

// LFM2-1.2B's first config.json, and what newer ones say.
TEST_F(HfConfigTest, Lfm2SaysWhichLayersAttend) {
  const std::string sizes = R"("model_type": "lfm2", "hidden_size": 2048, "num_hidden_layers": 4,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 65536,
      "max_position_embeddings": 128000, )";
  const ModelConfig c = read("{" + sizes + R"("block_ff_dim": 12288, "full_attn_idxs": [2]})");
  EXPECT_THAT(c.attending(), ElementsAre(2));
  EXPECT_EQ(c.ffn_width, 8192u);
  EXPECT_EQ(c.conv_width, 3u);
  EXPECT_TRUE(c.tied_embeddings);
  EXPECT_EQ(c.rope.base, 1e6f);
  const ModelConfig newer = read("{" + sizes + R"("intermediate_size": 10240,
      "block_auto_adjust_ff_dim": false,
      "layer_types": ["conv", "full_attention", "conv", "full_attention"]})");
  EXPECT_THAT(newer.attending(), ElementsAre(1, 3));
  EXPECT_EQ(newer.ffn_width, 10240u);
  EXPECT_THAT(refusal("{" + sizes + R"("intermediate_size": 64, "full_attn_idxs": [4]})"),
              HasSubstr("layer 4 of 4"));
  EXPECT_THAT(refusal("{" + sizes + R"("intermediate_size": 64,
      "layer_types": ["conv", "conv", "conv", "mamba"]})"),
              HasSubstr("layer 3 is of type 'mamba'"));
  EXPECT_THAT(refusal("{" + sizes + R"("intermediate_size": 64,
      "layer_types": ["conv", "conv", "conv", "conv"]})"),
              HasSubstr("attend"));
}

// GLM-4.5-Air's config.json, without what is of no use here.
TEST_F(HfConfigTest, Glm45HasASharedExpertAndOneGroup) {
  const std::string air = R"({"model_type": "glm4_moe", "hidden_size": 4096,
      "num_hidden_layers": 46, "num_attention_heads": 96, "num_key_value_heads": 8,
      "head_dim": 128, "intermediate_size": 10944, "vocab_size": 151552,
      "max_position_embeddings": 131072, "n_routed_experts": 128, "n_shared_experts": 1,
      "num_experts_per_tok": 8, "moe_intermediate_size": 1408, "first_k_dense_replace": 1,
      "norm_topk_prob": true, "routed_scaling_factor": 1.0, "topk_group": 1,
      "partial_rotary_factor": 0.5, "num_nextn_predict_layers": 1, "n_group": )";
  const ModelConfig c = read(air + "1}");
  EXPECT_EQ(c.experts, 128u);
  EXPECT_TRUE(c.sigmoid_router && c.experts_share_weight);
  EXPECT_EQ(c.rope.dimension, 64u);
  EXPECT_EQ(c.dense_width(0), 10944u);
  EXPECT_EQ(c.dense_width(1), 1408u);
  EXPECT_THAT(refusal(air + "8}"), HasSubstr("8 groups of experts"));
}

TEST_F(HfConfigTest, GraniteMayMixExpertsButNotMamba) {
  const std::string sizes = R"({"model_type": "granitemoehybrid", "hidden_size": 64,
      "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 16, "vocab_size": 8,
      "max_position_embeddings": 64, "num_local_experts": 6, "num_experts_per_tok": 2,
      "shared_intermediate_size": 32)";
  const ModelConfig c = read(sizes + R"(, "layer_types": ["attention", "attention"]})");
  EXPECT_EQ(c.family, Family::granitemoe);
  EXPECT_EQ(c.shared_width, 32u);
  EXPECT_EQ(c.rope.style, RopeStyle::none);
  EXPECT_THAT(refusal(sizes + R"(, "layer_types": ["attention", "mamba"]})"), HasSubstr("Mamba"));
  EXPECT_THAT(refusal(sizes + "}"), HasSubstr("Mamba"));
}

TEST_F(HfConfigTest, Qwen35IsFoundInsideAModelThatTakesPictures) {
  const ModelConfig c = read(R"({"model_type": "qwen3_5", "tie_word_embeddings": true,
      "text_config": {"model_type": "qwen3_5_text", "hidden_size": 1024, "num_hidden_layers": 8,
      "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 3584,
      "vocab_size": 248320, "max_position_embeddings": 262144, "linear_num_value_heads": 16,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
      "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10], "mrope_interleaved": true}}})");
  EXPECT_THAT(c.attending(), ElementsAre(3, 7));
  EXPECT_TRUE(c.gated_attention && c.tied_embeddings);
  EXPECT_EQ(c.rope.dimension, 64u);
  EXPECT_EQ(c.conv_channels(0), 2u * 16 * 128 + 16 * 128);
}

TEST_F(HfConfigTest, GptOssHasSinksAndItsOwnActivation) {
  const std::string json = R"("model_type": "gpt_oss", "hidden_size": 2880,
      "num_hidden_layers": 4, "num_attention_heads": 64, "num_key_value_heads": 8,
      "intermediate_size": 2880, "vocab_size": 201088, "max_position_embeddings": 131072,
      "num_local_experts": 32, "num_experts_per_tok": 4, "swiglu_limit": )";
  const ModelConfig c = read("{" + json + "7.0}");
  EXPECT_TRUE(c.attention_sinks && c.experts_share_weight);
  EXPECT_EQ(c.activation, Activation::clamped_silu);
  EXPECT_EQ(c.key_dim, 64u);
  EXPECT_THAT(c.sliding_windows, ElementsAre(128, 0, 128, 0));
  EXPECT_NEAR(c.rope.magnitude, 1.3466, 1e-4);
  EXPECT_THAT(refusal("{" + json + "8.0}"), HasSubstr("swiglu_limit"));
}

TEST_F(HfConfigTest, Phi3LongContext) {
  ModelConfig c = read(R"({"model_type": "phi3", "hidden_act": "silu", "hidden_size": 32,
    "intermediate_size": 64, "max_position_embeddings": 131072, "num_attention_heads": 4,
    "num_hidden_layers": 2, "num_key_value_heads": 4, "original_max_position_embeddings": 4096,
    "rms_norm_eps": 1e-05, "rope_scaling": {"type": "su", "short_factor": [1.0, 1.5, 2.0, 2.5],
    "long_factor": [1, 10, 20, 40]}, "rope_theta": 10000.0, "sliding_window": 262144,
    "vocab_size": 100})");
  EXPECT_FLOAT_EQ(c.rope.magnitude, std::sqrt(1.0f + std::log(32.0f) / std::log(4096.0f)));
  EXPECT_FLOAT_EQ(c.rope.frequencies(4096)[3], 1e-3f / 2.5f);
  EXPECT_FLOAT_EQ(c.rope.frequencies(4097)[3], 1e-3f / 40.0f);
  EXPECT_EQ(c.sliding_windows[0], 262144u);
}

TEST_F(HfConfigTest, OlderFamilies) {
  ModelConfig opt = read(R"({"model_type": "opt", "activation_function": "relu",
    "do_layer_norm_before": true, "ffn_dim": 3072, "hidden_size": 768,
    "max_position_embeddings": 2048, "num_attention_heads": 12, "num_hidden_layers": 12,
    "vocab_size": 50272, "word_embed_proj_dim": 768})");
  EXPECT_EQ(opt.activation, Activation::relu);
  EXPECT_TRUE(opt.learned_positions);
  EXPECT_EQ(opt.position_offset, 2u);
  EXPECT_EQ(opt.rope.style, RopeStyle::none);
  EXPECT_TRUE(opt.tied_embeddings);
  EXPECT_FALSE(opt.gated_ffn);

  ModelConfig neox = read(R"({"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox",
    "hidden_act": "gelu", "hidden_size": 512, "intermediate_size": 2048, "layer_norm_eps": 1e-05,
    "max_position_embeddings": 2048, "num_attention_heads": 8, "num_hidden_layers": 6,
    "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
    "use_parallel_residual": true, "vocab_size": 50304})");
  EXPECT_EQ(neox.rope.dimension, 16u);
  EXPECT_TRUE(neox.parallel_residual);
  EXPECT_EQ(neox.norm, NormKind::layer);
  EXPECT_EQ(neox.activation, Activation::gelu);

  ModelConfig mpt = read(R"({"model_type": "mpt", "attn_config": {"alibi": true,
    "alibi_bias_max": 8, "clip_qkv": 6, "attn_impl": "torch", "qk_ln": false},
    "d_model": 4096, "expansion_ratio": 4, "max_seq_len": 2048, "n_heads": 32, "n_layers": 32,
    "no_bias": true, "logit_scale": null, "vocab_size": 50432})");
  EXPECT_EQ(mpt.alibi_max_bias, 8.0f);
  EXPECT_EQ(mpt.clamp_qkv, 6.0f);
  EXPECT_EQ(mpt.ffn_width, 16384u);
  EXPECT_FALSE(mpt.learned_positions);
}

TEST_F(HfConfigTest, SaysWhatIsWrong) {
  EXPECT_THAT(refusal("[]"), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal("{\"a\""), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal("{}"), HasSubstr("neither model_type nor architectures"));
  EXPECT_THAT(refusal(R"({"model_type": "rwkv"})"),
              AllOf(HasSubstr("unknown architecture 'rwkv'"), HasSubstr("qwen3")));
  EXPECT_THAT(refusal(R"({"model_type": "llama"})"),
              HasSubstr("config.json: the key 'num_hidden_layers' is missing"));
  auto with = [&](std::string from, std::string to) {
    std::string json = kLlama31;
    json.replace(json.find(from), from.size(), to);
    return refusal(json);
  };
  EXPECT_THAT(with("\"hidden_size\": 4096", "\"hidden_size\": -1"), HasSubstr("'hidden_size' is"));
  EXPECT_THAT(with("\"hidden_size\": 4096", "\"hidden_size\": \"x\""), HasSubstr("an integer"));
  EXPECT_THAT(with("\"num_hidden_layers\": 32", "\"num_hidden_layers\": 99999999999"),
              HasSubstr("99999999999 layers; expected 1 to 4096"));
  EXPECT_THAT(with("\"num_attention_heads\": 32", "\"num_attention_heads\": 0"),
              HasSubstr("no attention heads"));
  EXPECT_THAT(with("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 5"),
              HasSubstr("cannot share 5"));
  EXPECT_THAT(with("\"num_key_value_heads\": 8", "\"num_key_value_heads\": 0"),
              HasSubstr("key-value heads: 0"));
  EXPECT_THAT(with("\"silu\"", "\"sigmoid\""), HasSubstr("unknown activation 'sigmoid'"));
  EXPECT_THAT(with("\"llama3\"", "\"ntk\""), HasSubstr("unknown rotary scaling 'ntk'"));
  EXPECT_THAT(with("\"factor\": 8.0, ", ""), HasSubstr("'rope_scaling.factor' is missing"));
  EXPECT_THAT(with("\"factor\": 8.0", "\"factor\": 0"), HasSubstr("rotary factor"));
  EXPECT_THAT(with("500000.0", "-1"), HasSubstr("rotary base"));
  EXPECT_THAT(with("\"hidden_act\"", "\"head_dim\": 18446744073709551614, \"hidden_act\""),
              HasSubstr("18446744073709551614"));
  EXPECT_THAT(with("\"hidden_act\"", "\"head_dim\": 7, \"hidden_act\""), HasSubstr("even number"));
  EXPECT_THAT(with("1e-05", "1e30"), HasSubstr("epsilon"));
}

TEST_F(HfConfigTest, DamagedFilesGiveOneErrorAtMost) {
  int loaded = 0;
  for (std::uint32_t seed = 0; seed < 2000; ++seed) {
    MemoryFile damaged(mutate(kLlama31, seed));
    std::string message = error_of([&] {
      ModelConfig c = read_config(damaged.path());
      (void)c.rope.frequencies(1);
      ++loaded;
    });
    ASSERT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_GT(loaded, 20);
  EXPECT_LT(loaded, 1900);
  EXPECT_THAT(refusal("{\"a\": 1e999}"), HasSubstr("too large"));
}

TEST(RopeScaling, YarnBlendsBetweenItsBounds) {
  // Qwen 2.5's settings: base 1e6, 32768 positions, factor 4, 64 rotations.
  std::vector<float> divisors = yarn_divisors(128, 1e6, {4.0, 32768.0});
  double low =
      std::floor(128 * std::log(32768 / (32 * 2 * std::numbers::pi)) / (2 * std::log(1e6)));
  double high = std::ceil(128 * std::log(32768 / (2 * std::numbers::pi)) / (2 * std::log(1e6)));
  for (std::size_t i = 0; i < 64; ++i) {
    double t = std::min(1.0, std::max(0.0, (static_cast<double>(i) - low) / (high - low)));
    double scale = (1 - t) * 1.0 + t / 4.0;  // of the frequency
    EXPECT_NEAR(1.0 / static_cast<double>(divisors[i]), scale, 1e-6) << i;
  }
  EXPECT_EQ(divisors[0], 1.0f);
  EXPECT_EQ(divisors[63], 4.0f);
  EXPECT_NEAR(yarn_magnitude(4.0), 1.13862943611, 1e-9);
}

TEST(RopeScaling, YarnBlendsBetweenPartsOfRotationsIfAskedTo) {
  const std::vector<float> divisors = yarn_divisors(128, 1e6, {4.0, 32768.0, 32, 1, false});
  const double low = 128 * std::log(32768 / (32 * 2 * std::numbers::pi)) / (2 * std::log(1e6));
  const double high = 128 * std::log(32768 / (2 * std::numbers::pi)) / (2 * std::log(1e6));
  for (std::size_t i = 0; i < 64; ++i) {
    const double t = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    EXPECT_NEAR(1.0 / static_cast<double>(divisors[i]), (1 - t) + t / 4.0, 1e-6) << i;
  }
}

// As transformers computes it: the ratio where both keys are there and not 0.
TEST_F(HfConfigTest, YarnsMscale) {
  const auto magnitude = [&](const std::string& keys) {
    return read(R"({"model_type": "mistral", "hidden_size": 64, "intermediate_size": 128,
        "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 1,
        "vocab_size": 100, "rope_scaling": {"rope_type": "yarn", "factor": 16.0,
        "original_max_position_embeddings": 64)" +
                keys + "}}")
        .rope.magnitude;
  };
  const float plain = 0.1f * std::log(16.0f) + 1.0f;
  EXPECT_FLOAT_EQ(magnitude(""), plain);
  EXPECT_FLOAT_EQ(magnitude(R"(, "mscale": 1.0, "mscale_all_dim": 1.0)"), 1.0f);
  EXPECT_FLOAT_EQ(magnitude(R"(, "mscale": 0.5, "mscale_all_dim": 1)"),
                  (0.05f * std::log(16.0f) + 1.0f) / plain);
  EXPECT_FLOAT_EQ(magnitude(R"(, "mscale": 0.5)"), plain);
  EXPECT_FLOAT_EQ(magnitude(R"(, "mscale": 0.5, "mscale_all_dim": 0)"), plain);
  EXPECT_FLOAT_EQ(magnitude(R"(, "mscale": 1, "mscale_all_dim": 1, "attention_factor": 2)"), 2.0f);
}

TEST(Alibi, SlopesOfAnyNumberOfHeads) {
  EXPECT_THAT(alibi_slopes(8, 8.0f),
              ElementsAre(0.5f, 0.25f, 0.125f, 0x1p-4f, 0x1p-5f, 0x1p-6f, 0x1p-7f, 0x1p-8f));
  std::vector<float> six = alibi_slopes(6, 8.0f);
  EXPECT_THAT(std::vector<float>(six.begin(), six.begin() + 4),
              ElementsAre(0.25f, 0x1p-4f, 0x1p-6f, 0x1p-8f));
  EXPECT_FLOAT_EQ(six[4], 0.5f);
  EXPECT_FLOAT_EQ(six[5], 0.125f);
}

class GgufConfigTest : public ::testing::Test {
 protected:
  /// A file of keys alone: configurations need no weights.
  template <typename Add>
  ModelConfig read(Add add) {
    GgufWriter writer(dir_ / "m.gguf");
    add(writer);
    writer.commit();
    return read_config(Gguf(dir_ / "m.gguf"));
  }
  static void sizes(GgufWriter& w, const std::string& a, std::string_view epsilon) {
    w.add("general.architecture", a);
    w.add("general.name", "tiny");
    w.add(a + ".block_count", std::uint32_t{4});
    w.add(a + ".embedding_length", std::uint32_t{64});
    w.add(a + ".feed_forward_length", std::uint32_t{128});
    w.add(a + ".context_length", std::uint32_t{2048});
    w.add(a + ".attention.head_count", std::uint32_t{4});
    w.add(a + ".vocab_size", std::uint32_t{100});
    w.add(a + ".attention." + std::string(epsilon), 1e-6f);
  }
  TempDir dir_;
};

TEST_F(GgufConfigTest, Llama) {
  ModelConfig c = read([](GgufWriter& w) {
    sizes(w, "llama", "layer_norm_rms_epsilon");
    w.add("llama.attention.head_count_kv", std::uint32_t{2});
    w.add("llama.rope.dimension_count", std::uint32_t{16});
    w.add("llama.rope.freq_base", 5e5f);
    w.declare("rope_freqs.weight", TensorType::f32, std::vector<std::size_t>{8});
    w.write(std::vector<float>{1, 1, 1, 2, 4, 8, 8, 8});
  });
  EXPECT_EQ(c.family, Family::llama);
  EXPECT_EQ(c.name, "tiny");
  EXPECT_EQ(c.kv_heads, 2u);
  EXPECT_EQ(c.rope.style, RopeStyle::pairs);
  EXPECT_FLOAT_EQ(c.rope.frequencies(1)[7], std::pow(5e5f, -14.0f / 16.0f) / 8.0f);
  EXPECT_TRUE(c.tied_embeddings);
}

TEST_F(GgufConfigTest, BelowWhichProbabilityTheModelIsUnsure) {
  const auto unsure_below = [&](std::optional<float> value) {
    return read([&](GgufWriter& w) {
             sizes(w, "qwen2", "layer_norm_rms_epsilon");
             if (value) w.add("ballast.unsure_below", *value);
           })
        .unsure_below;
  };
  EXPECT_EQ(unsure_below(std::nullopt), 0.0f);
  EXPECT_EQ(unsure_below(0.5f), 0.5f);
  for (const float value : {-0.1f, 1.5f, std::nanf("")}) {
    EXPECT_THAT([&] { unsure_below(value); },
                testing::ThrowsMessage<Error>(HasSubstr("ballast.unsure_below is")));
  }
}

TEST_F(GgufConfigTest, Scaling) {
  auto scaled = [&](std::string_view type) {
    return read([&](GgufWriter& w) {
      sizes(w, "qwen2", "layer_norm_rms_epsilon");
      w.add("qwen2.rope.scaling.type", type);
      w.add("qwen2.rope.scaling.factor", 4.0f);
      w.add("qwen2.rope.scaling.original_context_length", std::uint32_t{1024});
    });
  };
  ModelConfig linear = scaled("linear");
  EXPECT_EQ(linear.rope.style, RopeStyle::halves);
  EXPECT_THAT(linear.rope.divisors, Each(4.0f));
  EXPECT_EQ(linear.rope.magnitude, 1.0f);
  ModelConfig yarn = scaled("yarn");
  EXPECT_EQ(yarn.rope.divisors, yarn_divisors(16, 1e4, {4.0, 1024.0}));
  EXPECT_FLOAT_EQ(yarn.rope.magnitude, 0.1f * std::log(4.0f) + 1.0f);
  EXPECT_THAT(scaled("none").rope.divisors, ::testing::IsEmpty());
  EXPECT_THAT(error_of([&] { (void)scaled("odd"); }), HasSubstr("rotary scaling 'odd'"));
}

TEST_F(GgufConfigTest, OtherFamilies) {
  ModelConfig gemma = read([](GgufWriter& w) { sizes(w, "gemma2", "layer_norm_rms_epsilon"); });
  EXPECT_THAT(gemma.sliding_windows, ElementsAre(4096, 0, 4096, 0));
  EXPECT_EQ(gemma.norm_offset, 0.0f);
  EXPECT_EQ(gemma.attention_softcap, 50.0f);
  EXPECT_EQ(gemma.embedding_scale, 8.0f);
  ModelConfig mpt = read([](GgufWriter& w) {
    sizes(w, "mpt", "layer_norm_epsilon");
    w.add("mpt.attention.max_alibi_bias", 8.0f);
  });
  EXPECT_EQ(mpt.norm, NormKind::layer);
  EXPECT_EQ(mpt.alibi_max_bias, 8.0f);
  EXPECT_EQ(mpt.rope.style, RopeStyle::none);
  ModelConfig neox = read([](GgufWriter& w) { sizes(w, "gptneox", "layer_norm_epsilon"); });
  EXPECT_TRUE(neox.parallel_residual);
}

TEST_F(GgufConfigTest, SaysWhatIsWrong) {
  const auto with = [&](const char* key, std::uint64_t value) {
    return error_of([&] {
      (void)read([&](GgufWriter& w) {
        sizes(w, "llama", "layer_norm_rms_epsilon");
        w.add(std::string("llama.") + key, value);
      });
    });
  };
  EXPECT_THAT(
      with("attention.sliding_window", 4294967295u),
      HasSubstr("m.gguf: a sliding window of 4294967295 tokens; expected up to 2147483647"));
  EXPECT_THAT(error_of([&] { (void)read([](GgufWriter& w) { w.add("a", 1); }); }),
              HasSubstr("'general.architecture' is missing"));
  EXPECT_THAT(
      error_of([&] { (void)read([](GgufWriter& w) { w.add("general.architecture", "rwkv7"); }); }),
      AllOf(HasSubstr("'rwkv7'"), HasSubstr("gemma2")));
  EXPECT_THAT(
      error_of([&] { (void)read([](GgufWriter& w) { w.add("general.architecture", "llama"); }); }),
      HasSubstr("'llama.block_count' is missing"));
  EXPECT_THAT(
      error_of([&] { (void)read([](GgufWriter& w) { sizes(w, "llama", "layer_norm_epsilon"); }); }),
      HasSubstr("'llama.attention.layer_norm_rms_epsilon' is missing"));
  EXPECT_THAT(error_of([&] {
                (void)read([](GgufWriter& w) {
                  sizes(w, "gemma2", "layer_norm_rms_epsilon");
                  w.add("gemma2.expert_count", std::uint32_t{8});
                });
              }),
              HasSubstr("8 experts in a model of gemma2"));
  EXPECT_THAT(error_of([&] {
                (void)read([](GgufWriter& w) {
                  sizes(w, "llama", "layer_norm_rms_epsilon");
                  std::vector<std::uint32_t> heads = {4, 2, 4, 4};
                  w.add_array("llama.attention.head_count_kv",
                              std::span<const std::uint32_t>(heads));
                });
              }),
              HasSubstr("differs between layers"));
  EXPECT_THAT(error_of([&] {
                (void)read([](GgufWriter& w) {
                  sizes(w, "llama", "layer_norm_rms_epsilon");
                  const std::vector<std::uint8_t> heads(65'537, 4);
                  w.add_array("llama.attention.head_count_kv",
                              std::span<const std::uint8_t>(heads));
                });
              }),
              HasSubstr("lists 65537 numbers; at most 65536 are read"));
}

}  // namespace
}  // namespace ballast
