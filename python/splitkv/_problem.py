"""The text form of a problem, from keywords, and what calls must know of it."""

from typing import Any, Dict, NamedTuple, Optional, Tuple

from splitkv._errors import InvalidArgument


def _word(key: str, value: Any) -> str:
    if isinstance(value, bool):
        text = "on" if value else "off"
    elif isinstance(value, dict):
        text = ",".join(f"{name}:{scope}" for name, scope in value.items())
    elif isinstance(value, (tuple, list)):
        text = ("/" if key in ("heads", "dim") else ":").join(str(part) for part in value)
    elif isinstance(value, float):
        text = repr(value)
    else:
        text = str(value)
    if key in ("score", "where"):
        text = "".join(text.split())
    if not text or any(c.isspace() for c in text):
        raise InvalidArgument(f"{key}={text!r} is empty or has spaces; one word would fit")
    return f"{key}={text}"


def problem_text(problem: Optional[str] = None, **words: Any) -> str:
    """The text form of a problem.

    problem: words that are there already, "attention q=bf16 heads=32/8 dim=128".
    words: further ones: heads=(32, 8) or "32/8" (query heads / kv heads), dim=128 or (192, 128),
        kv_layout=("paged", 16, "nhd") or "paged:16:nhd", params={"slope": "head"}, ragged=True, score=and where=
        with or without spaces; None leaves a word out. The words are those of the library
        (`splitkv.h`, docs/design.md).

    Raises InvalidArgument where a value is empty or has spaces. What a word may say is the library's to
    judge, at prepare or supports.

    >>> problem_text(q="bf16", heads=(32, 8), dim=128, lse="natural")
    'attention q=bf16 heads=32/8 dim=128 lse=natural'
    """
    texts = [problem.strip()] if problem is not None else ["attention"]
    texts += [_word(key, value) for key, value in words.items() if value is not None]
    return " ".join(text for text in texts if text)


class Shapes(NamedTuple):
    """What is put out for a canonical problem text."""

    q_heads: int
    kv_heads: int
    dim_v: int
    query_len: int
    ragged: bool
    paged: bool
    out: str  # dtype: "fp32", "fp16", "bf16"
    lse: bool
    partial_l: bool
    params: Tuple[str, ...]


def _pair(text: str) -> Tuple[int, int]:
    first, _, second = text.partition("/")
    return int(first), int(second or first)


def shapes_of(problem: str) -> Shapes:
    """Reads a canonical problem text, as kernel.problem has it."""
    words: Dict[str, str] = dict(word.split("=", 1) for word in problem.split() if "=" in word)
    q_heads, kv_heads = _pair(words["heads"])
    partial = words.get("out") == "partial"
    params = words.get("params", "")
    return Shapes(
        q_heads=q_heads,
        kv_heads=kv_heads,
        dim_v=_pair(words["dim"])[1],
        query_len=int(words.get("query_len", "1")),
        ragged=words.get("ragged") == "on",
        paged=words.get("kv_layout", "").startswith("paged:"),
        out="fp32" if partial else words.get("out", words["q"]),
        lse=partial or words.get("lse", "none") != "none",
        partial_l=partial and words.get("merge") == "mlo",
        params=tuple(one.split(":")[0] for one in params.split(",") if one),
    )
