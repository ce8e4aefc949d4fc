"""Models by their name, from a hub on this machine."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mobile_ft import export_bundle
from mobile_ft.api.checkpoint import open_checkpoint
from mobile_ft.api.hub import find_model, find_model_to_plan
from mobile_ft.errors import UserError
from mobile_ft.export.source.safetensors_files import model_tensors
from mobile_ft.model.hub_cache import cached_repository
from tests.local_hub import COMMIT, Hub, serve
from tests.mobile_ft.conftest import Cli

constants = pytest.importorskip("huggingface_hub.constants")

CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 288,
    "max_position_embeddings": 128,
    "tie_word_embeddings": True,
}
READ = ["config.json", "generation_config.json", "chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]
UNREAD = ["README.md", "pytorch_model.bin", "model.pth", "model.gguf", "onnx/model.onnx", "tokenizer.model"]
UNREAD += ["onnx/config.json", "consolidated.safetensors", "original/model.safetensors"]


def files(*names: str) -> dict[str, bytes]:
    return {name: json.dumps(CONFIG).encode() if name == "config.json" else name.encode() for name in names}


def weights() -> bytes:
    """Random ones for CONFIG."""
    import torch
    from safetensors.torch import save

    shapes = {"self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64)}
    shapes |= {"self_attn.o_proj": (64, 64), "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64)}
    shapes |= {"mlp.down_proj": (64, 128)}
    tensors = {f"model.layers.0.{name}.weight": torch.randn(shape) for name, shape in shapes.items()}
    norms = ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm")
    tensors |= {f"{name}.weight": torch.ones(64) for name in norms}
    return save(tensors | {"model.embed_tokens.weight": torch.randn(288, 64)})


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Hub]]:
    """Starts the hub; huggingface_hub, which reads the environment once, is told of it."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def start(models: dict[str, dict[str, bytes]], **more: Any) -> Hub:
            hub = stack.enter_context(serve(Hub(models, **more)))
            for name, value in {
                "ENDPOINT": hub.endpoint,
                "HUGGINGFACE_CO_URL_TEMPLATE": hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}",
                "HF_HUB_CACHE": str(tmp_path / "cache"),
                "HF_TOKEN_PATH": str(tmp_path / "token"),
                "HF_HUB_OFFLINE": False,
            }.items():
                monkeypatch.setattr(constants, name, value)
            monkeypatch.setenv("NO_PROXY", "127.0.0.1")
            monkeypatch.delenv("HF_TOKEN", raising=False)
            monkeypatch.delenv("HUGGING_FACE_HUB_TOKEN", raising=False)
            return hub

        yield start


def refusal(name: str) -> str:
    with pytest.raises(UserError) as error:
        find_model(name)
    return str(error.value)


def test_only_what_an_export_reads_is_downloaded(serving: Callable[..., Hub]) -> None:
    hub = serving({"tiny/llama": files(*READ, *UNREAD, "model.safetensors")})
    folder = find_model("tiny/llama")
    assert hub.downloaded() == sorted([*READ, "model.safetensors"])
    assert sorted(path.name for path in folder.iterdir()) == hub.downloaded()
    assert cached_repository(folder) == "tiny/llama" == cached_repository(folder / "config.json")
    hub.requests.clear()
    assert find_model("tiny/llama", progress=False) == folder and not hub.downloaded()


def test_shards_are_those_of_the_index(serving: Callable[..., Hub]) -> None:
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors", "c": "*", "d": "../x.safetensors"}}
    model = files(*READ, "model-1.safetensors", "model-2.safetensors", "model-3.safetensors", "model.safetensors")
    model |= {"model.safetensors.index.json": json.dumps(index).encode()}
    hub = serving({"tiny/llama": model})
    find_model("tiny/llama")
    shards = [name for name in hub.downloaded() if name.endswith(".safetensors")]
    assert shards == ["model-1.safetensors", "model-2.safetensors"]


def test_a_plan_needs_no_weights(serving: Callable[..., Hub]) -> None:
    quantized = files("config.json", "model.safetensors", "tokenizer.json")
    quantized["config.json"] = json.dumps(CONFIG | {"quantization_config": {"quant_method": "awq"}}).encode()
    hub = serving({"tiny/llama": files(*READ, "model.safetensors"), "tiny/awq": quantized})
    assert find_model_to_plan("tiny/llama").name == "config.json"
    assert hub.downloaded() == ["config.json"]
    hub.requests.clear()
    assert (find_model_to_plan("tiny/awq") / "model.safetensors").is_file()
    assert "model.safetensors" in hub.downloaded()


