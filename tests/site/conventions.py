"""What docs/rosetta.md says of other libraries' conventions, held against runs on the CPU: each function computes attention
by the convention of the other side, with numpy, and SplitKV by the words that the page names.

    conventions.py      prints how many conventions hold
"""

import numpy as np
import splitkv

RUNTIME = splitkv.Runtime()
BATCH, HEADS, KV_HEADS, TOKENS, DIM = 2, 4, 2, 41, 16
RNG = np.random.default_rng(20)
K, V = RNG.standard_normal((2, BATCH, KV_HEADS, TOKENS, DIM)).astype(np.float32)
CAUSAL = "bottom right"


def queries(count):
    return RNG.standard_normal((BATCH, count, HEADS, DIM)).astype(np.float32)


def theirs(q, visible, change=lambda scores, head: scores, sinks=None, k=K, v=V, scale=DIM ** -0.5):
    """out and natural LSE. visible: bool [queries, tokens]; change: of the scaled scores of one head."""
    out, lse = np.zeros(q.shape), np.full(q.shape[:-1], -np.inf)
    for b in range(BATCH):
        for h in range(HEADS):
            kv = h // (HEADS // KV_HEADS)
            s = change(q[b, :, h].astype(np.float64) @ k[b, kv].T.astype(np.float64) * scale, h)
            s = np.where(visible, s, -np.inf)
            if sinks is not None:  # one more column without a value
                s = np.concatenate([s, np.full((len(s), 1), sinks[h], np.float64)], 1)
            m = s.max(1, keepdims=True)
            w = np.exp(s - m)
            lse[b, :, h] = (m + np.log(w.sum(1, keepdims=True)))[:, 0]
            out[b, :, h] = (w[:, :TOKENS] / w.sum(1, keepdims=True)) @ v[b, kv]
    return out, lse


def ours(q, tensors=None, k=K, v=V, **words):
    kernel = RUNTIME.prepare("cpu", q="fp32", heads=(HEADS, KV_HEADS), dim=DIM, query_len=q.shape[1],
                             **{"lse": "natural", **words})
    done = kernel.run(q, k, v, **(tensors or {}))
    return done.out, done.lse


def positions(count):  # of the queries at the end of the row, and of the keys
    return np.arange(TOKENS - count, TOKENS)[:, None], np.arange(TOKENS)[None, :]


def same(a, b, what):
    for x, y in zip(a, b):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5, err_msg=what)


def different(a, b, what):
    assert not np.allclose(a[0], b[0], rtol=1e-3, atol=1e-3), f"{what}: the wrong convention gives the same"


def windows_are_one_more_than_window_left():
    for count, left in ((1, 7), (3, 7), (3, 0), (2, 100)):
        q = queries(count)
        i, j = positions(count)
        between = (j >= i - left) & (j <= i)              # FlashAttention (left, 0), FlashInfer window_left
        w = left + 1
        same(ours(q, window=w), theirs(q, between), "window_left")
        same(ours(q, window=w), theirs(q, (j <= i) & (j > i - w)), "sliding_window of transformers")
        same(ours(q, window=w), theirs(q, (j <= i) & ~(i - j >= w)), "n_swa of llama.cpp")
        if 0 < left < TOKENS:
            different(ours(q, window=left), theirs(q, between), "window=window_left")


def causal_is_bottom_right_and_not_top_left():
    q = queries(3)
    i, j = positions(3)
    same(ours(q), theirs(q, j <= i), CAUSAL)
    different(ours(q), theirs(q, j <= i - (TOKENS - 3)), "PyTorch's is_causal")
    same(ours(queries(1) * 0 + q[:, :1], mask="none"), theirs(q[:, :1], np.ones((1, TOKENS), bool)), "one token without a mask")


def lse_of_flashinfer_is_base_2():
    q = queries(1)
    out, lse = theirs(q, np.ones((1, TOKENS), bool))
    same(ours(q, lse="base2"), (out, lse * np.log2(np.e)), "base 2")


def merge_state_of_flashinfer_is_a_merge_in_base_2():
    o, s = RNG.standard_normal((2, 5, DIM)).astype(np.float32), RNG.standard_normal((2, 5)).astype(np.float32) * 4
    weights = np.exp2(s.astype(np.float64) - s.max(0))
    merged = (weights[..., None] * o).sum(0) / weights.sum(0)[:, None], s.max(0) + np.log2(weights.sum(0))
    done = RUNTIME.prepare_merge("cpu", "lse", "base2").merge(o, s)
    same(done[:2], merged, "merge_state")
    different(RUNTIME.prepare_merge("cpu", "lse", "natural").merge(o, s)[:2], merged, "merge_state by natural logarithms")


