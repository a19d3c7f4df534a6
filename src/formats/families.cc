#include "formats/families.h"

#include <fmt/format.h>

#include "base/fail.h"

namespace ballast {
namespace {

using enum Presence;
using W = Weight;

// Llama, Mistral, Qwen 2 (whose query, key and value always have biases) and Qwen 3 (norms of
// queries and keys).
constexpr TensorRule kLlama[] = {
    {W::token_embedding, "token_embd", "model.embed_tokens"},
    {W::output_norm, "output_norm", "model.norm"},
    {W::output, "output", "lm_head", never, optional},
    {W::attention_norm, "blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {W::query, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", optional},
    {W::key, "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", optional},
    {W::value, "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj", optional},
    {W::attention_output, "blk.{}.attn_output", "model.layers.{}.self_attn.o_proj", optional},
    {W::ffn_norm, "blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {W::ffn_gate, "blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj", optional},
    {W::ffn_up, "blk.{}.ffn_up", "model.layers.{}.mlp.up_proj", optional},
    {W::ffn_down, "blk.{}.ffn_down", "model.layers.{}.mlp.down_proj", optional},
};

constexpr TensorRule kQwen2[] = {
    {W::token_embedding, "token_embd", "model.embed_tokens"},
    {W::output_norm, "output_norm", "model.norm"},
    {W::output, "output", "lm_head", never, optional},
    {W::attention_norm, "blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {W::query, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", always},
    {W::key, "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", always},
    {W::value, "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj", always},
    {W::attention_output, "blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"},
    {W::ffn_norm, "blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {W::ffn_gate, "blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {W::ffn_up, "blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
    {W::ffn_down, "blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
};

constexpr TensorRule kQwen3[] = {
    {W::token_embedding, "token_embd", "model.embed_tokens"},
    {W::output_norm, "output_norm", "model.norm"},
    {W::output, "output", "lm_head", never, optional},
    {W::attention_norm, "blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {W::query, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", optional},
    {W::key, "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", optional},
    {W::value, "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj", optional},
    {W::query_norm, "blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"},
    {W::key_norm, "blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"},
    {W::attention_output, "blk.{}.attn_output", "model.layers.{}.self_attn.o_proj", optional},
    {W::ffn_norm, "blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"},
    {W::ffn_gate, "blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {W::ffn_up, "blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
    {W::ffn_down, "blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
};

constexpr TensorRule kGemma2[] = {
    {W::token_embedding, "token_embd", "model.embed_tokens"},
    {W::output_norm, "output_norm", "model.norm"},
    {W::output, "output", "lm_head", never, optional},
    {W::attention_norm, "blk.{}.attn_norm", "model.layers.{}.input_layernorm"},
    {W::query, "blk.{}.attn_q", "model.layers.{}.self_attn.q_proj", optional},
    {W::key, "blk.{}.attn_k", "model.layers.{}.self_attn.k_proj", optional},
    {W::value, "blk.{}.attn_v", "model.layers.{}.self_attn.v_proj", optional},
    {W::attention_output, "blk.{}.attn_output", "model.layers.{}.self_attn.o_proj", optional},
    {W::post_attention_norm, "blk.{}.post_attention_norm",
     "model.layers.{}.post_attention_layernorm"},
    {W::ffn_norm, "blk.{}.ffn_norm", "model.layers.{}.pre_feedforward_layernorm"},
    {W::ffn_gate, "blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"},
    {W::ffn_up, "blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"},
    {W::ffn_down, "blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"},
    {W::post_ffn_norm, "blk.{}.post_ffw_norm", "model.layers.{}.post_feedforward_layernorm"},
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

constexpr FamilyFacts kFamilies[] = {
    {Family::llama, "llama", "llama", "LlamaForCausalLM", RopeStyle::pairs, kLlama},
    {Family::mistral, "", "mistral", "MistralForCausalLM", RopeStyle::pairs, kLlama},
    {Family::mistral, "", "ministral", "MinistralForCausalLM", RopeStyle::pairs, kLlama},
    {Family::qwen2, "qwen2", "qwen2", "Qwen2ForCausalLM", RopeStyle::halves, kQwen2},
    {Family::qwen3, "qwen3", "qwen3", "Qwen3ForCausalLM", RopeStyle::halves, kQwen3},
    {Family::gemma2, "gemma2", "gemma2", "Gemma2ForCausalLM", RopeStyle::halves, kGemma2},
    {Family::phi3, "phi3", "phi3", "Phi3ForCausalLM", RopeStyle::halves, kPhi3},
    {Family::opt, "opt", "opt", "OPTForCausalLM", RopeStyle::none, kOpt},
    {Family::gptneox, "gptneox", "gpt_neox", "GPTNeoXForCausalLM", RopeStyle::halves, kGptNeoX},
    {Family::mpt, "mpt", "mpt", "MPTForCausalLM", RopeStyle::none, kMpt},
};

}  // namespace

std::span<const FamilyFacts> families() { return kFamilies; }

const FamilyFacts& facts_of(Family family) {
  for (const FamilyFacts& facts : kFamilies) {
    if (facts.family == family) return facts;
  }
  fail("there is no model family {}", static_cast<int>(family));
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
