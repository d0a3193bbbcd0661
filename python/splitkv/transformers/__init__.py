"""SplitKV as an attention of transformers.

    import splitkv.transformers

    splitkv.transformers.register()
    model = AutoModelForCausalLM.from_config(config, attn_implementation="splitkv")

Decode steps are SplitKV's; prompts go to SDPA. counters() tells how many calls went where, and why.
"""

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from splitkv._errors import InvalidArgument
from splitkv.transformers import _attention
from splitkv.transformers._attention import attention_forward
from splitkv.transformers._counters import Counters, counters, reset_counters

__all__ = ["Counters", "attention_forward", "counters", "register", "reset_counters"]

_MOST_QUERIES = 64  # of a kernel


def register(name: str = "splitkv", *, max_query_len: int = 8, batch: int = 0, kv_len: int = 0) -> None:
    """Makes SplitKV known to transformers as attn_implementation=name. May be called again, to change the settings.

    max_query_len: calls with more query tokens go to SDPA, 1 to 64. batch, kv_len: hints that choose schedules of
    kernels that are prepared from now on (rows, tokens of the longest row), never limits; 0: not known.

    Raises InvalidArgument.
    """
    if not 1 <= max_query_len <= _MOST_QUERIES:
        raise InvalidArgument(f"max_query_len is {max_query_len}; 1 to {_MOST_QUERIES} would fit")
    for field, value in (("batch", batch), ("kv_len", kv_len)):
        if value < 0:
            raise InvalidArgument(f"{field} is {value}; 0 or more would fit")
    if not name or name in ("eager", "sdpa", "flex_attention") or name.startswith(("flash_attention", "paged|")):
        raise InvalidArgument(f"name is {name!r}, which is transformers' own; 'splitkv' would fit")
    _attention.settings = _attention.Settings(max_query_len, batch, kv_len)
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, sdpa_mask)
