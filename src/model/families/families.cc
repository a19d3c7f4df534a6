#include "model/families/families.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/fail.h"

namespace ballast {
namespace {

using enum Presence;
using W = Weight;

/// `base` with `changes` in the place of rules of the same weights; further ones follow.
template <std::size_t N, std::size_t M>
constexpr std::array<TensorRule, N + M> with(const std::array<TensorRule, N>& base,
                                             const TensorRule (&changes)[M]) {
  std::array<TensorRule, N + M> out;
  std::ranges::fill(out, TensorRule{W::output, "", ""});
  std::ranges::copy(base, out.begin());
  std::size_t end = N;
  for (const TensorRule& change : changes) {
    std::size_t at = 0;
    while (at < N && (base[at].first != change.first || base[at].shared != change.shared)) ++at;
    out[at < N ? at : end++] = change;
  }
  return out;
}

constexpr TensorRule without(Weight weight) { return {weight, "", ""}; }

/// The rule as one of the expert that all tokens use.
constexpr TensorRule shared(TensorRule rule) {
  rule.shared = true;
  return rule;
}

constexpr std::array kLlama = {
    TensorRule{W::token_embedding, "token_embd", "model.embed_tokens"},
    TensorRule{W::output_norm, "output_norm", "model.norm"},
    TensorRule{W::output, "output", "lm_head", never, optional},
    TensorRule{W::attention_norm, "blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    TensorRule{W::query, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", optional},
    TensorRule{W::key, "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", optional},
    TensorRule{W::value, "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj", optional},
    TensorRule{W::attention_output, "blk.{}.attn_output", "model.layers.{}.self_attn.o_proj",
               optional},
    TensorRule{W::ffn_norm, "blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    TensorRule{W::ffn_gate, "blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj", optional},
    TensorRule{W::ffn_up, "blk.{}.ffn_up", "model.layers.{}.mlp.up_proj", optional},
    TensorRule{W::ffn_down, "blk.{}.ffn_down", "model.layers.{}.mlp.down_proj", optional},
};

constexpr auto kQwen2 =
    with(kLlama, {{W::query, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", always},
                  {W::key, "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", always},
                  {W::value, "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj", always}});

constexpr TensorRule kQueryNorm = {W::query_norm, "blk.{}.attn_q_norm",
                                   "model.layers.{}.self_attn.q_norm"};
constexpr TensorRule kKeyNorm = {W::key_norm, "blk.{}.attn_k_norm",
                                 "model.layers.{}.self_attn.k_norm"};
constexpr auto kQwen3 = with(kLlama, {kQueryNorm, kKeyNorm});

constexpr TensorRule kPostAttentionNorm = {W::post_attention_norm, "blk.{}.post_attention_norm",
                                           "model.layers.{}.post_attention_layernorm"};
constexpr TensorRule kPostFfnNorm = {W::post_ffn_norm, "blk.{}.post_ffw_norm",
                                     "model.layers.{}.post_feedforward_layernorm"};
constexpr TensorRule kGemmaFfnNorm = {W::ffn_norm, "blk.{}.ffn_norm",
                                      "model.layers.{}.pre_feedforward_layernorm"};
constexpr auto kGemma2 = with(kLlama, {kPostAttentionNorm, kGemmaFfnNorm, kPostFfnNorm});
constexpr auto kGemma3 = with(kGemma2, {kQueryNorm, kKeyNorm});

// OLMo 2 and 3, EXAONE 4: norms after each block only.
constexpr auto kOlmo2 = with(
    kQwen3, {without(W::attention_norm), without(W::ffn_norm), kPostAttentionNorm, kPostFfnNorm});

// One norm for both blocks.
constexpr auto kCohere2 = with(kLlama, {without(W::ffn_norm)});

constexpr TensorRule kFusedGateUp = {
    W::ffn_gate,  "blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj", never, always,
    Fusion::rows, Fusion::rows};
constexpr auto kGlm4 =
    with(kLlama, {{W::post_attention_norm, "blk.{}.post_attention_norm",
                   "model.layers.{}.post_self_attn_layernorm"},
                  {W::post_ffn_norm, "blk.{}.post_ffw_norm", "model.layers.{}.post_mlp_layernorm"},
                  kFusedGateUp,
                  without(W::ffn_up)});

// Of GGUF files, which are those of the family granite: Hugging Face names the tensors otherwise.
constexpr auto kGranite4 =
    with(kLlama, {{W::ffn_gate, "", "model.layers.{}.shared_mlp.input_linear", never, always,
                   Fusion::none, Fusion::rows},
                  without(W::ffn_up),
                  {W::ffn_down, "", "model.layers.{}.shared_mlp.output_linear"}});

constexpr std::array kInternLm2 = {
    TensorRule{W::token_embedding, "token_embd", "model.tok_embeddings"},
    TensorRule{W::output_norm, "output_norm", "model.norm"},
    TensorRule{W::output, "output", "output", never, optional},
    TensorRule{W::attention_norm, "blk.{}.attn_norm", "model.layers.{}.attention_norm"},
    TensorRule{W::query, "blk.{}.attn_q", "model.layers.{}.attention.wqkv", optional, always,
               Fusion::none, Fusion::rows_per_head},
    TensorRule{W::key, "blk.{}.attn_k", "", optional},
    TensorRule{W::value, "blk.{}.attn_v", "", optional},
    TensorRule{W::ffn_norm, "blk.{}.ffn_norm", "model.layers.{}.ffn_norm"},
    TensorRule{W::attention_output, "blk.{}.attn_output", "model.layers.{}.attention.wo", optional},
    TensorRule{W::ffn_gate, "blk.{}.ffn_gate", "model.layers.{}.feed_forward.w1"},
    TensorRule{W::ffn_up, "blk.{}.ffn_up", "model.layers.{}.feed_forward.w3"},
    TensorRule{W::ffn_down, "blk.{}.ffn_down", "model.layers.{}.feed_forward.w2"},
};

constexpr auto kStarCoder2 = with(
    kLlama, {{W::output_norm, "output_norm", "model.norm", always},
             {W::attention_norm, "blk.{}.attn_norm", "model.layers.{}.input_layernorm", always},
             {W::ffn_norm, "blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm", always},
             without(W::ffn_gate),
             {W::ffn_up, "blk.{}.ffn_up", "model.layers.{}.mlp.c_fc", optional},
             {W::ffn_down, "blk.{}.ffn_down", "model.layers.{}.mlp.c_proj", optional}});

constexpr auto kSeedOss =
    with(kLlama,
         {{W::ffn_norm, "blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"}});

constexpr auto kHunyuan = with(
    kLlama, {{W::query_norm, "blk.{}.attn_q_norm", "model.layers.{}.self_attn.query_layernorm"},
             {W::key_norm, "blk.{}.attn_k_norm", "model.layers.{}.self_attn.key_layernorm"}});

// Mixtures of experts.
constexpr TensorRule kExperts[] = {
    {W::router, "blk.{}.ffn_gate_inp", "model.layers.{}.mlp.gate"},
    {W::expert_gate, "blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.{}.gate_proj"},
    {W::expert_up, "blk.{}.ffn_up_exps", "model.layers.{}.mlp.experts.{}.up_proj"},
    {W::expert_down, "blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.{}.down_proj"},
};
constexpr auto kQwen3Moe = with(kQwen3, kExperts);

constexpr auto kMixtral = with(
    kQwen3Moe,
    {without(W::query_norm),
     without(W::key_norm),
     {W::router, "blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.gate"},
     {W::expert_gate, "blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.experts.{}.w1"},
     {W::expert_up, "blk.{}.ffn_up_exps", "model.layers.{}.block_sparse_moe.experts.{}.w3"},
     {W::expert_down, "blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.experts.{}.w2"}});

constexpr auto kGptOss =
    with(kQwen3Moe,
         {without(W::query_norm),
          without(W::key_norm),
          {W::query, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", always},
          {W::key, "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", always},
          {W::value, "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj", always},
          {W::attention_output, "blk.{}.attn_output", "model.layers.{}.self_attn.o_proj", always},
          {W::sink_logits, "blk.{}.attn_sinks", "model.layers.{}.self_attn.sinks", never, always,
           Fusion::none, Fusion::none, false, true},
          {W::ffn_norm, "blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
          {W::router, "blk.{}.ffn_gate_inp", "model.layers.{}.mlp.router", always},
          {W::expert_gate, "blk.{}.ffn_gate_exps", "model.layers.{}.mlp.experts.gate_up_proj",
           always, always, Fusion::none, Fusion::turns},
          {W::expert_up, "blk.{}.ffn_up_exps", "", always},
          {W::expert_down, "blk.{}.ffn_down_exps", "model.layers.{}.mlp.experts.down_proj", always,
           always, Fusion::none, Fusion::experts}});

// Short convolutions beside attention.
constexpr std::array kLfm2 = {
    TensorRule{W::token_embedding, "token_embd", "model.embed_tokens"},
    TensorRule{W::output_norm, "token_embd_norm", "model.embedding_norm"},
    TensorRule{W::output, "output", "lm_head", never, optional},
    TensorRule{W::attention_norm, "blk.{}.attn_norm", "model.layers.{}.operator_norm"},
    TensorRule{W::query, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"},
    TensorRule{W::key, "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"},
    TensorRule{W::value, "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"},
    TensorRule{W::query_norm, "blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_layernorm"},
    TensorRule{W::key_norm, "blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_layernorm"},
    TensorRule{W::attention_output, "blk.{}.attn_output", "model.layers.{}.self_attn.out_proj"},
    TensorRule{W::conv_in, "blk.{}.shortconv.in_proj", "model.layers.{}.conv.in_proj", optional},
    TensorRule{W::conv, "blk.{}.shortconv.conv", "model.layers.{}.conv.conv", optional},
    TensorRule{W::conv_out, "blk.{}.shortconv.out_proj", "model.layers.{}.conv.out_proj", optional},
    TensorRule{W::ffn_norm, "blk.{}.ffn_norm", "model.layers.{}.ffn_norm"},
    TensorRule{W::ffn_gate, "blk.{}.ffn_gate", "model.layers.{}.feed_forward.w1"},
    TensorRule{W::ffn_up, "blk.{}.ffn_up", "model.layers.{}.feed_forward.w3"},
    TensorRule{W::ffn_down, "blk.{}.ffn_down", "model.layers.{}.feed_forward.w2"},
};
constexpr auto kLfm2Moe =
    with(kLfm2,
         {{W::router, "blk.{}.ffn_gate_inp", "model.layers.{}.feed_forward.gate"},
          {W::router_choice, "blk.{}.exp_probs_b", "model.layers.{}.feed_forward.expert_bias",
           never, optional, Fusion::none, Fusion::none, false, true},
          {W::expert_gate, "blk.{}.ffn_gate_exps", "model.layers.{}.feed_forward.experts.{}.w1"},
          {W::expert_up, "blk.{}.ffn_up_exps", "model.layers.{}.feed_forward.experts.{}.w3"},
          {W::expert_down, "blk.{}.ffn_down_exps", "model.layers.{}.feed_forward.experts.{}.w2"}});

// The delta rule beside attention.
constexpr auto kQwen35 =
    with(kQwen3,
         {{W::query, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", never, always,
           Fusion::gated_heads, Fusion::gated_heads},
          {W::ffn_norm, "blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
          {W::conv_in, "blk.{}.attn_qkv", "model.layers.{}.linear_attn.in_proj_qkv"},
          {W::conv, "blk.{}.ssm_conv1d", "model.layers.{}.linear_attn.conv1d"},
          {W::conv_out, "blk.{}.ssm_out", "model.layers.{}.linear_attn.out_proj"},
          {W::delta_gate, "blk.{}.attn_gate", "model.layers.{}.linear_attn.in_proj_z"},
          {W::delta_beta, "blk.{}.ssm_beta", "model.layers.{}.linear_attn.in_proj_b"},
          {W::delta_decay, "blk.{}.ssm_alpha", "model.layers.{}.linear_attn.in_proj_a"},
          {W::delta_decay_bias, "blk.{}.ssm_dt", "model.layers.{}.linear_attn.dt_bias", never,
           always, Fusion::none, Fusion::none, false, true},
          {W::delta_rate, "blk.{}.ssm_a", "model.layers.{}.linear_attn.A_log", never, always,
           Fusion::none, Fusion::none, false, true},
          {W::delta_norm, "blk.{}.ssm_norm", "model.layers.{}.linear_attn.norm"}});

// Mixtures with an expert that all tokens use.
constexpr TensorRule kSharedExpert[] = {
    {W::shared_gate, "blk.{}.ffn_gate_inp_shexp", "model.layers.{}.mlp.shared_expert_gate"},
    shared({W::ffn_gate, "blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_expert.gate_proj"}),
    shared({W::ffn_up, "blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_expert.up_proj"}),
    shared({W::ffn_down, "blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_expert.down_proj"}),
};
constexpr auto kQwen2Moe = with(with(kQwen2, kExperts), kSharedExpert);
constexpr auto kQwen35Moe = with(with(kQwen35, kExperts), kSharedExpert);

// What Qwen 3.5 has in four tensors is in two of a folder, in one of a GGUF file.
constexpr auto kQwen3Next =
    with(kQwen35Moe, {{W::conv_in, "blk.{}.attn_qkv", "model.layers.{}.linear_attn.in_proj_qkvz",
                       never, always, Fusion::none, Fusion::key_heads},
                      {W::delta_gate, "blk.{}.attn_gate", ""},
                      {W::delta_beta, "blk.{}.ssm_ba", "model.layers.{}.linear_attn.in_proj_ba",
                       never, always, Fusion::key_heads, Fusion::key_heads},
                      without(W::delta_decay)});

constexpr auto kGlm4Moe = with(
    with(kLlama, kExperts),
    {{W::query_norm, "blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm", never, optional},
     {W::key_norm, "blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm", never, optional},
     {W::ffn_norm, "blk.{}.post_attention_norm", "model.layers.{}.post_attention_layernorm"},
     {W::router_choice, "blk.{}.exp_probs_b", "model.layers.{}.mlp.gate.e_score_correction_bias",
      never, always, Fusion::none, Fusion::none, false, true},
     shared({W::ffn_gate, "blk.{}.ffn_gate_shexp", "model.layers.{}.mlp.shared_experts.gate_proj"}),
     shared({W::ffn_up, "blk.{}.ffn_up_shexp", "model.layers.{}.mlp.shared_experts.up_proj"}),
     shared(
         {W::ffn_down, "blk.{}.ffn_down_shexp", "model.layers.{}.mlp.shared_experts.down_proj"})});

constexpr auto kGraniteMoe = with(
    kLlama,
    {{W::router, "blk.{}.ffn_gate_inp", "model.layers.{}.block_sparse_moe.router.layer"},
     {W::expert_gate, "blk.{}.ffn_gate_exps", "model.layers.{}.block_sparse_moe.input_linear"},
     {W::expert_up, "blk.{}.ffn_up_exps", ""},
     {W::expert_down, "blk.{}.ffn_down_exps", "model.layers.{}.block_sparse_moe.output_linear"},
     shared({W::ffn_gate, "blk.{}.ffn_gate_shexp", "model.layers.{}.shared_mlp.input_linear", never,
             always, Fusion::none, Fusion::rows}),
     shared({W::ffn_up, "blk.{}.ffn_up_shexp", ""}),
     shared({W::ffn_down, "blk.{}.ffn_down_shexp", "model.layers.{}.shared_mlp.output_linear"})});

constexpr TensorRule kGpt2[] = {
    {W::token_embedding, "token_embd", "transformer.wte"},
    {W::position_embedding, "position_embd", "transformer.wpe"},
    {W::output_norm, "output_norm", "transformer.ln_f", always},
    {W::output, "output", "lm_head", never, optional},
    {W::attention_norm, "blk.{}.attn_norm", "transformer.h.{}.ln_1", always},
    {W::query, "blk.{}.attn_qkv", "transformer.h.{}.attn.c_attn", always, always, Fusion::rows,
     Fusion::rows, true},
    {W::attention_output, "blk.{}.attn_output", "transformer.h.{}.attn.c_proj", always, always,
     Fusion::none, Fusion::none, true},
    {W::ffn_norm, "blk.{}.ffn_norm", "transformer.h.{}.ln_2", always},
    {W::ffn_up, "blk.{}.ffn_up", "transformer.h.{}.mlp.c_fc", always, always, Fusion::none,
     Fusion::none, true},
    {W::ffn_down, "blk.{}.ffn_down", "transformer.h.{}.mlp.c_proj", always, always, Fusion::none,
     Fusion::none, true},
};

constexpr TensorRule kPhi3[] = {
    {W::token_embedding, "token_embd", "model.embed_tokens"},
    {W::output_norm, "output_norm", "model.norm"},
    {W::output, "output", "lm_head", never, optional},
    {W::attention_norm, "blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {W::query, "blk.{}.attn_qkv", "model.layers.{}.self_attn.qkv_proj", never, always, Fusion::rows,
     Fusion::rows},
    {W::attention_output, "blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
    {W::ffn_norm, "blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {W::ffn_gate, "blk.{}.ffn_up", "model.layers.{}.mlp.gate_up_proj", never, always, Fusion::rows,
     Fusion::rows},
    {W::ffn_down, "blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
};

constexpr TensorRule kOpt[] = {
    {W::token_embedding, "token_embd", "model.decoder.embed_tokens"},
    {W::position_embedding, "position_embd", "model.decoder.embed_positions"},
    {W::output_norm, "output_norm", "model.decoder.final_layer_norm", always},
    {W::output, "output", "lm_head", never, optional},
    {W::attention_norm, "blk.{}.attn_norm", "model.decoder.layers.{}.self_attn_layer_norm", always},
    {W::query, "blk.{}.attn_q", "model.decoder.layers.{}.self_attn.q_proj", optional},
    {W::key, "blk.{}.attn_k", "model.decoder.layers.{}.self_attn.k_proj", optional},
    {W::value, "blk.{}.attn_v", "model.decoder.layers.{}.self_attn.v_proj", optional},
    {W::attention_output, "blk.{}.attn_output", "model.decoder.layers.{}.self_attn.out_proj",
     optional},
    {W::ffn_norm, "blk.{}.ffn_norm", "model.decoder.layers.{}.final_layer_norm", always},
    {W::ffn_up, "blk.{}.ffn_up", "model.decoder.layers.{}.fc1", optional},
    {W::ffn_down, "blk.{}.ffn_down", "model.decoder.layers.{}.fc2", optional},
};

constexpr TensorRule kGptNeoX[] = {
    {W::token_embedding, "token_embd", "gpt_neox.embed_in"},
    {W::output_norm, "output_norm", "gpt_neox.final_layer_norm", always},
    {W::output, "output", "embed_out", never, optional},
    {W::attention_norm, "blk.{}.attn_norm", "gpt_neox.layers.{}.input_layernorm", always},
    {W::query, "blk.{}.attn_qkv", "gpt_neox.layers.{}.attention.query_key_value", optional, always,
     Fusion::rows, Fusion::rows_per_head},
    {W::attention_output, "blk.{}.attn_output", "gpt_neox.layers.{}.attention.dense", optional},
    {W::ffn_norm, "blk.{}.ffn_norm", "gpt_neox.layers.{}.post_attention_layernorm", always},
    {W::ffn_up, "blk.{}.ffn_up", "gpt_neox.layers.{}.mlp.dense_h_to_4h", always},
    {W::ffn_down, "blk.{}.ffn_down", "gpt_neox.layers.{}.mlp.dense_4h_to_h", always},
};

constexpr TensorRule kMpt[] = {
    {W::token_embedding, "token_embd", "transformer.wte"},
    {W::position_embedding, "position_embd", "transformer.wpe", never, optional},
    {W::output_norm, "output_norm", "transformer.norm_f", optional},
    {W::output, "output", "lm_head", never, optional},
    {W::attention_norm, "blk.{}.attn_norm", "transformer.blocks.{}.norm_1", optional},
    {W::query, "blk.{}.attn_qkv", "transformer.blocks.{}.attn.Wqkv", optional, always, Fusion::rows,
     Fusion::rows},
    {W::attention_output, "blk.{}.attn_output", "transformer.blocks.{}.attn.out_proj", optional},
    {W::ffn_norm, "blk.{}.ffn_norm", "transformer.blocks.{}.norm_2", optional},
    {W::ffn_up, "blk.{}.ffn_up", "transformer.blocks.{}.ffn.up_proj", optional},
    {W::ffn_down, "blk.{}.ffn_down", "transformer.blocks.{}.ffn.down_proj", optional},
};

// clang-format off
constexpr Composition kGraniteMoeParts = {
    .mixture = true, .shared_expert = optional, .granite_scales = true,
    .hf_defaults = R"({"norm_topk_prob": true, "position_embedding_type": "rope"})"};
constexpr Composition kQwen35MoeParts = {
    .hf_norm_offset = 1.0f, .mixture = true, .shared_expert = always, .gated_attention = true,
    .hf_defaults = R"({"head_dim": 256, "partial_rotary_factor": 0.25, "norm_topk_prob": true,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "full_attention_interval": 4})"};

constexpr FamilyFacts kFamilies[] = {
    {Family::llama, "Llama", "llama", "llama", "LlamaForCausalLM", RopeStyle::pairs, kLlama},
    {Family::llama, "Llama", "", "internlm3", "InternLM3ForCausalLM", RopeStyle::pairs, kLlama},
    {Family::mistral, "Mistral", "", "mistral", "MistralForCausalLM", RopeStyle::pairs, kLlama,
     {.window_period = 0}},
    {Family::mistral, "Mistral", "", "ministral", "MinistralForCausalLM", RopeStyle::pairs, kLlama,
     {.window_period = 0}},
    {Family::mistral3, "Mistral 3", "mistral3", "ministral3", "Ministral3ForCausalLM",
     RopeStyle::pairs, kLlama, {.window_period = 0}},
    {Family::qwen2, "Qwen 2", "qwen2", "qwen2", "Qwen2ForCausalLM", RopeStyle::halves, kQwen2,
     {.window_period = 0}},
    {Family::qwen3, "Qwen 3", "qwen3", "qwen3", "Qwen3ForCausalLM", RopeStyle::halves, kQwen3,
     {.window_period = 0}},
    {Family::gemma2, "Gemma 2", "gemma2", "gemma2", "Gemma2ForCausalLM", RopeStyle::halves, kGemma2,
     {.activation = Activation::gelu_tanh, .width_scaled_embedding = true, .hf_norm_offset = 1.0f,
      .window_period = 2, .hf_defaults = R"({"tie_word_embeddings": true,
      "hidden_activation": "gelu_pytorch_tanh"})"}},
    {Family::gemma3, "Gemma 3", "gemma3", "gemma3_text", "Gemma3ForCausalLM", RopeStyle::halves,
     kGemma3,
     {.activation = Activation::gelu_tanh, .width_scaled_embedding = true, .hf_norm_offset = 1.0f,
      .second_rope = SecondRope::sliding, .window_period = 6, .gguf_sliding_base = 10000.0f,
      .hf_defaults = R"({"tie_word_embeddings": true, "hidden_activation": "gelu_pytorch_tanh",
      "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208,
      "max_position_embeddings": 131072, "sliding_window": 4096, "query_pre_attn_scalar": 256,
      "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0})"}},
    {Family::phi3, "Phi 3", "phi3", "phi3", "Phi3ForCausalLM", RopeStyle::halves, kPhi3,
     {.window_period = 0}},
    {Family::smollm3, "SmolLM3", "smollm3", "smollm3", "SmolLM3ForCausalLM", RopeStyle::pairs,
     kLlama,
     {.second_rope = SecondRope::listed, .hf_defaults = R"({"tie_word_embeddings": true,
      "rope_theta": 2000000.0})"}},
    {Family::granite, "Granite", "granite", "granite", "GraniteForCausalLM", RopeStyle::pairs,
     kLlama, {.granite_scales = true, .hf_defaults = R"({"position_embedding_type": "rope"})"}},
    {Family::granite4, "Granite 4", "", "granitemoehybrid", "GraniteMoeHybridForCausalLM",
     RopeStyle::pairs, kGranite4,
     {.granite_scales = true, .hf_defaults = R"({"norm_topk_prob": true,
      "layers_block_type": ["mamba"]})"}},
    {Family::granitemoe, "Granite MoE", "granitemoe", "granitemoe", "GraniteMoeForCausalLM",
     RopeStyle::pairs, kGraniteMoe, kGraniteMoeParts},
    {Family::granitemoe, "Granite MoE", "", "granitemoeshared", "GraniteMoeSharedForCausalLM",
     RopeStyle::pairs, kGraniteMoe, kGraniteMoeParts},
    {Family::olmo2, "OLMo 2", "olmo2", "olmo2", "Olmo2ForCausalLM", RopeStyle::halves, kOlmo2,
     {.joint_head_norms = true, .second_rope = SecondRope::sliding, .window_period = 4}},
    {Family::olmo3, "OLMo 3", "", "olmo3", "Olmo3ForCausalLM", RopeStyle::halves, kOlmo2,
     {.joint_head_norms = true, .second_rope = SecondRope::sliding, .window_period = 4,
      .hf_defaults = R"({"sliding_window": 4096, "rope_theta": 500000.0})"}},
    {Family::cohere2, "Cohere 2", "cohere2", "cohere2", "Cohere2ForCausalLM", RopeStyle::pairs,
     kCohere2,
     {.norm = NormKind::layer, .parallel_residual = true, .hf_rope = RopeStyle::pairs,
      .second_rope = SecondRope::global, .window_period = 4,
      .hf_defaults = R"({"tie_word_embeddings": true, "logit_scale": 0.0625,
      "sliding_window": 4096})"}},
    {Family::glm4, "GLM 4", "glm4", "glm4", "Glm4ForCausalLM", RopeStyle::pairs, kGlm4,
     {.hf_rope = RopeStyle::pairs, .hf_defaults = R"({"partial_rotary_factor": 0.5})"}},
    {Family::internlm2, "InternLM 2", "internlm2", "internlm2", "InternLM2ForCausalLM",
     RopeStyle::pairs, kInternLm2},
    {Family::starcoder2, "StarCoder 2", "starcoder2", "starcoder2", "Starcoder2ForCausalLM",
     RopeStyle::halves, kStarCoder2,
     {.norm = NormKind::layer, .activation = Activation::gelu_tanh, .gated_ffn = false,
      .window_period = 0, .hf_defaults = R"({"tie_word_embeddings": true, "norm_epsilon": 1e-5,
      "hidden_act": "gelu_pytorch_tanh"})"}},
    {Family::exaone4, "EXAONE 4", "exaone4", "exaone4", "Exaone4ForCausalLM", RopeStyle::halves,
     kOlmo2, {.second_rope = SecondRope::global, .window_period = 4}},
    {Family::seed_oss, "Seed-OSS", "seed_oss", "seed_oss", "SeedOssForCausalLM", RopeStyle::halves,
     kSeedOss, {.hf_defaults = R"({"head_dim": 128})"}},
    {Family::hunyuan, "Hunyuan", "hunyuan-dense", "hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM",
     RopeStyle::halves, kHunyuan, {.norms_after_rope = true}},
    {Family::ernie45, "ERNIE 4.5", "ernie4_5", "ernie4_5", "Ernie4_5ForCausalLM", RopeStyle::pairs,
     kLlama,
     {.hf_rope = RopeStyle::pairs, .hf_defaults = R"({"tie_word_embeddings": true, "head_dim": 128,
      "rope_theta": 500000.0})"}},
    {Family::gpt2, "GPT-2", "gpt2", "gpt2", "GPT2LMHeadModel", RopeStyle::none, kGpt2,
     {.norm = NormKind::layer, .activation = Activation::gelu_tanh, .gated_ffn = false}},
    {Family::mixtral, "Mixtral", "", "mixtral", "MixtralForCausalLM", RopeStyle::pairs, kMixtral,
     {.window_period = 0, .mixture = true,
      .hf_defaults = R"({"num_local_experts": 8, "norm_topk_prob": true})"}},
    {Family::qwen3moe, "Qwen 3 MoE", "qwen3moe", "qwen3_moe", "Qwen3MoeForCausalLM",
     RopeStyle::halves, kQwen3Moe, {.window_period = 0, .mixture = true}},
    {Family::olmoe, "OLMoE", "olmoe", "olmoe", "OlmoeForCausalLM", RopeStyle::halves, kQwen3Moe,
     {.joint_head_norms = true, .mixture = true, .gguf_shares_weight = false}},
    {Family::gpt_oss, "gpt-oss", "gpt-oss", "gpt_oss", "GptOssForCausalLM", RopeStyle::halves,
     kGptOss,
     {.activation = Activation::clamped_silu, .window_period = 2, .mixture = true,
      .attention_sinks = true, .gguf_yarn_truncates = false,
      .hf_defaults = R"({"norm_topk_prob": true, "head_dim": 64, "sliding_window": 128,
      "rms_norm_eps": 1e-5, "rope_theta": 150000.0, "rope_scaling": {"rope_type": "yarn",
      "factor": 32.0, "truncate": false, "original_max_position_embeddings": 4096}})"}},
    {Family::lfm2, "LFM2", "lfm2", "lfm2", "Lfm2ForCausalLM", RopeStyle::halves, kLfm2,
     {.hf_defaults = R"({"tie_word_embeddings": true, "rope_theta": 1000000.0, "norm_eps": 1e-5,
      "conv_L_cache": 3, "block_auto_adjust_ff_dim": true, "block_multiple_of": 256,
      "block_ffn_dim_multiplier": 1.0})"}},
    {Family::lfm2moe, "LFM2 MoE", "lfm2moe", "lfm2_moe", "Lfm2MoeForCausalLM", RopeStyle::halves,
     kLfm2Moe,
     {.mixture = true, .sigmoid_router = true,
      .hf_defaults = R"({"tie_word_embeddings": true, "rope_theta": 1000000.0,
      "norm_eps": 1e-5, "conv_L_cache": 3, "num_dense_layers": 2, "norm_topk_prob": true})"}},
    {Family::qwen35, "Qwen 3.5", "qwen35", "qwen3_5_text", "Qwen3_5ForCausalLM",
     RopeStyle::halves, kQwen35,
     {.hf_norm_offset = 1.0f, .gated_attention = true,
      .hf_defaults = R"({"head_dim": 256, "partial_rotary_factor": 0.25,
      "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
      "linear_num_key_heads": 16, "linear_num_value_heads": 32, "full_attention_interval": 4})"}},
    {Family::qwen2moe, "Qwen 2 MoE", "qwen2moe", "qwen2_moe", "Qwen2MoeForCausalLM",
     RopeStyle::halves, kQwen2Moe,
     {.window_period = 0, .mixture = true, .shared_expert = always, .gguf_shares_weight = false}},
    {Family::qwen35moe, "Qwen 3.5 MoE", "qwen35moe", "qwen3_5_moe_text", "Qwen3_5MoeForCausalLM",
     RopeStyle::halves, kQwen35Moe, kQwen35MoeParts},
    {Family::qwen3next, "Qwen3-Next", "qwen3next", "qwen3_next", "Qwen3NextForCausalLM",
     RopeStyle::halves, kQwen3Next, kQwen35MoeParts},
    {Family::glm4moe, "GLM 4.5", "glm4moe", "glm4_moe", "Glm4MoeForCausalLM", RopeStyle::halves,
     kGlm4Moe,
     {.mixture = true, .shared_expert = optional, .sigmoid_router = true,
      .hf_defaults = R"({"partial_rotary_factor": 0.5, "norm_topk_prob": true,
      "n_shared_experts": 1, "first_k_dense_replace": 1})"}},
    {Family::opt, "OPT", "opt", "opt", "OPTForCausalLM", RopeStyle::none, kOpt,
     {.norm = NormKind::layer, .activation = Activation::relu, .gated_ffn = false}},
    {Family::gptneox, "GPT-NeoX", "gptneox", "gpt_neox", "GPTNeoXForCausalLM", RopeStyle::halves,
     kGptNeoX, {.norm = NormKind::layer, .activation = Activation::gelu, .gated_ffn = false}},
    {Family::mpt, "MPT", "mpt", "mpt", "MPTForCausalLM", RopeStyle::none, kMpt,
     {.norm = NormKind::layer, .activation = Activation::gelu, .gated_ffn = false}},
};
// clang-format on

}  // namespace

std::span<const FamilyFacts> families() { return kFamilies; }

const FamilyFacts& facts_of(Family family) {
  for (const FamilyFacts& facts : kFamilies) {
    if (facts.family == family) return facts;
  }
  fail("there is no model family {}", static_cast<int>(family));
}

std::string_view to_string(Family family) { return facts_of(family).name; }

void compose(const FamilyFacts& facts, ModelConfig& c) {
  const Composition& as = facts.composition;
  c.family = facts.family;
  c.norm = as.norm;
  c.activation = as.activation;
  c.gated_ffn = as.gated_ffn;
  c.parallel_residual = as.parallel_residual;
  c.joint_head_norms = as.joint_head_norms;
  c.norms_after_rope = as.norms_after_rope;
  c.attention_sinks = as.attention_sinks;
  c.gated_attention = as.gated_attention;
  c.sigmoid_router = as.sigmoid_router;
}

void spread_windows(std::size_t window, std::size_t period, ModelConfig& c) {
  for (std::size_t i = 0; i < c.layers; ++i) {
    c.sliding_windows[i] = period == 0 || (i + 1) % period != 0 ? window : 0;
  }
}

void spread_ropes(const FamilyFacts& facts, ModelConfig& c) {
  const SecondRope kind = facts.composition.second_rope;
  const bool slides = std::ranges::any_of(c.sliding_windows, [](auto w) { return w > 0; });
  if (kind == SecondRope::none || (kind != SecondRope::listed && !slides)) return;
  c.takes_second_rope.resize(c.layers);
  for (std::size_t i = 0; i < c.layers; ++i) {
    c.takes_second_rope[i] = kind == SecondRope::listed
                                 ? (i + 1) % 4 == 0
                                 : (c.sliding_windows[i] > 0) == (kind == SecondRope::sliding);
  }
}

const FamilyFacts* family_of_gguf(std::string_view architecture) {
  for (const FamilyFacts& facts : kFamilies) {
    if (facts.gguf == architecture && !architecture.empty()) return &facts;
  }
  return nullptr;
}

const FamilyFacts* family_of_hf(std::string_view model_type) {
  for (const FamilyFacts& facts : kFamilies) {
    if (facts.hf == model_type || facts.hf_class == model_type) return &facts;
  }
  return nullptr;
}

std::string gguf_architectures() {
  std::string names;
  for (const FamilyFacts& facts : kFamilies) {
    if (!facts.gguf.empty()) names += fmt::format("{}{}", names.empty() ? "" : ", ", facts.gguf);
  }
  return names;
}

std::string hf_architectures() {
  std::string names;
  for (const FamilyFacts& facts : kFamilies) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", facts.hf);
  }
  return names;
}

}  // namespace ballast
