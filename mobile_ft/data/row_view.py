"""A row of training data to look at: its text, with what is learned and what is cut off marked."""

from dataclasses import dataclass

from mobile_ft.data.prepare import LossMask, Tokens
from mobile_ft.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Run:
    """A piece of text whose tokens are all learned or none is, and which all stay or are cut off."""

    text: str
    learned: bool
    cut: bool


@dataclass(frozen=True)
class RowView:
    """A row; a preference has two sides, the chosen and the rejected one."""

    where: str
    form: str
    weight: float
    sides: list[list[Run]]
    tokens: int  # of all sides
    learned: int


def runs_of(tokens: Tokens, learned: LossMask, places: int | None, tokenizer: Tokenizer) -> list[Run]:
    """The text of a side's tokens, of which `places` + 1 stay; None: all."""
    runs: list[Run] = []
    start = 0
    for end in range(1, len(tokens) + 1):
        if end < len(tokens) and learned[end] == learned[start] and end != (-1 if places is None else places + 1):
            continue
        cut = places is not None and start > places
        runs.append(Run(tokenizer.decode(tokens[start:end].tolist()), bool(learned[start]), cut))
        start = end
    return runs
