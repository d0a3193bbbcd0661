"""The attention function that transformers calls for every layer."""

import threading
from typing import Any, Dict, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from splitkv import torch as splitkv_torch
from splitkv._errors import InvalidArgument
from splitkv._problem import problem_text
from splitkv.torch import _call, _table
from splitkv.transformers import _counters, _fallback, _mask

#: Arguments of models that say nothing about what attention computes.
_WITHOUT_EFFECT = frozenset(
    {
        "cache", "cache_position", "logits_to_keep", "num_items_in_batch", "output_hidden_states",
        "output_router_logits", "past_key_values", "position_ids", "return_dict", "use_cache",
    }
)  # fmt: skip
_DTYPES = {dtype: name for name, dtype in _table.DTYPES.items() if dtype.is_floating_point}


class Settings(NamedTuple):
    """What register was told. max_query_len: queries up to which SplitKV is used; batch, kv_len: hints."""

    max_query_len: int = 8
    batch: int = 0
    kv_len: int = 0


settings = Settings()
_lock = threading.Lock()
_keys: Dict[Tuple[Any, ...], str] = {}


def _dtype(name: str, tensor: Tensor) -> str:
    if tensor.dtype not in _DTYPES:
        raise InvalidArgument(f"{name} holds {tensor.dtype}; float32, float16 or bfloat16 would fit")
    return _DTYPES[tensor.dtype]


def _key_of(
    query: Tensor, key: Tensor, value: Tensor, bias: Optional[Tensor], sink: bool, scale: float, softcap: float
) -> str:
    """The key of the kernel for such a call, prepared if need be. One for all batches and lengths."""
    device = _table.device_text(query.device)
    asked = (
        device, query.dtype, key.dtype, value.dtype, query.shape[1:], key.shape[1], key.shape[3], value.shape[3],
        None if bias is None else bias.dtype, sink, scale, softcap, settings,
    )  # fmt: skip
    found = _keys.get(asked)
    if found is None:
        words = {
            "q": _dtype("query", query), "k": _dtype("key", key), "v": _dtype("value", value),
            "heads": (query.shape[2], key.shape[1]), "dim": (key.shape[3], value.shape[3]), "query_len": query.shape[1],
            "scale": scale, "softcap": softcap or None, "mask": "none", "sink": True if sink else None,
            "bias": None if bias is None else _dtype("bias", bias),
        }  # fmt: skip
        text = problem_text(**words)
        _table.refuse_in_capture(f"the kernel of {text!r}", device)
        found = splitkv_torch.prepare(device, text, batch=settings.batch, kv_len=settings.kv_len).key
        with _lock:
            _keys[asked] = found
    return found


@torch.library.custom_op("splitkv::model_decode", mutates_args=())
def model_decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kv_begin: Optional[Tensor],
    kv_len: Optional[Tensor],
    bias: Optional[Tensor],
    sink: Optional[Tensor],
    scale: float,
    softcap: float,
) -> Tensor:
    """query: [batch, queries, heads, dim]; key, value: [batch, kv_heads, keys, dim]. Prepares the kernel at its first
    call; the key is found by the tensors' types and sizes, so that a graph holds no text."""
    found = _key_of(query, key, value, bias, sink is not None, scale, softcap)
    out = query.new_empty([*query.shape[:-1], value.shape[3]])
    layer = _call.given({"k": key, "v": value, "sink": sink})
    step = _call.given({"kv_begin": kv_begin, "kv_len": kv_len, "bias": bias})
    _call.run(found, query, layer, step, _call.given({"out": out}))
    _counters.add("splitkv", "one query" if query.shape[1] == 1 else "few queries")
    return out


@model_decode.register_fake
def _(query, key, value, kv_begin, kv_len, bias, sink, scale, softcap):
    return query.new_empty([*query.shape[:-1], value.shape[3]])


def _check_options(dropout: float, softcap: Optional[float], others: Dict[str, Any]) -> None:
    """Raises InvalidArgument for what would change the result and is not done."""
    if dropout:
        raise InvalidArgument(
            f"dropout is {dropout}, and SplitKV has none; model.eval() or attention_dropout=0.0 would fit"
        )
    if softcap is not None and not softcap > 0:
        raise InvalidArgument(f"softcap is {softcap}; a number above 0, or None, would fit")
    if others.pop("output_attentions", None):
        raise InvalidArgument(
            "output_attentions is True, and SplitKV keeps no weights; attn_implementation='eager' would fit"
        )
    for name, value in others.items():
        if value is None or name in _WITHOUT_EFFECT:
            continue
        shown = f"a {type(value).__name__}" if isinstance(value, Tensor) else repr(value)
        raise InvalidArgument(
            f"{name} is {shown}, which the attention splitkv does not know; None, or another attn_implementation, "
            "would fit"
        )


def _reason_for_another(
    query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], sinks: Optional[Tensor]
) -> Optional[str]:
    """Why SplitKV is not used for a call; None: it is."""
    if torch.is_grad_enabled():
        for tensor in (query, key, value, sinks, mask):
            if tensor is not None and tensor.requires_grad:
                return "gradients"
    if query.shape[2] > settings.max_query_len:
        return "long query"
    if query.shape[2] > 1 and mask is None:
        return "prompt without a mask"
    return None


def attention_forward(
    module: torch.nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Optional[Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    sliding_window: Optional[int] = None,
    softcap: Optional[float] = None,
    s_aux: Optional[Tensor] = None,
    is_causal: Optional[bool] = None,
    **others: Any,
) -> Tuple[Tensor, None]:
    """Attention of one layer, as transformers' AttentionInterface wants it; register() makes it known.

    query: [batch, heads, queries, dim]; key, value: [batch, kv_heads, keys, dim], also all of a static cache.
    attention_mask: None, or bool (True: seen) or additive, [batch or 1, heads or 1, queries, keys]. Where it is
    given it says alone what is seen, and keys before the first and behind the last seen one of a row are not read.
    Without it one query sees all keys, or the last `sliding_window` ones, and several queries are a prompt's first
    tokens.
    scaling: None: dim ** -0.5. softcap: None or above 0. s_aux: [heads], a sink for every head.

    Returns [batch, queries, heads, dim_v], dense, and None for the weights. Of SplitKV a query that sees nothing gets
    0.

    Raises InvalidArgument for dropout, output_attentions and arguments that are not known, a mask or type that does not
    fit; Unsupported for head sizes that SplitKV does not have; NotPrepared in a capture.
    """
    _check_options(dropout, softcap, others)
    if attention_mask is not None:
        _mask.check_mask(attention_mask, query, key)
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    reason = _reason_for_another(query, key, value, attention_mask, s_aux)
    if reason is not None:
        return _fallback.attend(
            reason, module, query, key, value, attention_mask, scale, sliding_window, softcap, s_aux, is_causal
        )
    batch, keys = query.shape[0], key.shape[2]
    if attention_mask is None:
        seen = _mask.see_window(batch, keys, sliding_window, query.device)
    else:
        seen = _mask.see(attention_mask, batch)
    sink = None if s_aux is None else s_aux.reshape(-1).float()
    out = torch.ops.splitkv.model_decode(
        query.transpose(1, 2), key, value, seen.kv_begin, seen.kv_len, seen.bias, sink, scale, float(softcap or 0)
    )
    return out, None
