"""A Llama with random weights as a Hugging Face folder, and its shape."""
import json
import os

LAYERS, HEADS, DIM = 3, 2, 64


def folder(path, weights=False):
    """Writes the configuration, and the weights if asked; returns the path."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
              "intermediate_size": 512, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
              "num_key_value_heads": HEADS, "head_dim": DIM, "vocab_size": 512, "rms_norm_eps": 1e-5,
              "max_position_embeddings": 4096, "rope_theta": 10000.0, "hidden_act": "silu",
              "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
              "torch_dtype": "bfloat16"}
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as out:
        json.dump(config, out)
    if weights:
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM
        torch.manual_seed(3)
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path))
        model.to(torch.bfloat16).save_pretrained(path)
    return path
