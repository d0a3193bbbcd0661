"""A prepared kernel, layers bound to it, and its runs."""

from operator import index
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from splitkv import _core
from splitkv._append import Appender
from splitkv._errors import InvalidArgument
from splitkv._problem import Shapes, shapes_of
from splitkv._tensors import Allocator, Fault, allocate, fault_of, is_number, shape_of, stream_handle


class BufferSizes(NamedTuple):
    """Bytes of the two work buffers, and of compiled code."""

    scratch_bytes: int
    state_bytes: int
    module_bytes: int


class KernelInfo(NamedTuple):
    """What a kernel is. problem, schedule, target: canonical texts; why, decided_by: who chose the schedule; source:
    the emitted CUDA C++ or LLVM IR; key: a digest of all that changes the compiled bytes; origin: "pack", "memory",
    "disk" or "compiled"; times in milliseconds; registers, local bytes (a thread) and smem_bytes (a block): CUDA."""

    problem: str
    schedule: str
    target: str
    device: str
    why: str
    decided_by: str
    source: str
    key: str
    origin: str
    from_memory: bool
    compile_ms: float
    disk_ms: float
    module_bytes: int
    registers_split: int
    registers_reduce: int
    local_bytes_split: int
    local_bytes_reduce: int
    smem_bytes: int
    kernels_per_run: int
    split_name: str
    reduce_name: str


class Output(NamedTuple):
    """What a run wrote. lse and partial_l are None where the problem puts out none."""

    out: Any
    lse: Any
    partial_l: Any


class Workspace:
    """Scratch and state of runs, one of them at a time: one for each stream (CUDA) or thread (CPU).

    Made by Kernel.workspace; good for kernels of the same problem and schedule. Keeps the tensors that it was made of.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @property
    def max_batch(self) -> int:
        """The largest batch of a run."""
        return self._handle.max_batch


class Binding:
    """K and V of one layer, checked. Keeps its tensors alive. Made by Kernel.bind."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    @property
    def capacity(self) -> int:
        """Tokens of a row (contiguous layouts) or of a page."""
        return self._handle.tokens

    @property
    def blocks(self) -> int:
        """Rows (contiguous layouts) or pages that k holds."""
        return self._handle.blocks


def _given(**tensors: Any) -> Dict[str, Any]:
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


