import ctypes
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mobile_ft
from mobile_ft.api.options import runtime_errors
from mobile_ft.runtime import GenerateConfig

ANSWER = "4, sir"


@pytest.fixture
def model(bundle: Path, data: Path, tmp_path: Path) -> mobile_ft.LoadedModel:
    """With an adapter that knows the one dialogue of `data` by heart."""
    out = tmp_path / "adapter"
    mobile_ft.train(bundle, data, out, progress=False, steps=200, seq_len=64, lr=2e-2)
    return mobile_ft.load(bundle, adapter=out)


def test_answers_and_what_ends_them(model: mobile_ft.LoadedModel) -> None:
    result = model.generate("2+2?")
    assert (result.text, result.stopped, result.tokens) == (ANSWER, "stop", len(ANSWER))
    assert result.prompt_tokens == len(
        model.tokenizer.encode(
            model.tokenizer.render_chat([{"role": "user", "content": "2+2?"}], add_generation_prompt=True)
        )
    )
    short = model.generate("2+2?", max_tokens=2)
    assert (short.text, short.stopped, short.tokens) == ("4,", "length", 2)
    for stop, text in ((["sir", "x"], "4, "), ("i", "4, s"), (["ir", ", s"], "4"), (ANSWER, ""), (["?"], ANSWER)):
        result = model.generate("2+2?", stop=stop)
        assert (result.text, result.stopped) == (text, "stop"), stop
    assert model.generate("2+2?", stop=model.tokenizer.encode(",")).text == "4"
    assert model.generate("2+2?", stop="<|im_start|>").text == ANSWER


def test_stream_gives_the_same_piece_by_piece(model: mobile_ft.LoadedModel) -> None:
    assert list(model.stream("2+2?")) == list(ANSWER)
    assert "".join(model.stream("2+2?", stop=["sir"])) == "4, "
    before = threading.active_count()
    for piece in model.stream("2+2?"):
        assert piece == "4"
        break
    assert model.generate("2+2?").text == ANSWER
    assert threading.active_count() == before
    with pytest.raises(mobile_ft.UserError, match="temp -1: must not be negative"):
        list(model.stream("2+2?", temp=-1))


def test_busy_while_another_thread_asks(model: mobile_ft.LoadedModel, bundle: Path) -> None:
    other = mobile_ft.load(bundle)
    alone = other.generate("2+2?", max_tokens=10).text
    pieces = model.stream("2+2?")
    answers: list[str] = []
    refused: list[BaseException] = []

    def ask_meanwhile(token: int) -> bool:
        for call in (lambda: model.generate("2+2?"), lambda: model.use_adapter(None)):
            try:
                call()
            except BaseException as error:
                refused.append(error)
        answers.append(other.generate("2+2?", max_tokens=10).text)
        return True

    with runtime_errors():
        model._generator.generate([1, 2], GenerateConfig(), lambda token: in_thread(lambda: ask_meanwhile(token)))
    assert [type(error) for error in refused] == [mobile_ft.BusyError] * 2
    assert "another call is computing on this model" in str(refused[0])
    assert answers == [alone]
    assert "".join(pieces) == ANSWER


def in_thread(work: Callable[[], bool]) -> bool:
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def test_with_and_without_the_adapter(model: mobile_ft.LoadedModel, bundle: Path, tmp_path: Path) -> None:
    bare = mobile_ft.generate(bundle, "2+2?", max_tokens=10).text
    assert bare != ANSWER
    model.use_adapter(None)
    assert model.generate("2+2?", max_tokens=10).text == bare
    model.use_adapter(tmp_path / "adapter")
    assert model.generate("2+2?", max_tokens=10).text == ANSWER
    with pytest.raises(mobile_ft.UserError, match="absent"):
        model.use_adapter(tmp_path / "absent")
    assert model.generate("2+2?", max_tokens=10).text == ANSWER
    model.use_adapter(bundle)
    assert model.generate("2+2?", max_tokens=10).text == bare
    model.use_adapter(tmp_path / "adapter")
    assert mobile_ft.generate(model, "2+2?").text == ANSWER
    with pytest.raises(ValueError, match="already loaded"):
        mobile_ft.generate(model, "2+2?", adapter="x")


@pytest.mark.skipif(sys.platform != "linux", reason="inotify tells which files are opened")
def test_the_first_adapter_stays_in_memory(model: mobile_ft.LoadedModel, tmp_path: Path) -> None:
    libc, of_open = ctypes.CDLL(None), 0x20
    opened = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(opened, bytes(tmp_path / "adapter" / "adapter_model.safetensors"), of_open) >= 0
    try:
        model.use_adapter(None)
        model.use_adapter(tmp_path / "adapter")
        with pytest.raises(BlockingIOError):  # no event
            os.read(opened, 1024)
        mobile_ft.load(model.bundle.folder, tmp_path / "adapter")
        assert os.read(opened, 1024)
    finally:
        os.close(opened)


def test_chat_and_system_prompt(model: mobile_ft.LoadedModel, tmp_path: Path) -> None:
    user = {"role": "user", "content": "2+2?"}
    assert mobile_ft.chat(model, [user]).text == ANSWER
    told = model.chat([{"role": "system", "content": "Be"}, user], max_tokens=5)
    assert model.generate("2+2?", system="Be", max_tokens=5).text == told.text
    assert told.prompt_tokens > model.chat([user]).prompt_tokens
    more = [user, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "?"}]
    going_on = model.chat(more, max_tokens=4).text  # on top of what was read for the last answers
    assert mobile_ft.load(model.bundle.folder, adapter=None) is not model
    model.use_adapter(None)  # forgets it
    model.use_adapter(tmp_path / "adapter")
    assert model.chat(more, max_tokens=4).text == going_on


def test_sampling_repeats_with_its_seed(model: mobile_ft.LoadedModel) -> None:
    texts = [model.generate("Hi", temp=2, seed=seed, max_tokens=12).text for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"prompt": "x" * 60}, r"the prompt has \d+ tokens; the bundle's maximum is 64 including the answer"),
        ({"prompt": "\udcff"}, "prompt: not UTF-8 text"),
        ({"prompt": "x", "temp": -1}, "temp -1: must not be negative"),
        ({"prompt": "x", "temperature": 1}, r"temperature: unknown option; did you mean temp"),
        ({"prompt": "x", "top_p": 0}, "top_p 0: must be"),
        ({"prompt": "x", "stop": 288}, "stop 288: must be text or a token id from 0 to 287"),
        ({"prompt": "x", "stop": ["a", -1]}, "stop -1: must be text or a token id from 0 to 287"),
        ({"prompt": "x", "stop": True}, "stop True: must be text or a token id from 0 to 287"),
        ({"prompt": "x", "stop": ["a", 1.0]}, r"stop 1\.0: must be text or a token id from 0 to 287"),
        ({"prompt": "x", "stop": "<|im_end|>x"}, r"stop '<\|im_end\|>x': has the special token <\|im_end\|>, which"),
    ],
)
def test_bad_values(bundle: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(mobile_ft.UserError, match=message):
        mobile_ft.load(bundle).generate(**given)


def test_bundles_without_tokenizer_and_adapters_that_do_not_fit(bare_bundle: Path, bundle: Path) -> None:
    with pytest.raises(mobile_ft.UserError, match="no tokenizer"):
        mobile_ft.load(bare_bundle)
    with pytest.raises(mobile_ft.UserError, match="nowhere/adapter_config.json"):
        mobile_ft.load(bundle, adapter="nowhere")
