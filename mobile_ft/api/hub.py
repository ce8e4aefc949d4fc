"""Downloads models from the Hugging Face hub into its cache. Imports huggingface_hub only for a model's name."""

import glob
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from mobile_ft.errors import UserError
from mobile_ft.files.json_text import read_json_object

# owner/name, or owner/name/file.gguf for a GGUF file; @revision may follow.
_NAME = re.compile(
    r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(/(?P<file>[^@]+\.gguf))?(@(?P<revision>[^@\s]+))?", re.ASCII
)
_PATHS = (
    ".gguf",
    ".json",
    ".safetensors",
    ".bundle",
)  # a name with one of these endings is a path, even if it looks like owner/name

_CONFIG, _INDEX, _WEIGHTS = "config.json", "model.safetensors.index.json", "model.safetensors"
_OLD_GPTQ = "quantize_config.json"
_SMALL = (
    _CONFIG,
    _OLD_GPTQ,
    _INDEX,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "chat_template.json",
)
_SHARD = re.compile(r"[\w.-]+\.safetensors", re.ASCII)
_PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")  # llama.cpp's names for the parts of a split file
_MOST_LISTED = 12
_MOST_PARTS = 999


@dataclass(frozen=True)
class _Wanted:
    given: str  # as the user wrote it
    repo: str
    file: str | None
    revision: str | None

    @property
    def command(self) -> str:
        """Returns the command that downloads the model without this program."""
        parts = ["hf download", self.repo, self.file, self.revision and f"--revision {self.revision}"]
        return f"`{' '.join(part for part in parts if part)}`"


def find_model(model: str | os.PathLike[str], config_only: bool = False, progress: bool = True) -> Path:
    """Returns the path of a model. A model with a name on the hub (owner/name) is downloaded first.

    Only the files that an export reads are downloaded. With `config_only`, only config.json is downloaded, and its path
    is returned. Anything that is neither an existing path nor a name on the hub is returned unchanged. Raises UserError
    if a model cannot be downloaded.
    """
    given = os.fspath(model)
    match = _NAME.fullmatch(given)
    if match is None or os.path.lexists(given) or (match["file"] is None and match["repo"].endswith(_PATHS)):
        return Path(given)
    wanted = _Wanted(given, match["repo"], match["file"], match["revision"])
    with _refusals(wanted), _bars(progress):
        if wanted.file is not None:
            return _download_gguf(wanted, wanted.file)
        folder = _download(wanted, [_CONFIG, _OLD_GPTQ] if config_only else _SMALL)
        if not (folder / _CONFIG).is_file():
            raise _without_weights(wanted, folder)
        if config_only:
            return folder / _CONFIG
        _download(wanted, _weights_files(folder), folder)
        if not any((folder / name).is_file() for name in (_INDEX, _WEIGHTS)):
            raise _without_weights(wanted, folder)
        return folder


def find_model_to_plan(model: str | os.PathLike[str]) -> Path:
    """Like `find_model`, but downloads only config.json, unless the model is quantized: its formats are in its
    weights."""
    path = find_model(model, config_only=True)
    if path == Path(model) or path.name != _CONFIG or not _is_quantized(path.parent):
        return path
    return find_model(model)


def _is_quantized(folder: Path) -> bool:
    values = read_json_object(folder / _CONFIG, "use a Hugging Face config.json")
    return (folder / _OLD_GPTQ).is_file() or any(values.get(key) for key in ("quantization_config", "quantization"))


def _weights_files(folder: Path) -> list[str]:
    """Returns the file names in the index. (The reader of the index rejects names that are invalid.)"""
    if not (folder / _INDEX).is_file():
        return [_WEIGHTS]
    files = read_json_object(folder / _INDEX, "use one written by save_pretrained").get("weight_map")
    names = files.values() if isinstance(files, dict) else ()
    return sorted({name for name in names if isinstance(name, str) and _SHARD.fullmatch(name)})


def _download_gguf(wanted: _Wanted, file: str) -> Path:
    part = _PART.fullmatch(file)
    count = 0 if part is None else min(int(part[2]), _MOST_PARTS)
    files = [file] if part is None else [f"{part[1]}-{i:05}-of-{part[2]}.gguf" for i in range(1, count + 1)]
    folder = _download(wanted, files)
    if not (folder / file).is_file():
        raise _without_weights(wanted, folder)
    return folder / file


