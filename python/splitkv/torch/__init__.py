"""SplitKV as operators of PyTorch: decode attention, appending and merging on tensors of the CPU and of GPUs.

    import torch, splitkv.torch

    attend = splitkv.torch.prepare("cuda", q="bf16", heads=(32, 8), dim=128, lse="natural")   # compiled here
    out, lse, _ = attend(q, k, v, kv_len=lengths)                                           # torch's current stream

A handle calls torch.ops.splitkv.decode, which torch.compile(fullgraph=True) takes and CUDA graphs capture. Prepared
kernels stay for the life of the process, one a problem and device, whatever becomes of the handles: a graph has only
their key. Handles and operators serve any number of threads. They compute no gradients.
"""

from typing import Any, Dict, Optional

import torch
from torch import Tensor

from splitkv._errors import InvalidArgument
from splitkv._kernel import Kernel, Output
from splitkv._merge import Merged
from splitkv.torch import _call, _ops, _table  # noqa: F401  # _ops registers the operators
from splitkv.torch._table import runtime, use_runtime

__all__ = ["Attention", "Merged", "Output", "merge", "merge_out", "prepare", "runtime", "use_runtime"]


class Attention:
    """The attention of one problem on one device. Made by prepare. Thread-safe; may be used inside torch.compile."""

    def __init__(self, kernel: Kernel, key: str) -> None:
        self.kernel = kernel  #: the splitkv.Kernel: information, poll_fault, dump_repro
        self.key = key  #: what torch.ops.splitkv.* take
        self.problem = kernel.problem  #: the canonical text
        self.device = torch.device(kernel.device)
        self._lse, self._partial_l = kernel._shapes.lse, kernel._shapes.partial_l
        self._params = kernel._shapes.params

    def __repr__(self) -> str:
        return f"<splitkv.torch.Attention on {self.device}: {self.key}>"

    def __call__(
        self,
        q: Tensor,
        k: Tensor,
        v: Optional[Tensor] = None,
        *,
        kv_len: Any = None,
        params: Optional[Dict[str, Tensor]] = None,
        **options: Any,
    ) -> Output:
        """One decode step into new tensors of torch.

        q: [batch, query_len, q_heads, dim], [batch, q_heads, dim] where query_len is 1, or, ragged,
            [tokens, q_heads, dim].
        k, v: by the problem's layout, as for splitkv.Kernel.bind; v is None where v_in_k=on.
        kv_len: int32 or int64 [batch] on the device, an int, or None: all that contiguous k holds. A tensor keeps
            one graph for all lengths; an int is looked at by torch.compile.
        params: {name: fp32 tensor} for the names of params=.
        options: page_table, page_offset, v_page_table, v_page_offset, q_rope, q_offset, kv_begin, total_len, bias,
            tree, k_scale, v_scale, alibi_slopes, sink (tensors), pos0, pos_step, page_count, kv_capacity (ints), as
            for splitkv.Kernel.run.

        out: like q with the problem's out type and dim_v; lse, partial_l: fp32, like q without dim.

        Raises InvalidArgument with field, value and what would fit, also where a tensor requires grad and grad mode
        is on; NotPrepared while a CUDA graph is captured, where the kernel is not there yet; TypeError for an option
        that is not named above.
        """
        self._check(q, k, v, options, params)
        found = torch.ops.splitkv.decode(q, k, v, self.key, **_length(kv_len), params=self._in_order(params), **options)
        return Output(found[0], found[1] if self._lse else None, found[2] if self._partial_l else None)

    def out(
        self,
        q: Tensor,
        k: Tensor,
        v: Optional[Tensor] = None,
        *,
        out: Tensor,
        lse: Optional[Tensor] = None,
        partial_l: Optional[Tensor] = None,
        kv_len: Any = None,
        params: Optional[Dict[str, Tensor]] = None,
        **options: Any,
    ) -> Output:
        """As a call, into tensors that are given: out, and lse and partial_l exactly where the problem has them."""
        self._check(q, k, v, options, params, out=out)
        torch.ops.splitkv.decode_out(
            q, k, v, self.key, out, lse, partial_l, **_length(kv_len), params=self._in_order(params), **options
        )
        return Output(out, lse, partial_l)

    def append(
        self,
        k: Tensor,
        v: Optional[Tensor],
        k_new: Tensor,
        v_new: Optional[Tensor] = None,
        *,
        places: str = "slots",
        type: Optional[str] = None,
        **options: Any,
    ) -> None:
        """Writes new keys and values into k and v, as splitkv.Appender.append.

        k, v (and k_scale, v_scale): the cache, written. k_new: [tokens, kv_heads, dim_qk]; v_new: [tokens, kv_heads,
        dim_v]. places: "slots" (slots=) or "rows" (kv_len=, q_offset= or batch=). type: of new elements, None: q's.
        options: k_scale, v_scale, slots, v_slots, token_count, q_offset, kv_len, page_table, page_offset,
        v_page_table, v_page_offset (tensors), slots_a_row, batch, slot_count, page_count, kv_capacity (ints).

        Raises as splitkv.Appender.append, and as a call for gradients and captures.
        """
        _call.refuse_gradients({"k": k, "v": v, "k_new": k_new, "v_new": v_new})
        self._check_device(k_new)
        torch.ops.splitkv.append(k, v, k_new, v_new, self.key, places=places, type=type, **options)

    def _in_order(self, params: Optional[Dict[str, Tensor]]) -> Any:
        names = self._params
        if sorted(params or {}) != sorted(names):
            raise InvalidArgument(f"params has {sorted(params or {})}; {sorted(names)} would fit")
        return [params[name] for name in names] if params else []

    def _check(self, q: Tensor, k: Tensor, v: Optional[Tensor], options: Dict, params: Any, **others: Any) -> None:
        if torch.is_grad_enabled():
            _call.refuse_gradients({"q": q, "k": k, "v": v, **others})
            tensors = {name: one for name, one in {**options, **(params or {})}.items() if isinstance(one, Tensor)}
            _call.refuse_gradients(tensors)
        self._check_device(q)

    def _check_device(self, q: Tensor) -> None:
        if q.device != self.device:
            raise InvalidArgument(
                f"q lies on {q.device}, but the kernel was prepared on {self.device}; a tensor there would fit"
            )


