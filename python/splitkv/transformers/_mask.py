"""What a mask of transformers says, in SplitKV's terms: the interval of keys of each row, and a bias for the rest."""

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from splitkv._errors import InvalidArgument
from splitkv.torch import _call


class Seen(NamedTuple):
    """The keys that queries see. kv_begin, kv_len: int32 [batch], no key outside is read; None: all keys. bias: [batch
    or 1, heads or 1, queries, keys], -inf where a key inside is hidden; None: nothing is."""

    kv_begin: Optional[Tensor]
    kv_len: Optional[Tensor]
    bias: Optional[Tensor]


def check_mask(mask: Tensor, query: Tensor, key: Tensor) -> None:
    """Raises InvalidArgument where a mask is not one of this query and key."""
    batch, heads, queries, _ = query.shape
    fits = f"[{batch} or 1, {heads} or 1, {queries}, {key.shape[2]}]"
    sizes_fit = (
        mask.ndim == 4
        and mask.shape[0] in (1, batch)
        and mask.shape[1] in (1, heads)
        and mask.shape[2] == queries
        and mask.shape[3] == key.shape[2]
    )
    if not sizes_fit or not (mask.dtype == torch.bool or mask.dtype.is_floating_point):
        raise InvalidArgument(
            f"attention_mask is {mask.dtype} of the shape {list(mask.shape)}; bool or a floating type of {fits} "
            "would fit"
        )


def _visible(mask: Tensor) -> Tensor:
    """An additive mask hides with -inf or the lowest number of its type; of another type, after a cast, it is near."""
    return mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2


def _bias(mask: Tensor, visible: Tensor) -> Tensor:
    if mask.dtype == torch.bool:
        shown = torch.zeros((), dtype=torch.float16, device=mask.device)
        return torch.where(mask, shown, float("-inf"))
    return torch.where(visible, mask.float(), float("-inf"))


def _look(mask: Tensor, batch: int, may_wait: bool) -> Seen:
    visible = _visible(mask)
    any_query = visible.any(dim=1).any(dim=1)  # [batch or 1, keys]
    keys = mask.shape[3]
    index = torch.arange(keys, device=mask.device, dtype=torch.int32)
    kv_len = torch.where(any_query, index + 1, 0).amax(dim=1)
    kv_begin = torch.minimum(torch.where(any_query, index, keys).amin(dim=1), kv_len)
    bias = None
    if not (may_wait and mask.dtype == torch.bool and _is_interval(visible, kv_begin, kv_len)):
        bias = _bias(mask, visible)
    # Rows of their own for each sequence, dense, as lengths are to be.
    kv_begin, kv_len = (one.to(torch.int32).expand(batch).contiguous() for one in (kv_begin, kv_len))
    return Seen(kv_begin, kv_len, bias)


def _is_interval(visible: Tensor, kv_begin: Tensor, kv_len: Tensor) -> bool:
    """Whether every head and query of a row sees all keys of [kv_begin, kv_len)."""
    return bool((visible.sum(dim=3) == (kv_len - kv_begin)[:, None, None]).all())


def see(mask: Tensor, batch: int) -> Seen:
    """Looks at a mask once; all layers that are given the same tensor share what was found.

    A graph must look itself, as its mask gets other contents between replays: what is found in a capture is for that
    capture alone, and in a graph of torch.compile, where memory changes unseen, each layer looks. On a GPU nothing is
    waited for, so a mask always becomes a bias there.
    """
    if torch.compiler.is_compiling():
        return _look(mask, batch, may_wait=False)
    may_wait = not mask.is_cuda
    order = _call.order_of(mask.device)
    if order is None or mask.is_inference():
        return _look(mask, batch, may_wait)
    state = (mask._version, batch, order)
    kept = getattr(mask, "_splitkv_seen", None)
    if kept is None or kept[0] != state:
        kept = (state, _look(mask, batch, may_wait))
        mask._splitkv_seen = kept
    return kept[1]


def see_window(batch: int, keys: int, window: Optional[int], device: torch.device) -> Seen:
    """Without a mask one query sees all keys, or the last ones of a window."""
    if window is None or window >= keys:
        return Seen(None, None, None)
    begin = torch.full((batch,), keys - window, dtype=torch.int32, device=device)
    return Seen(begin, None, None)
