"""Shows the text of a row, with its learned and its truncated tokens."""

from dataclasses import dataclass

from mobile_ft.data.prepare import LossMask, Tokens
from mobile_ft.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Run:
    """A piece of text whose tokens have the same flags: learned or not, truncated or not."""

    text: str
    learned: bool
    cut: bool


@dataclass(frozen=True)
class RowView:
    """A row. A preference has two sides, the chosen and the rejected answer."""

    where: str
    form: str
    weight: float
    sides: list[list[Run]]
    tokens: int  # sum over all sides
    learned: int


def runs_of(tokens: Tokens, learned: LossMask, places: int | None, tokenizer: Tokenizer) -> list[Run]:
    """Returns the text of a side's tokens. The first `places` + 1 tokens are kept (None: all), and the others cut."""
    runs: list[Run] = []
    start = 0
    for end in range(1, len(tokens) + 1):
        if end < len(tokens) and learned[end] == learned[start] and end != (-1 if places is None else places + 1):
            continue
        cut = places is not None and start > places
        runs.append(Run(tokenizer.decode(tokens[start:end].tolist()), bool(learned[start]), cut))
        start = end
    return runs