def _length(kv_len: Any) -> Dict[str, Any]:
    return {"kv_len": kv_len} if kv_len is None or isinstance(kv_len, Tensor) else {"kv_len_all": kv_len}


def prepare(
    device: Any,
    problem: Optional[str] = None,
    *,
    batch: int = 0,
    kv_len: int = 0,
    kv_len_mean: int = 0,
    schedule: Optional[str] = None,
    **words: Any,
) -> Attention:
    """Compiles (or finds) the kernel of one problem on one device, for good.

    device: "cpu", "cuda", "cuda:1" or a torch.device. problem, words, hints, schedule: as for splitkv.Runtime.prepare.
    One problem has one kernel a device, however it is asked for; with hints or a schedule it has one a schedule.

    Raises InvalidArgument, Unsupported, NotPrepared, CompileFailed, LibraryMissing, DeviceError, OutOfMemory.
    """
    kernel = _table.runtime().prepare(
        _table.device_text(device),
        problem,
        batch=batch,
        kv_len=kv_len,
        kv_len_mean=kv_len_mean,
        schedule=schedule,
        **words,
    )
    return Attention(*_table.keep(kernel, chosen=bool(batch or kv_len or kv_len_mean or schedule)))


def merge(
    o: Tensor, s: Tensor, l: Optional[Tensor] = None, *, form: str = "lse", base: str = "natural"
) -> Merged:  # noqa: E741
    """Joins partials of the same queries into new tensors.

    o: fp32 [parts, ..., dim]; s: fp32 [parts, ...]; l: like s, exactly with form="mlo". form, base: as for
    splitkv.Runtime.prepare_merge. Compiles nothing on the CPU; on a GPU the first call compiles.

    Raises as splitkv.Merger.merge, and as Attention for gradients and captures.
    """
    _call.refuse_gradients({"o": o, "s": s, "l": l})
    found = torch.ops.splitkv.merge(o, s, l, form, base)
    return Merged(found[0], found[1], None if l is None else found[2])


def merge_out(
    o: Tensor,
    s: Tensor,
    l: Optional[Tensor] = None,  # noqa: E741
    *,
    out: Tensor,
    out_s: Tensor,
    out_l: Optional[Tensor] = None,
    form: str = "lse",
    base: str = "natural",
) -> Merged:
    """As merge, into out [..., dim] and out_s, out_l [...]. They may be part 0 of o, s and l."""
    _call.refuse_gradients({"o": o, "s": s, "l": l, "out": out, "out_s": out_s, "out_l": out_l})
    torch.ops.splitkv.merge_out(o, s, l, form, base, out, out_s, out_l)
    return Merged(out, out_s, out_l)
