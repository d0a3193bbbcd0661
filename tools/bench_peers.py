#!/usr/bin/env python3
"""Times of other attention implementations, for `splitkv bench --peers`.

Reads one JSON request on stdin and writes one JSON line a (row, peer):
  {"row": NAME, "peer": NAME, "us": MICROSECONDS}  or  {"row": NAME, "peer": NAME, "cannot": WHY}
Request: {"device": 0, "l2_bytes": N, "repeat": 9, "rows": [{"row", "kv_len": [...], "q_heads",
"kv_heads", "dim_qk", "dim_v", "query_len", "q_dtype", "k_dtype", "v_dtype", "v_in_k", "page_size",
"window", "softcap", "scale", "kv_bytes"}, ...], "peers": [NAME, ...] or nothing for all of them}

Each peer is measured as SplitKV is: inputs rotate over at least three times the L2, launches are
captured in a CUDA graph of 20 or more that takes about half a millisecond, and the median of the
replays between two events counts. What a peer is given lies as it likes it best: contiguous
[batch, heads, tokens, dim] for PyTorch, pages of 16 shuffled tokens for FlashInfer. Group heads are
never expanded: a peer that takes none cannot run the row. What is done once a shape (compiling a
FlexAttention or FlashInfer kernel, FlashInfer's plan, a block mask) is outside of the timing. Ragged
rows are run by the peers that can be told lengths: FlashInfer by its page lists, FlexAttention by a
block mask over rows as long as the longest.
"""

import json
import math
import statistics
import sys

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
PAGE = 16


class Cannot(Exception):
    """Why a peer does not run a row."""


class DeviceLost(Exception):
    """The device does nothing any more in this process."""


def dtype_of(torch, row):
    if not row["q_dtype"] == row["k_dtype"] == row["v_dtype"]:
        raise Cannot("q, k and v have different types")
    if row["q_dtype"] not in DTYPES:
        raise Cannot(f"type {row['q_dtype']}")
    return getattr(torch, DTYPES[row["q_dtype"]])


def refuse_options(row):
    if row["v_in_k"]:
        raise Cannot("V lies in the rows of K")
    if row["window"] or row["softcap"]:
        raise Cannot("window and softcap are not asked of it")
    if row["query_len"] != 1:
        raise Cannot("more than one query a row")


def refuse_ragged(row):
    if len(set(row["kv_len"])) != 1:
        raise Cannot("rows have different lengths")


def counts(request, row):
    """Copies that rotate, and launches of a graph."""
    size = max(1, row["kv_bytes"])
    cold = 3 * request["l2_bytes"]
    copies = 1 if size > cold else max(2, math.ceil(cold / size))
    least = 8 if size >= 1e9 else 20
    launches = max(least, math.ceil(500 / (2 + size / 4.0e6)))
    return copies, math.ceil(launches / copies) * copies


