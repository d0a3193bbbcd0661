"""What SplitKV is not for: prompts, and whatever needs gradients. SDPA computes it, or, with a softcap or sinks, which
SDPA does not have, plain operators do."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from splitkv.transformers import _counters

_BLOCK_ELEMENTS = 1 << 24  # of scores that are held at a time, fp32


def causal_mask(queries: int, keys: int, window: Optional[int], device: torch.device) -> Tensor:
    """What a missing mask means for several queries: they are the first tokens, [1, 1, queries, keys], True: seen."""
    query = torch.arange(queries, device=device)[:, None]
    key = torch.arange(keys, device=device)[None, :]
    seen = key <= query
    if window is not None:
        seen = seen & (key > query - window)
    return seen[None, None]


def _eager_block(
    query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], scale: float, softcap: Optional[float],
    sinks: Optional[Tensor],
) -> Tensor:  # fmt: skip
    """query: [batch, kv_heads, group, queries, dim]; key, value: [batch, kv_heads, keys, dim]; mask: [batch or 1,
    kv_heads or 1, group or 1, queries, keys]. The queries of a group are rows of one product, so K and V are not
    repeated."""
    group, queries = query.shape[2:4]
    scores = torch.matmul(query.flatten(2, 3), key.transpose(-1, -2)).float() * scale
    scores = scores.unflatten(2, (group, queries))
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is not None:
        # The lowest number and not -inf: a row that sees nothing is to have no NaN.
        lowest = torch.finfo(torch.float32).min
        scores = scores.masked_fill(~mask, lowest) if mask.dtype == torch.bool else scores + mask.float()
    if sinks is None:
        weights = torch.softmax(scores, dim=-1)
    else:
        column = sinks.float().view(1, key.shape[1], -1, 1, 1).expand(*scores.shape[:-1], 1)
        weights = torch.softmax(torch.cat([scores, column], dim=-1), dim=-1)[..., :-1]
    return torch.matmul(weights.to(value.dtype).flatten(2, 3), value).unflatten(2, (group, queries))


def eager(
    query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], scale: float, softcap: Optional[float],
    sinks: Optional[Tensor],
) -> Tensor:  # fmt: skip
    """Attention of plain operators, softmax in fp32: [batch, queries, heads, dim_v]. Queries go in blocks, so that
    scores take at most 64 MiB, or one query's."""
    batch, heads, queries, dim = query.shape
    kv_heads, keys = key.shape[1], key.shape[2]
    grouped = query.reshape(batch, kv_heads, heads // kv_heads, queries, dim)
    if mask is not None:
        split = (1, 1) if mask.shape[1] == 1 else (kv_heads, heads // kv_heads)
        mask = mask.reshape(mask.shape[0], *split, queries, keys)
    block = max(1, _BLOCK_ELEMENTS // max(1, batch * heads * keys))
    blocks = []
    for begin in range(0, queries, block):
        part = slice(begin, min(begin + block, queries))
        own = None if mask is None else mask[:, :, :, part]
        blocks.append(_eager_block(grouped[:, :, :, part], key, value, own, scale, softcap, sinks))
    out = torch.cat(blocks, dim=3) if len(blocks) > 1 else blocks[0]
    return out.reshape(batch, heads, queries, value.shape[-1]).transpose(1, 2).contiguous()


def attend(
    reason: str, module: Any, query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], scale: float,
    window: Optional[int], softcap: Optional[float], sinks: Optional[Tensor], is_causal: Optional[bool],
) -> Tuple[Tensor, None]:  # fmt: skip
    """Computes one call elsewhere, and counts it with the reason."""
    queries, keys = query.shape[2], key.shape[2]
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    path = "sdpa" if softcap is None and sinks is None else "eager"
    if not torch.compiler.is_compiling():
        _counters.add(path, reason)
    if mask is None and (path == "eager" or (window is not None and window < keys)):
        if queries > 1 and causal:
            mask = causal_mask(queries, keys, window, query.device)
        elif window is not None and window < keys:
            mask = (torch.arange(keys, device=query.device) >= keys - window).expand(1, 1, queries, keys)
    if path == "eager":
        return eager(query, key, value, mask, scale, softcap, sinks), None
    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]
    return sdpa(module, query, key, value, mask, dropout=0.0, scaling=scale, is_causal=is_causal)
