"""Writing new keys and values into the cache of a problem."""

from operator import index
from typing import TYPE_CHECKING, Any, Optional

from splitkv._tensors import Fault, fault_of, is_number, stream_handle

if TYPE_CHECKING:
    from splitkv._kernel import Binding


class Appender:
    """Writes new keys and values as the problem's cache lays out, scales and rounds them; see docs/appending.md.

    Made by Kernel.appender. Thread-safe.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def append(
        self,
        binding: "Binding",
        k_new: Any,
        v_new: Any = None,
        *,
        slots: Any = None,
        v_slots: Any = None,
        token_count: Any = None,
        slots_a_row: Optional[int] = None,
        slot_count: int = 0,
        q_offset: Any = None,
        kv_len: Any = None,
        batch: int = 0,
        page_table: Any = None,
        page_offset: Any = None,
        v_page_table: Any = None,
        v_page_offset: Any = None,
        page_count: int = 0,
        kv_capacity: int = 0,
        stream: Any = None,
    ) -> None:
        """One layer's new keys and values. Launches on the stream and returns; on the CPU all is written.

        binding: of a kernel of the same problem and device; its memory, and that of scales of tokens, is written.
        k_new: [tokens, kv_heads, dim_qk] of the appender's type, the last dimension dense; v_new
        [tokens, kv_heads, dim_v], None exactly where v_in_k=on.

        places=slots: slots int64 [tokens]: page slot // page_size, place slot % page_size; without pages row
        slot // slots_a_row (None: the tokens a row that k holds), position the rest. A negative one: nowhere.
        v_slots: V's, exactly where page_tables=separate. token_count: int32 [1], tokens from it on are left out.

        places=rows: token i of the n that row r brings stands at kv_len[r] - n + i. q_offset: int32 [batch + 1], the
        rows' tokens; without it each of the `batch` rows brings tokens / batch. kv_len: an int or int32 or int64
        [batch], lengths after the append. page_table ... v_page_offset: as for Kernel.run.

        slot_count, page_count, kv_capacity: limits of checked=on, 0: not checked. Otherwise places are trusted.

        Raises InvalidArgument with field, value and what would fit; DeviceError on the CPU where checked=on found a
        place out of range. On a GPU poll_fault tells that.
        """
        given = {
            "k_new": k_new,
            "v_new": v_new,
            "slots": slots,
            "v_slots": v_slots,
            "token_count": token_count,
            "q_offset": q_offset,
            "page_table": page_table,
            "page_offset": page_offset,
            "v_page_table": v_page_table,
            "v_page_offset": v_page_offset,
        }
        numbers = {"batch": batch, "slot_count": slot_count, "page_count": page_count, "kv_capacity": kv_capacity}
        if is_number(kv_len):
            numbers["kv_len"] = index(kv_len)
        else:
            given["kv_len"] = kv_len
        if slots_a_row is not None:
            numbers["slots_a_row"] = slots_a_row
        tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
        self._handle.append(binding._handle, tensors, numbers, stream_handle(stream))

    def poll_fault(self) -> Optional[Fault]:
        """The first fault that appends found since the last call, or None."""
        return fault_of(self._handle.poll_fault())