class Kernel:
    """The kernel of one problem on one device. Made by Runtime.prepare. Thread-safe."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        info = self.info
        self._shapes: Shapes = shapes_of(info.problem)
        self._problem, self._device = info.problem, info.device
        self._needs_work = False
        if info.device.startswith("cuda"):
            sizes = self.sizes(1)
            self._needs_work = sizes.scratch_bytes > 0 or sizes.state_bytes > 0

    def __repr__(self) -> str:
        return f"<splitkv.Kernel on {self._device}: {self._problem}>"

    @property
    def problem(self) -> str:
        """The canonical text."""
        return self._problem

    @property
    def device(self) -> str:
        """ "cpu" or "cuda:N"."""
        return self._device

    @property
    def info(self) -> KernelInfo:
        """Problem, schedule and who decided it, source, registers, where the code came from."""
        return KernelInfo(**self._handle.info())

    def sizes(self, max_batch: int) -> BufferSizes:
        """Bytes of the work buffers for every batch up to max_batch, whatever the lengths."""
        return BufferSizes(*self._handle.sizes(max_batch))

    def workspace(
        self,
        max_batch: int,
        *,
        allocator: Optional[Allocator] = None,
        scratch: Any = None,
        state: Any = None,
        stream: Any = None,
    ) -> Workspace:
        """Work buffers for runs of up to max_batch rows; the state is zeroed on the stream.

        CUDA: either allocator, called as allocator((bytes,), "uint8", device), or scratch and state, uint8 tensors
        of [bytes] as sizes() says. CPU: the library's own memory where neither is given.

        Raises InvalidArgument where a buffer is missing, too small, or on another device.
        """
        sizes = self.sizes(max_batch)
        if allocator is not None:
            if scratch is None and sizes.scratch_bytes > 0:
                scratch = allocator((sizes.scratch_bytes,), "uint8", self._device)
            if state is None and sizes.state_bytes > 0:
                state = allocator((sizes.state_bytes,), "uint8", self._device)
        return Workspace(self._handle.work(max_batch, scratch, state, stream_handle(stream)))

    def bind(
        self,
        k: Any,
        v: Any = None,
        *,
        k_scale: Any = None,
        v_scale: Any = None,
        alibi_slopes: Any = None,
        sink: Any = None,
        params: Any = None,
        stream: Any = None,
    ) -> Binding:
        """K and V of one layer; redo it when they move. Nothing is copied.

        k, v: by the problem's layout: bhtd [batch, kv_heads, tokens, dim], bthd [batch, tokens, kv_heads, dim],
        paged nhd [pages, page_size, kv_heads, dim], hnd [pages, kv_heads, page_size, dim]; any strides but that of
        the last dimension, which is dense. fp8 may come as uint8. v is None where v_in_k=on. k_scale, v_scale: fp32
        [1] or [] (tensor), [kv_heads] (head), like k without its last dimension (token). alibi_slopes: fp32
        [q_heads]. sink: fp32 [q_heads], in natural units. params: {name: fp32 tensor} of [1], [q_heads] or [batch]
        for the names of params=. stream: as for run, told to the tensors' library.

        Raises InvalidArgument with field, value and what would fit: dtype, shape, strides, alignment, device.
        """
        if k is None:
            raise InvalidArgument("k is None; k of the layer, or binding=, would fit")
        given = _given(k=k, v=v, k_scale=k_scale, v_scale=v_scale, alibi_slopes=alibi_slopes, sink=sink)
        return Binding(self._handle.bind(given, self._params(params), stream_handle(stream)))

    def _params(self, params: Any) -> List[Any]:
        given = dict(params or {})
        names = self._shapes.params
        if set(given) != set(names):
            raise InvalidArgument(f"params has {sorted(given)}; {sorted(names)} would fit")
        return [given[name] for name in names]

    def run(
        self,
        q: Any,
        k: Any = None,
        v: Any = None,
        *,
        binding: Optional[Binding] = None,
        kv_len: Any = None,
        page_table: Any = None,
        page_offset: Any = None,
        v_page_table: Any = None,
        v_page_offset: Any = None,
        q_rope: Any = None,
        q_offset: Any = None,
        kv_begin: Any = None,
        total_len: Any = None,
        pos0: int = 0,
        pos_step: int = 0,
        bias: Any = None,
        tree: Any = None,
        k_scale: Any = None,
        v_scale: Any = None,
        alibi_slopes: Any = None,
        sink: Any = None,
        params: Any = None,
        out: Any = None,
        lse: Any = None,
        partial_l: Any = None,
        page_count: Optional[int] = None,
        kv_capacity: Optional[int] = None,
        work: Optional[Workspace] = None,
        allocator: Optional[Allocator] = None,
        stream: Any = None,
    ) -> Output:
        """One decode step. Launches on the stream (CUDA) and returns; on the CPU the result is there.

        Tensors are anything with __dlpack__ (numpy, torch, jax, cupy) on the kernel's device, seen and not copied;
        on a GPU they must stay until the stream has done the run. Other threads of Python go on meanwhile.

        q: [batch, query_len, q_heads, dim], [batch, q_heads, dim] where query_len is 1, or, ragged,
            [tokens, q_heads, dim]; q_rope likewise where the problem has it.
        k, v and k_scale ... params: as for bind; or binding, made by bind once a layer.
        kv_len: keys of every row (an int), int32 or int64 [batch], or None: all that contiguous k holds. Refused
            where it exceeds the cache and lies on the host; trusted on a GPU.
        page_table: int32 [batch, pages]; with page_offset (int64 [batch]) int32 [ids] of all rows. v_page_table,
            v_page_offset: V's, where page_tables=separate. Ids are trusted unless checked=on.
        q_offset: int32 [batch + 1], exactly where ragged=on. kv_begin, total_len: int32 [batch].
        pos0, pos_step: positions=strided. bias: [batch, q_heads, query, key], sizes of 1 repeat. tree: integers
            [batch, query, words].
        out, lse, partial_l: written; like q with the problem's out type and dim_v, like q without dim, fp32. Where
            None: made by allocator(shape, dtype, device), or by numpy where q is numpy's.
        page_count, kv_capacity: limits of checked=on; None: what the tensors say.
        work: of workspace(); needed on a GPU where sizes() are not 0. On the CPU None takes buffers of the kernel.
        stream: an int (CUstream), an object of torch, cupy or with __cuda_stream__; None: the default stream.

        Raises InvalidArgument with field, value and what would fit, DeviceError where a launch fails, TypeError for
        what has no __dlpack__.
        """
        handle = stream_handle(stream)
        if binding is None:
            binding = self.bind(
                k,
                v,
                k_scale=k_scale,
                v_scale=v_scale,
                alibi_slopes=alibi_slopes,
                sink=sink,
                params=params,
                stream=handle,
            )
        elif any(one is not None for one in (k, v, k_scale, v_scale, alibi_slopes, sink, params)):
            raise InvalidArgument("binding is given, and k, v or another tensor of the layer too; one of them would fit")
        if self._needs_work and work is None:
            raise InvalidArgument("work is None; a workspace(max_batch, allocator=...) of this kernel would fit")
        result = self._outputs(q, out, lse, partial_l, allocator)
        tensors = _given(
            q=q,
            q_rope=q_rope,
            page_table=page_table,
            page_offset=page_offset,
            v_page_table=v_page_table,
            v_page_offset=v_page_offset,
            q_offset=q_offset,
            kv_begin=kv_begin,
            total_len=total_len,
            bias=bias,
            tree=tree,
            **result._asdict(),
        )
        numbers = _given(pos0=pos0, pos_step=pos_step, page_count=page_count, kv_capacity=kv_capacity)
        if kv_len is None and self._shapes.paged:
            raise InvalidArgument("kv_len is None; an int, or a tensor [batch], would fit a paged cache")
        if kv_len is None or is_number(kv_len):
            numbers["kv_len"] = binding.capacity if kv_len is None else index(kv_len)
        else:
            tensors["kv_len"] = kv_len
        self._handle.run(binding._handle, tensors, numbers, work._handle if work else None, handle)
        return result

    def _outputs(self, q: Any, out: Any, lse: Any, partial_l: Any, allocator: Optional[Allocator]) -> Output:
        shapes = self._shapes
        if out is not None and (lse is not None or not shapes.lse) and (partial_l is not None or not shapes.partial_l):
            return Output(out, lse, partial_l)
        rows: Tuple[int, ...] = shape_of(q, "q")[:-1]
        if out is None:
            out = allocate("out", q, rows + (shapes.dim_v,), shapes.out, self._device, allocator)
        if lse is None and shapes.lse:
            lse = allocate("lse", q, rows, "fp32", self._device, allocator)
        if partial_l is None and shapes.partial_l:
            partial_l = allocate("partial_l", q, rows, "fp32", self._device, allocator)
        return Output(out, lse, partial_l)

    def appender(self, type: Optional[str] = None, places: str = "slots") -> Appender:
        """The writer of new keys and values into caches of this problem, compiled and loaded.

        type: of new elements, "fp32", "fp16", "bf16"; None: q's. places: "slots" or "rows", see Appender.append.

        Raises Unsupported for a type of 8 bits, and as Runtime.prepare does.
        """
        return Appender(_core.prepare_append(self._handle, type, places))

    def poll_fault(self) -> Optional[Fault]:
        """The first fault that runs found since the last call (checked=on), or None. Does not wait for a stream."""
        return fault_of(self._handle.poll_fault())

    def dump_repro(self, folder: str, binding: Optional[Binding] = None) -> None:
        """Writes down what a report needs to repeat what the kernel does; no tensor's contents.

        Raises InvalidArgument with the path and why where a file cannot be written.
        """
        self._handle.dump_repro(folder, None if binding is None else binding._handle)
