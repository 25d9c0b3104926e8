#!/usr/bin/env python3
"""A tiny random Qwen2 model with a byte-level tokenizer and no weights (vLLM makes them up with --load-format dummy).

usage: model.py FOLDER [HIDDEN LAYERS]
"""

import json
import os
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

VOCABULARY = 512
# Sized so that a token takes about 20 ms on one core: slow enough to fill four slots with a few clients.
HIDDEN, LAYERS, HEAD = 768, 8, 64


def write(folder, name, content):
    with open(os.path.join(folder, name), "w") as file:
        json.dump(content, file, indent=1)


def main(folder, hidden=HIDDEN, layers=LAYERS):
    os.makedirs(folder, exist_ok=True)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(["a tier needs as many replicas as its load will need by the time they are ready"], trainer)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    write(folder, "tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 4096,
        "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
    })
    write(folder, "config.json", {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": hidden,
        "intermediate_size": 2 * hidden, "num_hidden_layers": layers, "num_attention_heads": hidden // HEAD,
        "num_key_value_heads": hidden // HEAD, "head_dim": HEAD, "vocab_size": VOCABULARY,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
        "tie_word_embeddings": True, "torch_dtype": "float32", "initializer_range": 0.02,
        "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0, "use_sliding_window": False,
    })
    write(folder, "generation_config.json", {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0})


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:4]))
