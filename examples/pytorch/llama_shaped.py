#!/usr/bin/env python3
"""A Llama of random weights that decodes with SplitKV and with SDPA: logits, attention time, tokens a second.

    python examples/pytorch/llama_shaped.py --layers 4 --context 1024            # the sizes of Llama-3.1-8B
    python examples/pytorch/llama_shaped.py --small                              # sizes for a CPU
    python examples/pytorch/llama_shaped.py --device cuda --layers 32 --context 32768 --graph --json out.json

Both are fed the same tokens behind the same prompt, so their logits can be compared step by step. Prints Markdown, and
with --json writes everything to a file. Exits 1 where logits differ by more than --tolerance allows, or where decode
steps did not go to SplitKV. Needs the packages splitkv, torch and transformers.
"""

import argparse
import inspect
import json
import platform
import sys
import time
import warnings

import splitkv
import splitkv.transformers
import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AttentionInterface, AttentionMaskInterface, AutoModelForCausalLM, LlamaConfig
from transformers.masking_utils import sdpa_mask

SMALL = {"layers": 2, "hidden": 256, "heads": 8, "kv_heads": 2, "intermediate": 512, "vocabulary": 1000, "context": 256}
WARM = 3  # steps that are not timed


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", choices=["float32", "float16", "bfloat16"], help="bfloat16; on a CPU float32")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--context", type=int, default=1024, help="tokens of the prompt")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=32, help="decode steps that are timed")
    parser.add_argument("--hidden", type=int, default=4096)
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--kv-heads", type=int, default=8)
    parser.add_argument("--intermediate", type=int, default=14336)
    parser.add_argument("--vocabulary", type=int, default=128256)
    parser.add_argument("--cache", choices=["static", "dynamic"], default="static")
    parser.add_argument("--prompt-chunk", type=int, default=2048, help="tokens of the prompt that go in at once")
    parser.add_argument("--graph", action="store_true", help="also time steps that a CUDA graph replays (static cache)")
    parser.add_argument(
        "--tolerance",
        type=float,
        help="of logits, as norm of the difference over norm; 1e-4, with 16 bits three times what SDPA differs from "
        "its own math backend by, at least 1e-2",
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--small", action="store_true", help=f"other defaults: {SMALL}")
    parser.add_argument("--json", help="file for all results")
    if "--small" in sys.argv[1:]:
        parser.set_defaults(**SMALL)
    options = parser.parse_args()
    options.dtype = options.dtype or ("float32" if options.device == "cpu" else "bfloat16")
    if options.graph and (options.cache != "static" or not options.device.startswith("cuda")):
        parser.error("--graph needs --cache static and --device cuda")
    return options


class Clock:
    """Milliseconds between marks: events on a GPU, the host's clock on a CPU."""

    def __init__(self, device):
        self.cuda = device.startswith("cuda")

    def mark(self):
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def between(self, begin, end):
        if not self.cuda:
            return (end - begin) * 1e3
        end.synchronize()
        return begin.elapsed_time(end)


def register_timed(clock, name, marks):
    """An attention that does as `name` does and marks the time of every call of one query."""
    attention = AttentionInterface()[name]

    def timed(module, query, *rest, **options):
        begin = clock.mark()
        found = attention(module, query, *rest, **options)
        if query.shape[2] == 1:
            marks.append((begin, clock.mark()))
        return found

    AttentionInterface.register("timed", timed)
    AttentionMaskInterface.register("timed", sdpa_mask)


def make_model(options):
    torch.manual_seed(options.seed)
    config = LlamaConfig(
        hidden_size=options.hidden,
        intermediate_size=options.intermediate,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        num_key_value_heads=options.kv_heads,
        vocab_size=options.vocabulary,
        max_position_embeddings=options.context + options.steps + 64,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        # Wider than a trained model's, so that attention has a say in the logits.
        initializer_range=2.0 / options.hidden**0.5,
    )
    with torch.device(options.device):
        return AutoModelForCausalLM.from_config(config, dtype=getattr(torch, options.dtype)).eval()


class Decoder:
    """A model with a cache behind a prompt, fed one token a row at a time."""

    def __init__(self, model, attention, options, prompt):
        model.set_attn_implementation(attention)
        self.model = model
        parameters = inspect.signature(model.forward).parameters
        self.word = "cache" if "cache" in parameters else "past_key_values"
        if options.cache == "static":
            room = options.context + options.steps + 2 * WARM
            self.cache = transformers.StaticCache(config=model.config, max_cache_len=room)
        else:
            self.cache = transformers.DynamicCache(config=model.config)
        for begin in range(0, options.context, options.prompt_chunk):
            part = prompt[:, begin : begin + options.prompt_chunk]
            places = torch.arange(begin, begin + part.shape[1], device=part.device)
            self.forward(part, places.expand(part.shape[0], -1))
        self.place = torch.full((prompt.shape[0], 1), options.context, device=prompt.device)

    def forward(self, ids, places):
        words = {self.word: self.cache, "use_cache": True, "logits_to_keep": 1}
        return self.model(input_ids=ids, position_ids=places, **words).logits[:, -1]

    def step(self, ids):
        """ids: [batch, 1]. Returns logits [batch, vocabulary]."""
        logits = self.forward(ids, self.place)
        self.place += 1
        return logits


def eager_steps(decoder, tokens, clock):
    """Feeds all tokens. Returns logits [steps, batch, vocabulary] and milliseconds of all but the first steps."""
    logits = []
    for i, ids in enumerate(tokens):
        if i == WARM:
            begin = clock.mark()
        logits.append(decoder.step(ids))
    return torch.stack(logits), clock.between(begin, clock.mark())


def graph_steps(decoder, tokens, clock):
    """As eager_steps, with the steps that are timed replayed from a CUDA graph."""
    own, side = tokens[0].clone(), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    logits = []
    with torch.cuda.stream(side):
        for ids in tokens[:WARM]:
            logits.append(decoder.step(ids))
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = decoder.step(own)
    begin = clock.mark()
    for ids in tokens[WARM:]:
        own.copy_(ids)
        graph.replay()
        logits.append(out.clone())
    return torch.stack(logits), clock.between(begin, clock.mark())


def attention_in_a_graph(model, name, options, prompt, tokens, clock):
    """Milliseconds of one step's attention calls of all layers, replayed from a graph that holds nothing else: what the
    GPU takes, without the host's time. Tensors are those of a real step."""
    attention, calls = AttentionInterface()[name], []

    def recorded(*given, **words):
        calls.append((given, words))
        return attention(*given, **words)

    AttentionInterface.register("timed", recorded)
    AttentionMaskInterface.register("timed", sdpa_mask)
    decoder = Decoder(model, "timed", options, prompt)
    for ids in tokens[: WARM + 1]:
        calls.clear()
        decoder.step(ids)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for given, words in calls:
            attention(*given, **words)
    rounds = 20
    for _ in range(WARM):
        graph.replay()
    begin = clock.mark()
    for _ in range(rounds):
        graph.replay()
    return clock.between(begin, clock.mark()) / rounds


def measure(model, name, options, prompt, tokens, clock):
    """All numbers of one attention, and its logits by each way."""
    splitkv.transformers.reset_counters()
    logits = {}
    logits["eager"], wall = eager_steps(Decoder(model, name, options, prompt), tokens, clock)
    calls = splitkv.transformers.counters()
    result = {"attention": name, "step_ms": wall / options.steps, "calls": calls._asdict()}
    if options.graph:
        logits["graph"], wall = graph_steps(Decoder(model, name, options, prompt), tokens, clock)
        result["graph_step_ms"] = wall / options.steps
        result["graph_attention_ms"] = attention_in_a_graph(model, name, options, prompt, tokens, clock)
    marks = []
    register_timed(clock, name, marks)
    eager_steps(Decoder(model, "timed", options, prompt), tokens, clock)
    timed = [clock.between(*pair) for pair in marks[WARM * options.layers :]]
    result["attention_ms"] = sum(timed) / options.steps
    for way in ("", "graph_"):
        if way + "step_ms" in result:
            result[way + "tokens_per_second"] = options.batch * 1e3 / result[way + "step_ms"]
    return result, logits


def tolerance_of(model, options, prompt, tokens, clock, logits):
    """How far logits may lie from SDPA's, and how far those of SDPA's math backend do."""
    decoder = Decoder(model, "sdpa", options, prompt)
    with sdpa_kernel(SDPBackend.MATH):
        others, _ = eager_steps(decoder, tokens, clock)
    noise = compare(others, logits, 0)["relative"]
    if options.tolerance is not None:
        return options.tolerance, noise
    return (1e-4 if options.dtype == "float32" else max(1e-2, 3 * noise)), noise


def compare(found, want, tolerance):
    """How far logits lie from others: by norms over each step and row, and by the tokens that they choose."""
    found, want = found.double(), want.double()
    relative = ((found - want).norm(dim=-1) / want.norm(dim=-1)).max().item()
    return {
        "relative": relative,
        "largest": (found - want).abs().max().item(),
        "same_tokens": (found.argmax(-1) == want.argmax(-1)).double().mean().item(),
        "tolerance": tolerance,
        "passed": bool(relative <= tolerance),
    }


def table(results, options):
    columns = [
        ("attention", "attention", "{}"), ("step, ms", "step_ms", "{:.3f}"),
        ("attention of all layers, ms", "attention_ms", "{:.3f}"), ("tokens/s", "tokens_per_second", "{:.1f}"),
    ]  # fmt: skip
    if options.graph:
        columns += [
            ("graph: step, ms", "graph_step_ms", "{:.3f}"),
            ("attention, ms", "graph_attention_ms", "{:.3f}"),
            ("tokens/s", "graph_tokens_per_second", "{:.1f}"),
        ]
    yield "| " + " | ".join(title for title, _, _ in columns) + " |"
    yield "|" + "---|" * len(columns)
    for result in results:
        yield "| " + " | ".join(form.format(result[key]) for _, key, form in columns) + " |"


def main():
    options = arguments()
    clock = Clock(options.device)
    splitkv.transformers.register(batch=options.batch, kv_len=options.context)
    warnings.simplefilter("ignore", FutureWarning)
    with torch.no_grad():
        model = make_model(options)
        make = torch.Generator().manual_seed(options.seed + 1)
        ids = torch.randint(
            0, options.vocabulary, (options.batch, options.context + WARM + options.steps), generator=make
        )
        prompt, later = ids.to(options.device).split([options.context, WARM + options.steps], dim=1)
        tokens = [one.contiguous() for one in later.split(1, dim=1)]
        results, logits = [], {}
        for name in ("splitkv", "sdpa"):
            result, logits[name] = measure(model, name, options, prompt, tokens, clock)
            results.append(result)
        want = logits["sdpa"]["eager"]
        tolerance, noise = tolerance_of(model, options, prompt, tokens, clock, want)
    checks = {way: compare(found, want, tolerance) for way, found in logits["splitkv"].items()}
    expected = options.layers * (WARM + options.steps)
    counted = results[0]["calls"]["splitkv"] == expected
    sizes = f"{options.layers} layers, {options.context} tokens, batch {options.batch}"
    print(f"## {sizes}, {options.dtype}, {options.cache} cache\n")
    where = torch.cuda.get_device_name() if clock.cuda else platform.machine()
    print(
        f"{where}, torch {torch.__version__}, transformers {transformers.__version__}, splitkv {splitkv.__version__}\n"
    )
    print("\n".join(table(results, options)) + "\n")
    for way, check in checks.items():
        print(
            f"- logits of {way} steps: {check['relative']:.1e} from SDPA's (at most {check['tolerance']:.1e} passes), "
            f"{check['same_tokens']:.1%} of the tokens the same: {'passed' if check['passed'] else 'FAILED'}"
        )
    print(f"- logits of SDPA's math backend: {noise:.1e} from SDPA's")
    verdict = "passed" if counted else "FAILED"
    print(f"- calls of SplitKV: {results[0]['calls']['splitkv']} of {expected} expected: {verdict}")
    passed = counted and all(check["passed"] for check in checks.values())
    if options.json:
        report = {
            "options": vars(options),
            "device": where,
            "results": results,
            "logits": checks,
            "noise": noise,
            "passed": passed,
        }
        report["versions"] = {
            "torch": torch.__version__, "transformers": transformers.__version__, "splitkv": splitkv.__version__,
        }  # fmt: skip
        with open(options.json, "w") as file:
            json.dump(report, file, indent=1)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
