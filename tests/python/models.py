"""Tiny models of random weights, and what two attentions make of the same prompts."""

import inspect
import warnings

import torch
import transformers
from transformers import AutoModelForCausalLM

LAYERS, STEPS, WINDOW = 2, 10, 12
_SIZES = {
    "vocab_size": 64, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None, "initializer_range": 0.3,
}  # fmt: skip
# The other attention of each model: SDPA has no softcap and no sinks.
MODELS = {
    "llama": ("LlamaConfig", {}, "sdpa"),
    "qwen2": ("Qwen2Config", {}, "sdpa"),
    "qwen3": ("Qwen3Config", {}, "sdpa"),
    "mistral": ("MistralConfig", {"sliding_window": WINDOW}, "sdpa"),
    "gemma2": (
        "Gemma2Config",
        {"sliding_window": WINDOW, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 24},
        "eager",
    ),
    "gpt_oss": ("GptOssConfig", {"sliding_window": WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2}, "eager"),
}


def make(name):
    """A model in fp32 whose attention counts for its logits, and the name of its other attention."""
    config_class, more, other = MODELS[name]
    sizes = dict(_SIZES) if name != "qwen2" else {key: value for key, value in _SIZES.items() if key != "head_dim"}
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = getattr(transformers, config_class)(**sizes, **more)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="splitkv").eval()
    for layer in model.model.layers:
        if hasattr(layer.self_attn, "sinks"):
            layer.self_attn.sinks.data.normal_(1.0, 1.0)
    return model, other


def prompts():
    """Token ids [3, 20] and their mask; two rows begin with padding."""
    ids = torch.randint(2, 64, (3, 20), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    mask[0, :7] = 0
    mask[1, :2] = 0
    return ids * mask, mask


def generate(model, attention, static=False):
    """Greedy tokens [3, 20 + STEPS] and the logits of every step [STEPS, 3, vocabulary]."""
    model.set_attn_implementation(attention)
    ids, mask = (x.to(model.device) for x in prompts())
    cache = {"cache_implementation": "static", "disable_compile": True} if static else {}
    found = model.generate(
        ids, attention_mask=mask, max_new_tokens=STEPS, do_sample=False, output_logits=True,
        return_dict_in_generate=True, **cache,
    )  # fmt: skip
    return found.sequences, torch.stack(found.logits)


def cache_word(model):
    """The cache's argument has another name in newer versions of transformers."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


def forced_logits(model, attention, chunk=1):
    """Logits of given tokens that are fed `chunk` at a time behind a prompt of 12, [2, 20, vocabulary]."""
    model.set_attn_implementation(attention)
    ids = torch.randint(2, 64, (2, 20), generator=torch.Generator().manual_seed(11))
    cache = transformers.DynamicCache(config=model.config)
    bounds = [0, *range(12, 20, chunk), 20]
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parts = [
            model(ids[:, begin:end], use_cache=True, **{cache_word(model): cache}).logits
            for begin, end in zip(bounds, bounds[1:])
        ]
    return torch.cat(parts, dim=1)
