#!/usr/bin/env python3
"""The attention of one layer, decoding with a static cache: eager, compiled, and in a CUDA graph.

    python examples/pytorch/decode_layer.py                      # CPU
    python examples/pytorch/decode_layer.py --device cuda --graph

Every step appends one token to the cache and attends; tokens of all ways are compared with plain torch. Exits 1 where
they differ. Needs the packages splitkv and torch.
"""

import argparse
import sys

import splitkv.torch
import torch

HEADS, KV_HEADS, DIM = 8, 2, 64
HIDDEN = HEADS * DIM


class Layer(torch.nn.Module):
    """Projections around SplitKV's attention; k and v hold [batch, kv_heads, capacity, dim]."""

    def __init__(self, batch, capacity, device, dtype):
        super().__init__()
        name = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}[dtype]
        self.attend = splitkv.torch.prepare(device, q=name, heads=(HEADS, KV_HEADS), dim=DIM)
        options = {"bias": False, "device": device, "dtype": dtype}
        self.q = torch.nn.Linear(HIDDEN, HEADS * DIM, **options)
        self.kv = torch.nn.Linear(HIDDEN, 2 * KV_HEADS * DIM, **options)
        self.o = torch.nn.Linear(HEADS * DIM, HIDDEN, **options)
        shape = (batch, KV_HEADS, capacity, DIM)
        self.register_buffer("k", torch.zeros(shape, device=device, dtype=dtype))
        self.register_buffer("v", torch.zeros(shape, device=device, dtype=dtype))
        self.register_buffer("first_slot", torch.arange(batch, device=device) * capacity)

    def forward(self, x, lengths):
        """x: [batch, hidden] of the tokens that come after `lengths` (int32 [batch]) cached ones."""
        new_k, new_v = self.kv(x).view(-1, 2, KV_HEADS, DIM).unbind(1)
        self.attend.append(self.k, self.v, new_k, new_v, slots=self.first_slot + lengths)
        q = self.q(x).view(-1, HEADS, DIM)
        return self.o(self.attend(q, self.k, self.v, kv_len=lengths + 1).out.flatten(1))


def plain(layer, x, lengths):
    """What the layer gives, by SDPA over the cache that it has filled."""
    q = layer.q(x).view(-1, HEADS, 1, DIM)
    seen = torch.arange(layer.k.shape[2], device=x.device) <= lengths[:, None, None, None]
    out = torch.nn.functional.scaled_dot_product_attention(q, layer.k, layer.v, attn_mask=seen, enable_gqa=True)
    return layer.o(out.flatten(1))


def captured(layer, x, lengths):
    """A step as a CUDA graph: what it reads and writes lies where it lay at the capture."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        layer(x, lengths)  # a step before the capture compiles what is missing
    torch.cuda.current_stream().wait_stream(side)
    graph, own_x, own_lengths = torch.cuda.CUDAGraph(), x.clone(), lengths.clone()
    with torch.cuda.graph(graph):
        out = layer(own_x, own_lengths)

    def step(x, lengths):
        own_x.copy_(x)
        own_lengths.copy_(lengths)
        graph.replay()
        return out

    return step


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "float16", "bfloat16"])
    parser.add_argument("--batch", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--backend", default="inductor", help="of torch.compile; aot_eager needs no C++ compiler")
    parser.add_argument("--graph", action="store_true", help="also by a CUDA graph")
    options = parser.parse_args()
    dtype = getattr(torch, options.dtype)
    close = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}[options.dtype]
    torch.manual_seed(0)
    layer = Layer(options.batch, options.steps + 8, options.device, dtype)
    tokens = torch.randn(options.steps, options.batch, HIDDEN, device=options.device).to(dtype)
    begin = torch.arange(options.batch, dtype=torch.int32, device=options.device) % 8  # rows of different lengths
    failed = False
    with torch.no_grad():
        ways = {"eager": layer, "compiled": torch.compile(layer, fullgraph=True, backend=options.backend)}
        if options.graph:
            ways["CUDA graph"] = captured(layer, tokens[0], begin)
        for name, step in ways.items():
            layer.k.zero_()
            layer.v.zero_()
            worst = 0.0
            for i in range(options.steps):
                out = step(tokens[i], begin + i)
                worst = max(worst, (out - plain(layer, tokens[i], begin + i)).abs().max().item())
            verdict = "agrees with SDPA" if worst <= close else "DIFFERS from SDPA"
            failed = failed or not worst <= close
            print(f"{name}: {options.steps} steps, largest difference {worst:.2e}, {verdict}")
    print(f"kernels compiled: {splitkv.torch.runtime().statistics().compiles}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