def test_a_gguf_file(serving: Callable[..., Hub]) -> None:
    parts = [f"q4/m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    hub = serving(
        {"tiny/gguf": files("config.json", "m-Q4_0.gguf", "m-Q8_0.gguf", *parts)}, revisions=("main", "v1", COMMIT)
    )
    assert find_model("tiny/gguf/m-Q4_0.gguf@v1").read_bytes() == b"m-Q4_0.gguf"
    assert hub.downloaded() == ["m-Q4_0.gguf"]
    hub.requests.clear()
    assert find_model(f"tiny/gguf/{parts[1]}").name == "m-00002-of-00003.gguf"
    assert hub.downloaded() == parts
    listed = "(it has m-Q4_0.gguf, m-Q8_0.gguf, q4/m-00001-of-00003.gguf)"
    message = "GGUF files; name one of them, for example tiny/gguf/m-Q4_0.gguf"
    assert refusal("tiny/gguf") == f"tiny/gguf: tiny/gguf has no model.safetensors, only {message} {listed}"
    assert refusal("tiny/gguf/q5.gguf@v1").endswith(f"has no q5.gguf, only {message}@v1 {listed}")


def test_a_repository_without_weights(serving: Callable[..., Hub]) -> None:
    serving({"tiny/pickle": files("config.json", "pytorch_model.bin"), "tiny/data": files("README.md")})
    assert "has no model.safetensors, nor a GGUF file (it has config.json, pytorch_model.bin)" in refusal("tiny/pickle")
    assert "has no config.json, nor a GGUF file (it has README.md)" in refusal("tiny/data")


def test_a_download_that_breaks_off_goes_on(serving: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 100_000)  # what comes is written in pieces of that size
    content = bytes(range(256)) * 8192
    model = files(*READ) | {"model.safetensors": content}
    hub = serving({"tiny/llama": model}, cut={"model.safetensors": 1_000_000})
    folder = find_model("tiny/llama", progress=False)
    assert (folder / "model.safetensors").read_bytes() == content
    ranges = [r for method, path, r in hub.requests if method == "GET" and path.endswith("/model.safetensors")]
    assert ranges == [None, "bytes=1000000-"]


