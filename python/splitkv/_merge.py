"""Joining partial results of the same queries, exactly."""

from typing import Any, NamedTuple, Optional

from splitkv._errors import InvalidArgument
from splitkv._tensors import Allocator, Fault, allocate, fault_of, shape_of, stream_handle


class Merged(NamedTuple):
    """o, normalised; s: S, or m in the form mlo; l: None in the form lse. All fp32."""

    o: Any
    s: Any
    l: Any  # noqa: E741


class Merger:
    """The merge of one form and base on one device. Made by Runtime.prepare_merge. Thread-safe."""

    def __init__(self, handle: Any, form: str, device: str) -> None:
        self._handle, self._form, self._device = handle, form, device

    def merge(
        self,
        o: Any,
        s: Any,
        l: Any = None,  # noqa: E741
        *,
        out: Any = None,
        out_s: Any = None,
        out_l: Any = None,
        allocator: Optional[Allocator] = None,
        stream: Any = None,
    ) -> Merged:
        """Joins the parts in their order: one tensor holds all partials.

        o: fp32 [parts, ..., dim], normalised, dim at most 4096; s: fp32 [parts, ...], S (form lse) or m (form mlo);
        l: like s, exactly in the form mlo. Parts may lie anywhere, what is inside of a part is dense. An empty
        partial has s = -inf. out [..., dim], out_s and out_l [...]: written; may be part 0. Where None: as for
        Kernel.run. stream: likewise.

        Raises InvalidArgument with field, value and what would fit; DeviceError on the CPU where a statistic is one
        that no partial has (that row becomes NaN). On a GPU poll_fault tells that.
        """
        if (l is not None) != (self._form == "mlo"):
            fits = "a tensor like s" if self._form == "mlo" else "None"
            raise InvalidArgument(f"l is {'None' if l is None else 'given'}, but the form is {self._form}; {fits} would fit")
        if out is None or out_s is None or (l is not None and out_l is None):
            shape = shape_of(o, "o")[1:]
            if out is None:
                out = allocate("out", o, shape, "fp32", self._device, allocator)
            if out_s is None:
                out_s = allocate("out_s", o, shape[:-1], "fp32", self._device, allocator)
            if l is not None and out_l is None:
                out_l = allocate("out_l", o, shape[:-1], "fp32", self._device, allocator)
        self._handle.merge(o, s, l, out, out_s, out_l, stream_handle(stream))
        return Merged(out, out_s, out_l)

    def poll_fault(self) -> Optional[Fault]:
        """The first fault that merges found since the last call, or None."""
        return fault_of(self._handle.poll_fault())
