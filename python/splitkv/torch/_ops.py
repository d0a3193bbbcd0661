"""The operators torch.ops.splitkv.*: decode, decode_out, append, merge, merge_out.

They take tensors and plain values only. `key` is the text of a handle (splitkv.torch.prepare); optional tensors are
those of Kernel.run, Kernel.bind, Appender.append and Merger.merge, with the same shapes and types. What an operator
writes is declared. Results that a problem does not put out are tensors of no element.
"""

from typing import Any, Dict, List, Optional, Tuple

import torch
from torch import Tensor

from splitkv._errors import InvalidArgument
from splitkv.torch import _call, _table

_OF_LAYER = ("k_scale", "v_scale", "alibi_slopes", "sink")
_OF_STEP = (
    "kv_len", "page_table", "page_offset", "v_page_table", "v_page_offset", "q_rope", "q_offset", "kv_begin",
    "total_len", "bias", "tree",
)  # fmt: skip
_NUMBERS = ("kv_len_all", "page_count", "kv_capacity")


def _named_params(key: str, params: List[Tensor]) -> Dict[str, Any]:
    names = _table.put_of(key).shapes.params
    if len(names) != len(params):
        raise InvalidArgument(f"params has {len(params)} tensors; {len(names)}, for {list(names)}, would fit")
    named = _call.given(dict(zip(names, params)))
    return {"params": named} if named else {}


def _attend(
    q: Tensor, k: Tensor, v: Optional[Tensor], key: str, outputs: Dict[str, Optional[Tensor]], options: Dict[str, Any]
) -> None:
    layer = _call.given({"k": k, "v": v, **{name: options[name] for name in _OF_LAYER}})
    layer.update(_named_params(key, options["params"]))
    step = _call.given({name: options[name] for name in _OF_STEP})
    numbers = {name: options[name] for name in _NUMBERS if options[name] is not None}
    if "kv_len_all" in numbers:
        if "kv_len" in step:
            raise InvalidArgument("kv_len and kv_len_all are given; one of them would fit")
        step["kv_len"] = numbers.pop("kv_len_all")
    step.update(numbers, pos0=options["pos0"], pos_step=options["pos_step"])
    _call.run(key, q, layer, step, _call.given(outputs))