def test_a_private_model_needs_the_token(serving: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    serving({"tiny/own": files(*READ, "model.safetensors")}, private={"tiny/own"})
    assert "the hub denies access to tiny/own (status 401); log in with `hf auth login`" in refusal("tiny/own")
    monkeypatch.setenv("HF_TOKEN", "wrong")
    assert "the hub denies access to tiny/own (status 403)" in refusal("tiny/own")
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert find_model("tiny/own").is_dir()


def test_not_found(serving: Callable[..., Hub]) -> None:
    hub = serving({"tiny/llama": files(*READ, "model.safetensors")})
    message = refusal("tiny/lama")
    assert "no such file, folder or built-in model" in message
    assert f"{hub.endpoint} has no model tiny/lama, or it is private" in message
    assert refusal("tiny/llama@v2") == "tiny/llama@v2: tiny/llama has no branch, tag or commit v2"


def test_without_a_network(serving: Callable[..., Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    serving({"tiny/llama": files(*READ, "model.safetensors")})
    folder = find_model("tiny/llama")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_model("tiny/llama") == folder
    message = refusal("tiny/other")
    assert "no such file, folder or built-in model" in message
    assert "offline mode is enabled" in message and "`hf download tiny/other`" in message
    assert "`hf download tiny/x y.gguf --revision v1`" in refusal("tiny/x/y.gguf@v1")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "cannot download tiny/other from http://127.0.0.1:9" in refusal("tiny/other")


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    message = refusal("tiny/llama")
    assert "`pip install mobile-ft[hub]`" in message and "`hf download tiny/llama`" in message


@pytest.mark.parametrize(
    "name", ["gpt2", "/tiny/llama", "./tiny/llama", "../tiny/llama", "a/b/c", "tiny/m.gguf", "tiny/config.json", "~/a"]
)
def test_what_is_no_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert find_model(name) == Path(name)


def test_a_folder_that_is_there_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    (tmp_path / "tiny" / "llama").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert find_model("tiny/llama") == Path("tiny/llama")
    assert cached_repository(Path("tiny/llama")) is None


def test_links_within_the_cache_are_followed(tmp_path: Path) -> None:
    """To blobs of the model, or through those to blobs that all models share, as the library's versions from 2 on."""
    snapshot = tmp_path / "models--tiny--llama" / "snapshots" / COMMIT
    for folder in (
        snapshot,
        tmp_path / "blobs" / "ab",
        snapshot.parent.parent / "blobs",
        tmp_path / "elsewhere" / "ab",
    ):
        folder.mkdir(parents=True)
    file, blob = snapshot / "model.safetensors", snapshot.parent.parent / "blobs" / "abcd"
    file.symlink_to("../../blobs/abcd")
    blob.write_bytes(weights())
    assert "model.norm.weight" in model_tensors(snapshot).names
    blob.rename(tmp_path / "blobs" / "ab" / "abcd")
    blob.symlink_to("../../blobs/ab/abcd")
    assert "model.norm.weight" in model_tensors(snapshot).names
    (tmp_path / "blobs" / "ab" / "abcd").rename(tmp_path / "elsewhere" / "ab" / "abcd")
    blob.unlink()
    blob.symlink_to("../../elsewhere/ab/abcd")
    with pytest.raises(UserError, match="a link to .*elsewhere/ab/abcd, which is outside of the folder"):
        model_tensors(snapshot)


def test_a_checkpoint_has_its_name(serving: Callable[..., Hub]) -> None:
    hub = serving({"tiny/llama": files("config.json") | {"model.safetensors": weights()}})
    source = open_checkpoint("tiny/llama")
    assert source.config.name == "tiny/llama"
    assert source.vector("model.norm.weight", 64).tolist() == [1] * 64
    hub.requests.clear()
    assert open_checkpoint("tiny/llama", random_init=True).config.hidden_size == 64
    assert not hub.downloaded()


@pytest.mark.slow
def test_commands_take_a_name(
    serving: Callable[..., Hub],
    tiny_bundle: Callable[..., Path],
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """`plan` and `info` here; `export` in a process of its own, told of the hub as users do."""
    model = {path.name: path.read_bytes() for path in tiny_bundle("tokenizer").iterdir()}
    model |= files("config.json") | {"model.safetensors": weights()}
    hub = serving({"tiny/llama": model})
    planned = cli("plan", "tiny/llama", "--seq-len", 64)
    assert planned.code == 0 and "Memory of a full step" in planned.out
    assert hub.downloaded() == ["config.json"]
    described = cli("info", "tiny/llama", "--json", tmp_path / "info.json")
    assert described.code == 0 and json.loads((tmp_path / "info.json").read_text())["checkpoint"] == "tiny/llama"
    hub.requests.clear()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_ENDPOINT": hub.endpoint, "HF_HOME": str(tmp_path / "home")}
    command: list[str | Path] = ["export", "tiny/llama", "-o", tmp_path / "out.bundle", "--lora-rank", "4"]
    result = subprocess.run(
        [sys.executable, "-m", "mobile_ft.cli.main", *command], capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr
    assert sorted(hub.downloaded()) == sorted(model)
    description = json.loads((tmp_path / "out.bundle" / "bundle.json").read_text())
    assert description["model"]["name"] == "tiny/llama"
    adapter = json.loads((tmp_path / "out.bundle" / "adapter_config.json").read_text())
    assert adapter["base_model_name_or_path"] == "tiny/llama"
    assert (tmp_path / "home" / "hub" / "models--tiny--llama").is_dir()


def test_refused_by_commands(serving: Callable[..., Hub], cli: Cli, tmp_path: Path) -> None:
    serving({})
    for command in (["export", "tiny/llama", "-o", tmp_path / "out"], ["info", "tiny/llama"], ["plan", "tiny/llama"]):
        result = cli(*command)
        assert result.code == 1 and result.err.count("\n") == 1
        assert "has no model tiny/llama" in result.err
    with pytest.raises(UserError, match="has no model tiny/llama"):
        export_bundle("tiny/llama", tmp_path / "out")