def _download(wanted: _Wanted, files: list[str] | tuple[str, ...], folder: Path | None = None) -> Path:
    """Downloads those of `files` that exist. If `folder` is given, uses the commit of that folder."""
    from huggingface_hub import snapshot_download

    revision = wanted.revision if folder is None else folder.name
    if not files:
        return folder or Path()
    return Path(snapshot_download(wanted.repo, revision=revision, allow_patterns=[glob.escape(f) for f in files]))


def _without_weights(wanted: _Wanted, folder: Path) -> UserError:
    from huggingface_hub import HfApi

    files = HfApi().list_repo_files(wanted.repo, revision=folder.name)
    ggufs = [f for f in files if f.endswith(".gguf") and ("-of-" not in f or "-00001-of-" in f)]
    if ggufs:
        missing = wanted.file or _WEIGHTS
        example = f"{wanted.repo}/{ggufs[0]}" + (f"@{wanted.revision}" if wanted.revision else "")
        return UserError(
            f"{wanted.given}: {wanted.repo} has no {missing}, only GGUF files; name one of them, for example {example} "
            f"(it has {_listed(ggufs)})"
        )
    missing = wanted.file or (_WEIGHTS if (folder / _CONFIG).is_file() else _CONFIG)
    return UserError(f"{wanted.given}: {wanted.repo} has no {missing}, nor a GGUF file (it has {_listed(files)})")


def _listed(names: list[str]) -> str:
    more = len(names) - _MOST_LISTED
    return ", ".join(names[:_MOST_LISTED]) + (f" and {more} more" if more > 0 else "") if names else "no files"


@contextmanager
def _bars(shown: bool) -> Iterator[None]:
    """Shows huggingface_hub's progress bars if `shown`, and hides its warnings, such as those for optional files."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars, logging

    hide, verbosity = not shown and not are_progress_bars_disabled(), logging.get_verbosity()
    logging.set_verbosity_error()
    if hide:
        disable_progress_bars()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if hide:
            enable_progress_bars()


@contextmanager
def _refusals(wanted: _Wanted) -> Iterator[None]:
    """Turns errors of a download in the block into a UserError that names the model."""
    nowhere = f"{wanted.given}: no such file, folder or built-in model"
    try:
        from huggingface_hub import constants, errors
    except ImportError:
        raise UserError(
            f"{nowhere}; to download {wanted.repo} from the hub, run `pip install mobile-ft[hub]`; or run "
            f"{wanted.command} and use the folder that it prints"
        ) from None
    log_in = "log in with `hf auth login` or set HF_TOKEN"
    try:
        yield
    except UserError:
        raise
    except errors.GatedRepoError:
        raise UserError(
            f"{wanted.given}: {wanted.repo} is a gated model; request access on its page on the hub and {log_in}"
        ) from None
    except errors.RepositoryNotFoundError:
        raise UserError(
            f"{nowhere}; {constants.ENDPOINT} has no model {wanted.repo}, or it is private; check the name, or {log_in}"
        ) from None
    except errors.RevisionNotFoundError:
        raise UserError(f"{wanted.given}: {wanted.repo} has no branch, tag or commit {wanted.revision}") from None
    except Exception as error:  # its own, of one of several HTTP libraries, or the disk's
        cause = error.__cause__ if isinstance(error, errors.LocalEntryNotFoundError) else None
        status = getattr(getattr(cause or error, "response", None), "status_code", None)
        if status in (401, 403):
            raise UserError(
                f"{wanted.given}: the hub denies access to {wanted.repo} (status {status}); {log_in}, with a token "
                "that can read it"
            ) from None
        reason = str(cause or error).strip().splitlines() or [type(error).__name__]
        raise UserError(
            f"{nowhere}; cannot download {wanted.repo} from {constants.ENDPOINT} ({reason[0]}); try again, or run "
            f"{wanted.command} on a machine with a network and use the folder that it prints"
        ) from None