def _new_outputs(key: str, q: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    shapes, dtype = _table.put_of(key)
    rows = list(q.shape[:-1])
    out = q.new_empty(rows + [shapes.dim_v], dtype=dtype)
    lse = q.new_empty(rows if shapes.lse else [0], dtype=torch.float32)
    return out, lse, q.new_empty(rows if shapes.partial_l else [0], dtype=torch.float32)


@torch.library.custom_op("splitkv::decode", mutates_args=())
def decode(
    q: Tensor,
    k: Tensor,
    v: Optional[Tensor],
    key: str,
    params: List[Tensor],
    kv_len: Optional[Tensor] = None,
    kv_len_all: Optional[int] = None,
    page_table: Optional[Tensor] = None,
    page_offset: Optional[Tensor] = None,
    v_page_table: Optional[Tensor] = None,
    v_page_offset: Optional[Tensor] = None,
    q_rope: Optional[Tensor] = None,
    q_offset: Optional[Tensor] = None,
    kv_begin: Optional[Tensor] = None,
    total_len: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    tree: Optional[Tensor] = None,
    k_scale: Optional[Tensor] = None,
    v_scale: Optional[Tensor] = None,
    alibi_slopes: Optional[Tensor] = None,
    sink: Optional[Tensor] = None,
    pos0: int = 0,
    pos_step: int = 0,
    page_count: Optional[int] = None,
    kv_capacity: Optional[int] = None,
) -> Tuple[Tensor, Tensor, Tensor]:
    options = dict(locals())  # the tensors and numbers above, by name
    out, lse, partial_l = _new_outputs(key, q)
    shapes = _table.put_of(key).shapes
    outputs = {"out": out, "lse": lse if shapes.lse else None, "partial_l": partial_l if shapes.partial_l else None}
    _attend(q, k, v, key, outputs, options)
    return out, lse, partial_l


@decode.register_fake
def _(q, k, v, key, params, *others, **options):
    return _new_outputs(key, q)


@torch.library.custom_op("splitkv::decode_out", mutates_args=("out", "lse", "partial_l"))
def decode_out(
    q: Tensor,
    k: Tensor,
    v: Optional[Tensor],
    key: str,
    out: Tensor,
    lse: Optional[Tensor],
    partial_l: Optional[Tensor],
    params: List[Tensor],
    kv_len: Optional[Tensor] = None,
    kv_len_all: Optional[int] = None,
    page_table: Optional[Tensor] = None,
    page_offset: Optional[Tensor] = None,
    v_page_table: Optional[Tensor] = None,
    v_page_offset: Optional[Tensor] = None,
    q_rope: Optional[Tensor] = None,
    q_offset: Optional[Tensor] = None,
    kv_begin: Optional[Tensor] = None,
    total_len: Optional[Tensor] = None,
    bias: Optional[Tensor] = None,
    tree: Optional[Tensor] = None,
    k_scale: Optional[Tensor] = None,
    v_scale: Optional[Tensor] = None,
    alibi_slopes: Optional[Tensor] = None,
    sink: Optional[Tensor] = None,
    pos0: int = 0,
    pos_step: int = 0,
    page_count: Optional[int] = None,
    kv_capacity: Optional[int] = None,
) -> None:
    options = dict(locals())
    shapes = _table.put_of(key).shapes
    for name, wanted in (("lse", shapes.lse), ("partial_l", shapes.partial_l)):
        if (options[name] is not None) != wanted:
            fits = "a tensor fp32 like q without its last dimension" if wanted else "None"
            raise InvalidArgument(f"{name} is {'given' if not wanted else 'None'}; {fits} would fit {key!r}")
    _attend(q, k, v, key, {"out": out, "lse": lse, "partial_l": partial_l}, options)


@decode_out.register_fake
def _(q, k, v, key, out, lse, partial_l, params, *others, **options):
    return None


@torch.library.custom_op("splitkv::append", mutates_args=("k", "v", "k_scale", "v_scale"))
def append(
    k: Tensor,
    v: Optional[Tensor],
    k_new: Tensor,
    v_new: Optional[Tensor],
    key: str,
    places: str,
    type: Optional[str] = None,
    k_scale: Optional[Tensor] = None,
    v_scale: Optional[Tensor] = None,
    slots: Optional[Tensor] = None,
    v_slots: Optional[Tensor] = None,
    token_count: Optional[Tensor] = None,
    slots_a_row: Optional[int] = None,
    q_offset: Optional[Tensor] = None,
    kv_len: Optional[Tensor] = None,
    page_table: Optional[Tensor] = None,
    page_offset: Optional[Tensor] = None,
    v_page_table: Optional[Tensor] = None,
    v_page_offset: Optional[Tensor] = None,
    batch: int = 0,
    slot_count: int = 0,
    page_count: int = 0,
    kv_capacity: int = 0,
) -> None:
    device = _table.device_text(k_new.device)
    cache = _call.given({"k": k, "v": v, "k_scale": k_scale, "v_scale": v_scale})
    new = _call.given(
        {
            "k_new": k_new, "v_new": v_new, "slots": slots, "v_slots": v_slots, "token_count": token_count,
            "q_offset": q_offset, "kv_len": kv_len, "page_table": page_table, "page_offset": page_offset,
            "v_page_table": v_page_table, "v_page_offset": v_page_offset,
        }
    )  # fmt: skip
    with _call.on(k_new.device):
        stream = _call.stream_of(k_new.device)
        binding = _call.bind(key, device, cache, stream)
        _table.appender_of(key, device, type, places).append(
            binding, new.pop("k_new"), slots_a_row=slots_a_row, batch=batch, slot_count=slot_count,
            page_count=page_count, kv_capacity=kv_capacity, stream=stream, **new,
        )  # fmt: skip


@append.register_fake
def _(k, v, k_new, v_new, key, places, *others, **options):
    return None


def _merge(
    o: Tensor, s: Tensor, l: Optional[Tensor], form: str, base: str, into: Dict[str, Optional[Tensor]]
) -> None:  # noqa: E741
    tensors = _call.given({"o": o, "s": s, "l": l, **into})
    with _call.on(o.device):
        merger = _table.merger_of(_table.device_text(o.device), form, base)
        merger.merge(**tensors, stream=_call.stream_of(o.device))


@torch.library.custom_op("splitkv::merge", mutates_args=())
def merge(
    o: Tensor, s: Tensor, l: Optional[Tensor], form: str, base: str
) -> Tuple[Tensor, Tensor, Tensor]:  # noqa: E741
    out, out_s, out_l = _new_merged(o, s, l)
    into = {"out": out, "out_s": out_s, "out_l": None if l is None else out_l}
    _merge(o, s, l, form, base, into)
    return out, out_s, out_l


def _new_merged(o: Tensor, s: Tensor, l: Optional[Tensor]) -> Tuple[Tensor, Tensor, Tensor]:  # noqa: E741
    sizes = [list(s.shape[1:]), [0] if l is None else list(s.shape[1:])]
    return o.new_empty(list(o.shape[1:])), s.new_empty(sizes[0]), s.new_empty(sizes[1])


@merge.register_fake
def _(o, s, l, form, base):  # noqa: E741
    return _new_merged(o, s, l)


@torch.library.custom_op("splitkv::merge_out", mutates_args=("out", "out_s", "out_l"))
def merge_out(
    o: Tensor,
    s: Tensor,
    l: Optional[Tensor],  # noqa: E741
    form: str,
    base: str,
    out: Tensor,
    out_s: Tensor,
    out_l: Optional[Tensor],
) -> None:
    _merge(o, s, l, form, base, {"out": out, "out_s": out_s, "out_l": out_l})


@merge_out.register_fake
def _(o, s, l, form, base, out, out_s, out_l):  # noqa: E741
    return None


def _no_gradients(ctx: Any, inputs: Any, output: Any) -> None:
    raise InvalidArgument(
        "an argument requires grad, and SplitKV computes no gradients; torch.no_grad(), torch.inference_mode() or "
        "detached tensors would fit"
    )


def _no_backward(ctx: Any, *gradients: Any) -> None:
    raise AssertionError("the forward of an operator without gradients went through")


decode.register_autograd(_no_backward, setup_context=_no_gradients)
merge.register_autograd(_no_backward, setup_context=_no_gradients)
