"""Models that decode with SplitKV: tokens, logits and numbers of calls; graphs of torch.compile; the examples."""

import json
import pathlib
import re
import runpy
import sys
import warnings

import models
import pytest
import splitkv
import splitkv.transformers as attention
import torch
import torch._dynamo.testing
from transformers import AttentionInterface, StaticCache

pytestmark = pytest.mark.usefixtures("registered")
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module")
def made():
    attention.register()
    return {name: models.make(name) for name in models.MODELS}


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", models.MODELS)
def test_tokens_logits_and_calls(made, name, cache):
    model, other = made[name]
    tokens, logits = models.generate(model, "splitkv", cache == "static")
    counted = attention.counters()
    want_tokens, want_logits = models.generate(model, other, cache == "static")
    assert torch.equal(tokens, want_tokens)
    torch.testing.assert_close(logits, want_logits, **CLOSE)
    # The first token comes out of the prompt; every other one is a step of all layers.
    path = "sdpa" if other == "sdpa" else "eager"
    assert counted.splitkv == models.LAYERS * (models.STEPS - 1)
    assert getattr(counted, path) == models.LAYERS and sum(counted[:3]) == sum(counted.reasons.values())
    assert counted.reasons == {
        "splitkv: one query": models.LAYERS * (models.STEPS - 1),
        f"{path}: long query": models.LAYERS,
    }
    assert attention.counters() == counted  # the other attention called none of ours


@pytest.mark.parametrize("chunk", [1, 3])
@pytest.mark.parametrize("name", models.MODELS)
def test_logits_of_given_tokens(made, name, chunk):
    model, other = made[name]
    logits = models.forced_logits(model, "splitkv", chunk)
    steps = -(-8 // chunk)
    assert attention.counters().splitkv == models.LAYERS * steps
    torch.testing.assert_close(logits, models.forced_logits(model, other, chunk), **CLOSE)
    torch.testing.assert_close(logits, models.forced_logits(model, other, 20), **CLOSE)


def wrong(plant):
    """SplitKV with an error: another scaling, no mask, or an option that is lost."""

    def forward(module, query, key, value, mask, **options):
        if plant == "scaling":
            options["scaling"] *= 1.02
        elif plant == "mask":
            mask = options["sliding_window"] = None
        else:
            assert options.pop(plant) is not None
        return attention.attention_forward(module, query, key, value, mask, **options)

    return forward


@pytest.mark.parametrize(
    "name, plant",
    [("llama", "scaling"), ("llama", "mask"), ("mistral", "mask"), ("gemma2", "softcap"), ("gpt_oss", "s_aux")],
)
def test_a_planted_error_is_noticed(made, name, plant):
    """Each option matters to the logits far more than the tests let pass."""
    model, other = made[name]
    AttentionInterface.register("splitkv", wrong(plant))
    _, logits = models.generate(model, "splitkv")
    _, want = models.generate(model, other)
    assert not torch.allclose(logits, want, **CLOSE)
    assert (logits[1] - want[1]).abs().max() > 1e-2  # the first step, before tokens differ


def test_dropout_of_a_model_in_training(made):
    model, _ = made["llama"]
    model.set_attn_implementation("splitkv")
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.1
    try:
        model.train()
        with pytest.raises(splitkv.InvalidArgument, match="dropout is 0.1"):
            model(models.prompts()[0])
    finally:
        model.eval()
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.0
    model(models.prompts()[0])


@pytest.mark.parametrize("name", ["llama", "gpt_oss"])
def test_compiled_steps_of_a_static_cache(made, name):
    model, other = made[name]
    ids, mask = models.prompts()
    word = models.cache_word(model)
    found = {}
    for implementation in ("splitkv", other):
        model.set_attn_implementation(implementation)
        cache = StaticCache(config=model.config, max_cache_len=32)
        step = model
        if implementation == "splitkv":
            torch._dynamo.reset()
            graphs = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
            step = torch.compile(model.forward, fullgraph=True, backend=graphs)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logits = [model(ids, attention_mask=mask, use_cache=True, **{word: cache}).logits[:, -1:]]
            for i in range(4):
                seen = torch.zeros(3, 32, dtype=torch.long)
                seen[:, :20], seen[:, 20 : 21 + i] = mask, 1
                places = torch.full((3, 1), 20 + i)
                out = step(input_ids=logits[-1].argmax(-1), attention_mask=seen, position_ids=places, **{word: cache})
                logits.append(out.logits)
        found[implementation] = torch.cat(logits)
    torch.testing.assert_close(found["splitkv"], found[other], **CLOSE)
    assert attention.counters().splitkv == models.LAYERS * 4
    # The length of a sliding layer's cache is a number, which torch takes as one that varies at its second value.
    assert graphs.frame_count == (1 if name == "llama" else 2)


def test_the_example_of_the_documents():
    page = (pathlib.Path(__file__).parents[2] / "docs" / "transformers.md").read_text()
    names = {}
    exec(re.search(r"```python\n(.*?)```", page, re.S).group(1), names)
    assert names["tokens"].shape == (2, 23)
    assert names["counters"].reasons == {"sdpa: long query": 2, "splitkv: one query": 14}


EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "pytorch"


def run_example(monkeypatch, name, *arguments):
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return end.value.code


def test_the_example_of_a_model(monkeypatch, tmp_path, capsys):
    few = ["--small", "--context", "40", "--steps", "4", "--device", "cpu", "--json", str(tmp_path / "out.json")]
    for cache in ("static", "dynamic"):
        assert run_example(monkeypatch, "llama_shaped.py", *few, "--cache", cache) == 0
        report = json.loads((tmp_path / "out.json").read_text())
        assert report["passed"] and report["results"][0]["calls"]["splitkv"] == 2 * 7
        assert [result["attention"] for result in report["results"]] == ["splitkv", "sdpa"]
    assert "| splitkv |" in capsys.readouterr().out
    assert run_example(monkeypatch, "llama_shaped.py", *few, "--tolerance", "1e-12") == 1


def test_the_example_of_a_layer(monkeypatch, capsys):
    assert run_example(monkeypatch, "decode_layer.py", "--backend", "aot_eager", "--steps", "6") == 0
    assert capsys.readouterr().out.count("agrees with SDPA") == 2


@pytest.mark.parametrize("name", attention.__all__)
def test_everything_public_is_documented(name):
    thing = getattr(attention, name)
    assert thing.__doc__ and len(thing.__doc__) > 30