def time_graph(torch, request, calls, launches):
    """Median microseconds of a launch. calls: one function for each copy."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:
            call()
        for _ in range(2):
            calls[0]()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            calls[i % len(calls)]()
    times = []
    for i in range(2 + request["repeat"]):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if i >= 2:
            times.append(begin.elapsed_time(end) * 1e3 / launches)
    return statistics.median(times)


def contiguous(torch, row, copies):
    """(q, k, v) of each copy: [batch, heads, tokens, dim]."""
    dtype = dtype_of(torch, row)
    batch, tokens = len(row["kv_len"]), max(row["kv_len"])

    def make(heads, length, dim):
        return torch.randn(batch, heads, length, dim, dtype=dtype, device="cuda")

    return [
        (
            make(row["q_heads"], 1, row["dim_qk"]),
            make(row["kv_heads"], tokens, row["dim_qk"]),
            make(row["kv_heads"], tokens, row["dim_v"]),
        )
        for _ in range(copies)
    ]


def sdpa(backend):
    def measure(torch, request, row):
        from torch.nn.attention import SDPBackend, sdpa_kernel

        refuse_options(row)
        refuse_ragged(row)
        copies, launches = counts(request, row)
        tensors = contiguous(torch, row, copies)
        grouped = row["q_heads"] != row["kv_heads"]
        attend = torch.nn.functional.scaled_dot_product_attention

        def call_of(q, k, v):
            return lambda: attend(q, k, v, scale=row["scale"], enable_gqa=grouped)

        with torch.no_grad(), sdpa_kernel([getattr(SDPBackend, backend)]):
            return time_graph(torch, request, [call_of(*t) for t in tensors], launches)

    return measure


def lengths_mask(torch, row):
    """A block mask that ends each row where its keys do; None where all are equally long."""
    lengths = row["kv_len"]
    if len(set(lengths)) == 1:
        return None
    from torch.nn.attention.flex_attention import create_block_mask

    ends = torch.tensor(lengths, dtype=torch.int32, device="cuda")

    def visible(batch, head, query, key):
        return key < ends[batch]

    return create_block_mask(visible, len(lengths), None, 1, max(lengths), device="cuda")


def flex(torch, request, row):
    from torch.nn.attention.flex_attention import flex_attention

    refuse_options(row)
    if min(row["kv_len"]) < 1:
        raise Cannot("rows without keys")
    copies, launches = counts(request, row)
    tensors = contiguous(torch, row, copies)
    grouped = row["q_heads"] != row["kv_heads"]
    mask = lengths_mask(torch, row)
    torch._dynamo.reset()  # else it stops compiling after some shapes
    compiled = torch.compile(flex_attention, dynamic=False)

    def call_of(q, k, v):
        return lambda: compiled(q, k, v, block_mask=mask, scale=row["scale"], enable_gqa=grouped)

    with torch.no_grad():
        return time_graph(torch, request, [call_of(*t) for t in tensors], launches)


def page_lists(torch, row, page):
    """indptr, shuffled page ids, tokens of each last page."""
    pages = [math.ceil(length / page) for length in row["kv_len"]]
    indptr = torch.zeros(len(pages) + 1, dtype=torch.int32)
    indptr[1:] = torch.tensor(pages, dtype=torch.int32).cumsum(0)
    ids = torch.randperm(int(indptr[-1]), dtype=torch.int32)
    last = torch.tensor([(n - 1) % page + 1 for n in row["kv_len"]], dtype=torch.int32)
    return [t.to("cuda") for t in (indptr, ids, last)]


def flashinfer(tensor_cores):
    def measure(torch, request, row):
        try:
            import flashinfer as library
        except ImportError as error:
            raise Cannot(f"flashinfer cannot be imported: {error}") from error
        refuse_options(row)
        if row["dim_qk"] != row["dim_v"] or min(row["kv_len"]) < 1:
            raise Cannot("unequal dims or rows without keys")
        dtype = dtype_of(torch, row)
        copies, launches = counts(request, row)
        batch = len(row["kv_len"])
        indptr, ids, last = page_lists(torch, row, PAGE)
        workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
        wrapper = library.BatchDecodeWithPagedKVCacheWrapper(
            workspace,
            "NHD",
            use_cuda_graph=True,
            use_tensor_cores=tensor_cores,
            paged_kv_indptr_buffer=indptr,
            paged_kv_indices_buffer=ids,
            paged_kv_last_page_len_buffer=last,
        )
        wrapper.plan(
            indptr,
            ids,
            last,
            row["q_heads"],
            row["kv_heads"],
            row["dim_qk"],
            PAGE,
            q_data_type=dtype,
            kv_data_type=dtype,
            sm_scale=row["scale"],
        )

        def call_of():
            shape = (len(ids), 2, PAGE, row["kv_heads"], row["dim_qk"])
            cache = torch.randn(shape, dtype=dtype, device="cuda")
            q = torch.randn(batch, row["q_heads"], row["dim_qk"], dtype=dtype, device="cuda")
            out = torch.empty_like(q)
            return lambda: wrapper.run(q, cache, out=out)

        return time_graph(torch, request, [call_of() for _ in range(copies)], launches)

    return measure


PEERS = [
    ("cudnn", [sdpa("CUDNN_ATTENTION")]),
    ("flash2", [sdpa("FLASH_ATTENTION")]),
    ("flex", [flex]),
    ("flashinfer", [flashinfer(False), flashinfer(True)]),
]


def first_line(error):
    text = str(error).strip()
    return (text.splitlines()[0] if text else type(error).__name__)[:300]


def best_of(torch, request, row, ways):
    """The fastest of the peer's ways, or why none runs."""
    times, reasons = [], []
    for measure in ways:
        try:
            times.append(measure(torch, request, row))
        except Cannot as error:
            reasons.append(str(error))
        except Exception as error:  # a peer's refusal can be of any type
            reasons.append(first_line(error))
        try:
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
        except Exception as error:
            raise DeviceLost(first_line(error)) from error
    if times:
        return {"us": min(times)}
    return {"cannot": "; ".join(dict.fromkeys(reasons))}


def main():
    request = json.load(sys.stdin)
    torch, missing = None, ""
    try:
        import torch

        if not torch.cuda.is_available():
            missing = "PyTorch sees no CUDA device"
        else:
            torch.cuda.set_device(request["device"])
    except ImportError as error:
        missing = f"PyTorch cannot be imported: {error}"
    wanted = [peer for peer in PEERS if peer[0] in request.get("peers", dict(PEERS))]
    for row in request["rows"]:
        for name, ways in wanted:
            answer = {"row": row["row"], "peer": name}
            try:
                answer.update({"cannot": missing} if missing else best_of(torch, request, row, ways))
            except DeviceLost as error:
                answer["cannot"] = f"the device failed under it: {error}"
                missing = f"the device failed under {name} in row {row['row']}"
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
