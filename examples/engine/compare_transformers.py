#!/usr/bin/env python3
"""Holds the engine to transformers with SDPA in fp32: the same tokens of prompts and greedy answers, the same logits
behind each, as many calls of attention as layers times steps; and plants faults, which the logits must show.

    compare_transformers.py --engine PROGRAM --model DIR [--device cuda:0 --dtype fp32]

DIR is written by prepare_weights.py. Needs numpy, torch and transformers. Exit status 1: something differs.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

CHAT = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = [
    CHAT.format("What is the capital of France?"),
    CHAT.format("Count from 1 to 10."),
    # For the tokenizer: runs of space, digits, contractions, letters and signs beyond ASCII.
    "Naïve  café costs 1234 \t€ 56.7\n\n  don't we'LL l'été -- 你好, мир!!  ½ x²  \n end ",
]
# Of fp32 sums in another order, as a share of the largest logit. Faults are some hundred times larger.
LIMIT = 2e-4


def run_engine(options, prompts, more):
    command = [options.engine, "generate", "--model", options.model, "--show-tokens", "--device", options.device,
               "--dtype", options.dtype, "--max-length", "512"]
    for prompt in prompts:
        command += ["--prompt", prompt]
    with tempfile.TemporaryDirectory() as folder:
        result = subprocess.run([*command, "--trace", f"{folder}/trace", *more], capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"the engine failed with {result.returncode}: {result.stderr}")
        traces = [numpy.load(f"{folder}/trace.{i}.npy") for i in range(len(prompts))]
    lines = dict(re.findall(r"^((?:prompt|answer) \d+): ?(.*)$", result.stdout, re.M))
    tokens = {name: [int(token) for token in line.split()] for name, line in lines.items()}
    return [(tokens[f"prompt {i}"], tokens[f"answer {i}"], traces[i]) for i in range(len(prompts))], result.stdout


def forced_logits(model, prompt, answer):
    """Of transformers, behind each token of the answer as the engine traces them: [answer, vocab]."""
    with torch.no_grad():
        logits = model(torch.tensor([prompt + answer])).logits[0]
    return logits[len(prompt) - 1:-1].float().numpy()


def distance(got, expected):
    return float(numpy.abs(got - expected).max() / numpy.abs(expected).max())


def calls_are_counted(output, layers, longest):
    calls = re.search(r"attention calls: (\d+) for answers \((\d+) layers x (\d+) steps\)", output)
    counted, named, steps = map(int, calls.groups())
    print(calls.group(0))
    return named == layers and counted == layers * steps and steps >= longest - 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", required=True, type=pathlib.Path)
    parser.add_argument("--model", required=True, type=pathlib.Path)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="fp32", help="of the engine on a GPU; with bf16 only the distance is printed")
    parser.add_argument("--max-new", type=int, default=24)
    options = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32, attn_implementation="sdpa").eval()
    is_exact = options.dtype == "fp32" or options.device == "cpu"
    wrong = []

    answers, output = run_engine(options, PROMPTS, ["--max-new", str(options.max_new)])
    for i, (prompt, answer, trace) in enumerate(answers):
        if prompt != tokenizer(PROMPTS[i]).input_ids:
            wrong.append(f"tokens of prompt {i}: {prompt} instead of {tokenizer(PROMPTS[i]).input_ids}")
            continue
        with torch.no_grad():
            greedy = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                                    max_new_tokens=options.max_new, do_sample=False)[0, len(prompt):].tolist()
        far = distance(trace, forced_logits(model, prompt, answer))
        print(f"answer {i}: {tokenizer.decode(answer)!r}, logits differ by {far:.1e} of the largest")
        if is_exact and greedy != answer:
            wrong.append(f"answer {i}: {tokenizer.decode(greedy)!r} of transformers is another")
        if is_exact and not far <= LIMIT:
            wrong.append(f"logits of answer {i} differ by {far:.1e}, above {LIMIT:.0e}")
    if not calls_are_counted(output, model.config.num_hidden_layers, max(len(answer) for _, answer, _ in answers)):
        wrong.append("calls of attention are not layers times steps")

    noticed = 0
    prompt, answer, _ = answers[0]
    expected = forced_logits(model, prompt, answer)
    forced = ["--forced", ",".join(map(str, answer))]
    for fault in ("scale", "length", "page") if is_exact else ():
        spoiled, _ = run_engine(options, PROMPTS[:1], [*forced, "--plant", fault])
        far = distance(spoiled[0][2], expected)
        print(f"planted {fault}: logits differ by {far:.1e}")
        if far <= LIMIT:
            wrong.append(f"planted {fault} was not noticed")
        else:
            noticed += 1
    for line in wrong:
        print(f"WRONG: {line}")
    print(f"{len(answers)} answers beside transformers, {len(wrong)} differences, {noticed} planted faults noticed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