def softcap_comes_after_scale_and_before_alibi():
    q, slopes = queries(2), np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
    i, j = positions(2)

    def flash_attention(scores, head):
        return 3 * np.tanh(scores / 3) - slopes[head] * np.abs(i - j)

    def flashinfer(scores, head):
        return 3 * np.tanh((scores + slopes[head] * (j - (i - i.min()))) / 3)

    done = ours(q, {"alibi_slopes": slopes}, softcap=3, alibi=True)
    same(done, theirs(q, j <= i, flash_attention), "softcap, then ALiBi")
    different(done, theirs(q, j <= i, flashinfer), "ALiBi, then softcap")
    out, lse = ours(q, {"alibi_slopes": slopes}, alibi=True)
    other = theirs(q, j <= i, lambda scores, head: scores + slopes[head] * (j - (i - i.min())))
    same((out,), other[:1], "ALiBi relative to the query's number")
    assert np.abs(lse - other[1]).min() > 0.1  # the same output, another LSE


def sinks_are_one_more_logit():
    q, sinks = queries(2), np.array([-2, 0, 1, 5], np.float32)
    i, j = positions(2)
    same(ours(q, {"sink": sinks}, sink=True), theirs(q, j <= i, sinks=sinks), "sinks")


def chunks_are_those_of_transformers():
    q = queries(3)
    i, j = positions(3)
    same(ours(q, chunk=8), theirs(q, (j <= i) & (j // 8 == i // 8)), "chunks")


def scales_multiply():
    q = queries(1)
    k8, v8 = (np.clip(np.rint(x * 30), -127, 127).astype(np.int8) for x in (K, V))
    scales = {"k_scale": np.array([0.04], np.float32), "v_scale": np.array([0.5], np.float32)}
    out, lse = theirs(q, np.ones((1, TOKENS), bool), k=k8, v=v8, scale=DIM ** -0.5 * 0.04)  # FlashInfer: into sm_scale
    same(ours(q, scales, k=k8, v=v8, kv="int8", kv_scale="tensor"), (out * 0.5, lse), "k_scale and v_scale")


def page_lists_of_flashinfer():
    q, page = queries(1), 8
    indptr, indices, last_page_len = np.array([0, 6, 8], np.int32), np.array([9, 2, 7, 0, 5, 11, 3, 1], np.int32), [1, 3]
    pages = RNG.standard_normal((12, 2, page, KV_HEADS, DIM)).astype(np.float32)  # [page, 2, token, head, dim]
    lengths = np.array([(indptr[r + 1] - indptr[r] - 1) * page + last_page_len[r] for r in range(BATCH)], np.int32)
    done = ours(q, {"kv_len": lengths, "page_table": indices, "page_offset": indptr[:-1].astype(np.int64)},
                k=pages[:, 0], v=pages[:, 1], kv_layout=("paged", page, "nhd"))
    k, v = np.zeros((2, BATCH, KV_HEADS, 48, DIM))
    for r in range(BATCH):
        for slot, at in enumerate(indices[indptr[r]:indptr[r + 1]]):
            for x, half in ((k, 0), (v, 1)):
                x[r, :, slot * page:(slot + 1) * page] = np.swapaxes(pages[at, half], 0, 1)
    for r in range(BATCH):
        n = lengths[r]
        for h in range(HEADS):
            s = k[r, h // 2, :n] @ q[r, 0, h] * DIM ** -0.5
            w = np.exp(s - s.max())
            np.testing.assert_allclose(done[0][r, 0, h], w @ v[r, h // 2, :n] / w.sum(), rtol=2e-5, atol=2e-5)


CHECKS = [windows_are_one_more_than_window_left, causal_is_bottom_right_and_not_top_left, lse_of_flashinfer_is_base_2,
          merge_state_of_flashinfer_is_a_merge_in_base_2, softcap_comes_after_scale_and_before_alibi, sinks_are_one_more_logit,
          chunks_are_those_of_transformers, scales_multiply, page_lists_of_flashinfer]

if __name__ == "__main__":
    for check in CHECKS:
        check()
        print(check.__name__.replace("_", " "))
    print(f"{len(CHECKS)} conventions of rosetta.md hold")
