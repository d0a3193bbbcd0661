"""Attention in fp64, from its definition; shares nothing with the library."""

import numpy as np


def attention(q, k, v, lengths, scale=None, causal=True):
    """q: [batch, queries, q_heads, dim]; k, v: [batch, tokens, kv_heads, dim]. Row r has lengths[r] keys, and its
    queries are the last tokens of them. Returns out [batch, queries, q_heads, dim_v] and the natural LSE."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    batch, queries, q_heads, dim = q.shape
    group = q_heads // k.shape[2]
    scale = dim**-0.5 if scale is None else scale
    out = np.zeros((batch, queries, q_heads, v.shape[3]))
    lse = np.full((batch, queries, q_heads), -np.inf)
    for row in range(batch):
        for query in range(queries):
            end = int(lengths[row]) - (queries - 1 - query) if causal else int(lengths[row])
            if end <= 0:
                continue
            for head in range(q_heads):
                scores = k[row, :end, head // group] @ q[row, query, head] * scale
                top = scores.max()
                weights = np.exp(scores - top)
                out[row, query, head] = weights @ v[row, :end, head // group] / weights.sum()
                lse[row, query, head] = top + np.log(weights.sum())
    return out, lse
