"""The program of a bundle, and the description of its methods in bundle.json."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mobile_ft.model.config import ModelConfig
from mobile_ft.model.unit_spec import UnitSpec

# Methods without attention take at most this many tokens per call, and the runtime calls them several times, so that
# their memory does not grow with the sequence. The head's kernel processes as many rows in one pass over the
# vocabulary. An MLP can be called with fewer tokens, which saves memory but decodes its weights more often; the plan
# decides.
HEAD_TOKENS = 256
MLP_TOKENS = 256


@dataclass(frozen=True)
class ProgramSpec:
    """All inputs that determine a program."""

    config: ModelConfig
    units: tuple[UnitSpec, ...]  # one per kind
    embed_format: str
    head_format: str
    max_seq_len: int
    per_layer_formats: tuple[str, str] | None = None  # of the table of per-layer embeddings, and of the linear layer


@dataclass(frozen=True)
class KindMethods:
    """The description of the methods of a kind of units for the runtime."""

    tokens: int  # maximum number of tokens
    saved: list[dict[str, Any]]  # saved inputs of `<kind>_backward`: shape (-1: tokens), dtype, stored dtype
    reads_x: bool  # whether `<kind>_backward` also needs the unit's input


@dataclass(frozen=True)
class Program:
    data: bytes  # program.pte
    kinds: dict[str, KindMethods]
    head_tokens: int  # maximum number of tokens of the head's methods


def program_spec(
    config: ModelConfig,
    specs: Iterable[UnitSpec],
    embed_format: str,
    head_format: str,
    max_seq_len: int,
    per_layer_formats: tuple[str, str] | None = None,
) -> ProgramSpec:
    """Returns the program of these units. `specs` may have several units of a kind."""
    units = tuple({spec.kind: spec for spec in specs}.values())
    return ProgramSpec(config, units, embed_format, head_format, max_seq_len, per_layer_formats)
