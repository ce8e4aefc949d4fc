"""The program of a bundle, and what bundle.json says of its methods."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mobile_ft.model.config import ModelConfig
from mobile_ft.model.unit_spec import UnitSpec


@dataclass(frozen=True)
class ProgramSpec:
    """All that decides a program."""

    config: ModelConfig
    units: tuple[UnitSpec, ...]  # one of each kind
    embed_format: str
    head_format: str
    max_seq_len: int


@dataclass(frozen=True)
class KindMethods:
    """What the runtime has to know of the methods of one kind of unit."""

    tokens: int  # the most they take
    saved: list[dict[str, Any]]  # what `<kind>_backward` takes: shape, -1 for the tokens; dtype; dtype stored
    reads_x: bool  # whether `<kind>_backward` needs the unit's input besides


@dataclass(frozen=True)
class Program:
    data: bytes  # program.pte
    kinds: dict[str, KindMethods]
    head_tokens: int  # the most that the head's methods take


def program_spec(
    config: ModelConfig, specs: Iterable[UnitSpec], embed_format: str, head_format: str, max_seq_len: int
) -> ProgramSpec:
    """`specs` may have several units of a kind."""
    units = tuple({spec.kind: spec for spec in specs}.values())
    return ProgramSpec(config, units, embed_format, head_format, max_seq_len)
