"""ballast.transformers under transformers 5: greedy text as with its own caches, padding included."""
import unittest

import torch
from transformers import (LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM,
                          Qwen2Config, Qwen2ForCausalLM)

import ballast.transformers as bt

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 60, "max_position_embeddings": 256}


class Generation(unittest.TestCase):
    def generate(self, model, ids, mask, cache=None):
        model.set_attn_implementation("sdpa" if cache is None else "ballast")
        more = {} if cache is None else {"past_key_values": cache}
        return model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False,
                              pad_token_id=0, **more)[:, ids.shape[1]:].tolist()

    def test_padding_on_the_left(self):
        for config, kind, more in ((LlamaConfig, LlamaForCausalLM, {}),
                                   (MistralConfig, MistralForCausalLM, {"sliding_window": 4}),
                                   (Qwen2Config, Qwen2ForCausalLM, {})):
            torch.manual_seed(0)
            model = kind(config(**SIZES, **more)).eval()
            ids = torch.randint(3, 60, (3, 9))
            for padding in ((0, 0, 0), (3, 0, 5)):
                mask = torch.ones_like(ids)
                for b, count in enumerate(padding):
                    mask[b, :count] = 0
                with self.subTest(kind.__name__, padding=padding):
                    cache = bt.BallastCache(method="exact", key_type="f32")
                    self.assertEqual(self.generate(model, ids, mask, cache),
                                     self.generate(model, ids, mask))
                    self.assertEqual([c.tokens() for c in cache.caches], [16 - n for n in padding])

    def test_other_padding_is_refused(self):
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(**SIZES)).eval()
        ids = torch.randint(3, 60, (1, 9))
        mask = torch.ones_like(ids)
        mask[0, -2:] = 0
        with self.assertRaisesRegex(ValueError, "on the left"):
            self.generate(model, ids, mask, bt.BallastCache(method="exact"))


if __name__ == "__main__":
    unittest.main()
