"""The runtime from Python: runs in this process, what a model refuses, options, and generation that goes on."""

import _thread
import dataclasses
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mobile_ft.export.bundle import write_bundle
from mobile_ft.export.source.random_init import RandomModel
from mobile_ft.model.families.traits import FULL
from mobile_ft.model.lora import LoraConfig
from mobile_ft.runtime import (
    GenerateConfig,
    Generator,
    Model,
    RuntimeFailure,
    TokenFile,
    TrainConfig,
    Trainer,
    evaluate,
    generate_options,
    run_training,
    train_options,
)
from tests.runtime.native import events
from tests.small_bundle import CONFIG
from tests.targets import ALL_LINEAR


@pytest.fixture
def data(token_file: Callable[..., Path], tmp_path: Path) -> Path:
    return token_file(tmp_path / "tokens.safetensors", 250, 32, 20)


def test_the_same_run_as_mft_run(small_bundle: Path, data: Path, tmp_path: Path) -> None:
    options = {"steps": 6, "seq_len": 32, "eval_every": 3, "schedule": "lcsb"}
    heard: list[dict[str, Any]] = []
    done = run_training(
        str(small_bundle),
        TrainConfig(**options),
        str(data),
        str(data),
        "",
        str(tmp_path / "here"),
        on_event=heard.append,
    )
    arguments = [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", value)]
    there = events("train", small_bundle, "--data", data, "--valid", data, "--out", tmp_path / "there", *arguments)
    assert [event["event"] for event in heard] == [event["event"] for event in there]
    assert heard[-1] == done
    assert {key for event in heard for key in event} == {key for event in there for key in event}
    for name in ("losses", "evals", "best_step", "backward_runs", "stored"):
        assert done[name] == there[-1][name]
    for file in ("adapter_model.safetensors", "best/adapter_model.safetensors"):
        assert (tmp_path / "here" / file).read_bytes() == (tmp_path / "there" / file).read_bytes()


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_exception_ends_the_run_saved(small_bundle: Path, data: Path, tmp_path: Path, error: type) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs start without it
    config = TrainConfig(steps=50, seq_len=32)

    def on_event(event: dict[str, Any]) -> None:
        if event.get("step") == 3 and event["event"] == "step":
            if error is KeyboardInterrupt:
                _thread.interrupt_main()  # as Ctrl-C does; it is noticed between the runtime and Python
            else:
                raise error

    with pytest.raises(error):
        run_training(str(small_bundle), config, str(data), out=str(tmp_path / "out"), on_event=on_event)
    resumed: list[dict[str, Any]] = []
    run_training(str(small_bundle), config, str(data), out=str(tmp_path / "out"), resume=True, on_event=resumed.append)
    assert resumed[0]["steps_done"] == 3
    whole: Any = run_training(str(small_bundle), config, str(data), out=str(tmp_path / "whole"))
    assert resumed[-1]["losses"] == whole["losses"]


def test_python_runs_while_the_runtime_works(small_bundle: Path, data: Path, tmp_path: Path) -> None:
    run = threading.Thread(
        target=run_training,
        args=(str(small_bundle), TrainConfig(steps=200, seq_len=32), str(data)),
        kwargs={"out": str(tmp_path / "out")},
    )
    run.start()
    ticks = 0
    while run.is_alive():
        time.sleep(0.001)
        ticks += 1
    assert ticks > 20  # of a run of half a second; a lock held throughout would leave one


def test_two_threads_take_turns(small_bundle: Path, data: Path) -> None:
    """The runtime works for one caller at a time, so two trainers at once give what each gives alone."""
    file, losses = TokenFile(str(data), 250), {}

    def train(name: str) -> None:
        trainer = Trainer(Model(str(small_bundle)), TrainConfig(steps=20, seq_len=32))
        losses[name] = [trainer.step(file)["loss"] for _ in range(20)]

    train("alone")
    threads = [threading.Thread(target=train, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert losses["one"] == losses["two"] == losses["alone"]


def test_a_model_is_one_trainers(small_bundle: Path, data: Path) -> None:
    model, config, file = Model(str(small_bundle)), TrainConfig(steps=1, seq_len=32), TokenFile(str(data), 250)
    trainer = Trainer(model, config)
    with pytest.raises(RuntimeFailure, match="a trainer already uses this model"):
        Trainer(model, config)
    trainer.step(file)
    with pytest.raises(RuntimeFailure, match="all 1 steps are done"):
        trainer.step(file)
    del trainer
    Trainer(model, config)


def test_options(small_bundle: Path) -> None:
    described = {option.name: option for option in train_options()}
    assert described["schedule"].choices[:3] == ["full", "lcsb", "suffix"]
    assert (described["lr"].type, described["lr"].group, described["lr"].default) == ("number", "run", "auto")
    assert TrainConfig().options() == {name: option.default for name, option in described.items()}
    assert {option.name for option in generate_options()} >= {"max_tokens", "temp", "top_p"}
    config = TrainConfig(lr=3e-4, suffix_depths=[1, 2], budget="1GiB", schedule="suffix")
    given = {name: text for name, text in config.options().items() if text != described[name].default}
    assert given == {"lr": "3e-04", "suffix_depths": "1,2", "budget": str(1 << 30), "schedule": "suffix"}
    for options, message in (
        ({"stepz": 1}, "unknown option stepz"),
        ({"steps": 1.5}, "steps 1.5: must be an integer"),
        ({"steps": True}, "True: must be a number or text"),
        ({"schedule": "half"}, "schedule half: must be one of full, lcsb, suffix"),
        ({"suffix_depths": ["a"]}, "suffix_depths a: must be integers separated by commas"),
    ):
        with pytest.raises(RuntimeFailure, match=message):
            TrainConfig(**options)
    with pytest.raises(RuntimeFailure, match="temp -1: must not be negative"):
        GenerateConfig(temp=-1)


@pytest.mark.parametrize(
    ("rank", "alpha", "use_rslora", "options", "lr"),
    [
        (16, 32.0, False, {}, 1e-3),
        (4, 32.0, False, {}, 1e-3),
        (16, 8.0, False, {"lr": "auto"}, 2.5e-3),
        (64, 32.0, True, {}, 2.5e-4),
        (16, 32.0, False, {"schedule": "lcsb"}, 5e-4),
        (16, 32.0, False, {"loss": "kto"}, 2e-4),
        (16, 8.0, False, {"lr": 3e-4}, 3e-4),
    ],
)
def test_the_learning_rate_of_a_bundle(
    rank: int, alpha: float, use_rslora: bool, options: dict[str, Any], lr: float, tmp_path: Path
) -> None:
    write_bundle(RandomModel(CONFIG, 0), LoraConfig(rank, alpha, ALL_LINEAR, use_rslora), 64, 0, tmp_path / "bundle")
    assert TrainConfig(**options).learning_rate(str(tmp_path / "bundle")) == lr


def test_the_learning_rate_of_a_family(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, model_type="gemma3_text", layer_types=(FULL,) * 4)
    folder = tmp_path / "bundle"
    write_bundle(RandomModel(config, 0), LoraConfig(16, 32.0, ALL_LINEAR), 64, 0, folder)
    assert TrainConfig().learning_rate(str(folder)) == 8e-4
    index = json.loads((folder / "bundle.json").read_text())
    assert index.pop("lr_factor") == 0.8
    (folder / "bundle.json").write_text(json.dumps(index))  # as older bundles, which have no factor
    assert TrainConfig().learning_rate(str(folder)) == 1e-3
    for factor in (0, -1, 1e9):
        (folder / "bundle.json").write_text(json.dumps(index | {"lr_factor": factor}))
        with pytest.raises(RuntimeFailure, match="lr_factor is "):
            TrainConfig().learning_rate(str(folder))


@pytest.mark.parametrize("compute", ["int8", "float32"])
def test_a_model_with_room_for_few_tokens_reads_a_long_prompt(compute: str, tmp_path: Path) -> None:
    """As of a trainer with short sequences; its MLP is so wide that 16 tokens need less scratch than a whole piece."""
    wide = dataclasses.replace(CONFIG, intermediate_size=8192, num_hidden_layers=1)
    write_bundle(RandomModel(wide, 0), LoraConfig(4, 8.0, ALL_LINEAR), 128, 0, tmp_path / "bundle")
    config, answers = GenerateConfig(max_tokens=4, temp=0, compute=compute), []
    for tokens in (128, 16):
        model = Model(str(tmp_path / "bundle"))
        model.prepare("", tokens)
        answers.append(Generator(model).generate([7 * i % 250 for i in range(100)], config))
    assert answers[0] == answers[1]


def test_generation_goes_on(small_bundle: Path) -> None:
    """A prompt that begins as the last one did, longer or shorter, gives what a fresh generator gives."""
    model = Model(str(small_bundle))
    model.prepare("", 64)
    config, generator = GenerateConfig(max_tokens=5, temp=1, seed=4), Generator(model)
    first = generator.generate([1, 2, 3, 4], config)
    for prompt in ([1, 2, 3, 4, *first, 7, 8], [1, 2, 9], [1, 2, 9], [5]):
        assert generator.generate(prompt, config) == Generator(model).generate(prompt, config)
    heard: list[int] = []

    def stop_at_two(token: int) -> bool:
        heard.append(token)
        return len(heard) == 2

    assert generator.generate([1, 2, 3, 4], config, stop_at_two) == heard == first[:2]
    stopped = GenerateConfig(stop_tokens=[first[3]], max_tokens=5, temp=1, seed=4)
    assert generator.generate([1, 2, 3, 4], stopped) == first[: first.index(first[3])]

    def fail(token: int) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        generator.generate([1, 2], config, fail)
    with pytest.raises(RuntimeFailure, match="token 250 is not in the vocabulary"):
        generator.generate([250], config)


def test_an_answer_whose_memory_is_missing(small_bundle: Path) -> None:
    """It leaves the generator as it was, for other answers and for the same one later."""
    resource = pytest.importorskip("resource")
    model = Model(str(small_bundle))
    model.prepare("", 64)
    prompt, small, large = list(range(40)), GenerateConfig(kv_bits=8), GenerateConfig(kv_bits=32, max_tokens=20)
    generator = Generator(model)
    before, expected = generator.generate(prompt, small), Generator(model).generate(prompt, large)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (1, limits[1]))  # nothing more can be mapped
    try:
        with pytest.raises(RuntimeFailure, match="out of memory: cannot map"):
            generator.generate(prompt, large)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert generator.generate(prompt, large) == expected
    assert generator.generate(prompt, small) == before


def test_a_long_prompt_can_be_left(smollm2: Path) -> None:
    """Between two pieces, of which what was read is kept."""
    model = Model(str(smollm2))
    model.prepare("", Generator.prompt_tokens)
    prompt = np.random.default_rng(0).integers(5, 40000, 2 * Generator.prompt_tokens - 20).tolist()
    config, generator = GenerateConfig(max_tokens=3, compute="float32"), Generator(model)
    asked: list[int] = []
    heard: list[int] = []

    def leave() -> bool:
        asked.append(len(heard))
        return True

    assert generator.generate(prompt, config, heard.append, leave) == heard == []
    assert asked == [0]
    assert generator.generate(prompt, config, on_prompt=lambda: None) == Generator(model).generate(prompt, config)

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Generator(model).generate(prompt, config, on_prompt=fail)


def test_the_adapter_can_be_off(small_bundle: Path, data: Path, tmp_path: Path) -> None:
    out, model = tmp_path / "out", Model(str(small_bundle))
    run_training(str(small_bundle), TrainConfig(steps=10, seq_len=32, lr=1e-2), str(data), out=str(out))
    (before, _), (after, _) = evaluate(model, "", str(data)), evaluate(model, str(out), str(data))
    assert after < before - 0.005
    tokens = np.arange(20)
    model.prepare(str(out), 64)
    adapted = model.logits(tokens, tokens)
    model.use_adapter(False)
    off = model.logits(tokens, tokens)
    model.prepare("", 64)
    assert np.array_equal(off, model.logits(tokens, tokens))
    assert not np.array_equal(off, adapted)
