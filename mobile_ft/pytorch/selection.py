"""Selects the layers or units that a schedule trains at a step, exactly as the runtime's `schedule/schedule_*.cpp`."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from mobile_ft.errors import UserError

_WORD = (1 << 64) - 1
_MEASURED = 0.1  # fraction of the run after which dropbp measures sensitivities
_MOST_TENTHS = 9  # highest drop rate, in tenths


@dataclass(frozen=True)
class Schedule:
    """A schedule and its options, those of `mobile-ft train`.

    Args:
        name: Which layers a step trains; see docs/concepts/schedules.md.
        ratio: Share of layers trained per step (dropbp: of attention and MLP units; freeze: average over the run).
        selection: How layers are selected (lcsb only).
        suffix_depths: Number of top layers per step, cycled (suffix only). Empty: around `ratio`.
        period: Steps between layer selections (lisa only).
        steps: Steps of the run.
        seed: Random seed.
    """

    name: Literal["full", "lcsb", "suffix", "lisa", "freeze", "dropbp"] = "full"
    ratio: float = 0.5
    selection: Literal["random", "contiguous", "strided"] = "random"
    suffix_depths: tuple[int, ...] = ()
    period: int = 20
    steps: int = 100
    seed: int = 0

    def __post_init__(self) -> None:
        if self.name not in _RULES:
            raise UserError(f"schedule {self.name}: must be one of {', '.join(_RULES)}")
        if not 0 < self.ratio <= 1:
            raise UserError(f"ratio {self.ratio}: must be above 0 and at most 1")
        if self.period < 1:
            raise UserError(f"period {self.period}: must be at least 1 step")

    @property
    def drops_units(self) -> bool:
        """Whether single attention and MLP units are selected instead of whole layers."""
        return self.name == "dropbp"

    @property
    def measuring_step(self) -> int | None:
        """The step before which dropbp measures sensitivities, or None for other schedules."""
        return int(_MEASURED * self.steps) if self.drops_units else None

    def select(self, step: int, count: int, drop_rates: Sequence[float] | None = None) -> list[bool]:
        """Returns a flag for each of `count` layers or units.

        `step` counts from 0. `drop_rates` [count] are those of dropbp, after its sensitivities are measured.
        """
        if self.drops_units:
            return _dropbp(self, step, count, drop_rates)
        return _RULES[self.name](self, step, count)


def allocate_drop_rates(sensitivities: Sequence[float], flops: Sequence[float], target: float) -> list[float]:
    """Allocates DropBP's rates (arXiv 2402.17812): 0, 0.1, ..., 0.9, so that the fraction `target` of all FLOPs is
    dropped on average. Repeatedly raises the rate for which sensitivity x rate is then the lowest."""
    tenths = [0] * len(flops)
    wanted = 10 * target * sum(flops) * (1 - 1e-12)
    dropped = 0.0
    while dropped < wanted:
        open_ = [u for u in range(len(flops)) if tenths[u] < _MOST_TENTHS]
        if not open_:
            break
        best = min(open_, key=lambda u: sensitivities[u] * (tenths[u] + 1))
        tenths[best] += 1
        dropped += flops[best]
    return [t / 10 for t in tenths]


class _Random:
    """SplitMix64 (Steele et al. 2014), as in the runtime."""

    def __init__(self, seed: int, stream: int) -> None:
        self._state = (seed * 0x9E3779B97F4A7C15 + stream * 0xD1342543DE82EF95) & _WORD
        self.next()

    def next(self) -> int:
        self._state = z = (self._state + 0x9E3779B97F4A7C15) & _WORD
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _WORD
        z = (z ^ z >> 27) * 0x94D049BB133111EB & _WORD
        return z ^ z >> 31

    def uniform(self) -> float:
        return (self.next() >> 11) * 2.0**-53

    def permutation(self, n: int) -> list[int]:
        order = list(range(n))
        for i in range(n, 1, -1):
            j = self.next() % i
            order[i - 1], order[j] = order[j], order[i - 1]
        return order


def _share_of(ratio: float, count: int) -> int:
    """Returns round(ratio x count), with halves rounded up, but at least 1."""
    whole = math.floor(ratio * count)
    return min(max(whole + (ratio * count - whole >= 0.5), 1), count)


def _drawn(schedule: Schedule, number: int, count: int) -> list[bool]:
    order = _Random(schedule.seed, number).permutation(count)
    chosen = set(order[: _share_of(schedule.ratio, count)])
    return [i in chosen for i in range(count)]


def _top(depth: int, count: int) -> list[bool]:
    return [False] * (count - depth) + [True] * depth


def _full(schedule: Schedule, step: int, count: int) -> list[bool]:
    return [True] * count


def _lcsb(schedule: Schedule, step: int, count: int) -> list[bool]:
    """LCSB (arXiv 2602.13073): random layers at every step, or blocks in turn, or every k-th layer in turn."""
    share = _share_of(schedule.ratio, count)
    if schedule.selection == "random":
        return _drawn(schedule, step, count)
    if schedule.selection == "contiguous":
        chosen = {(step * share + i) % count for i in range(share)}
        return [i in chosen for i in range(count)]
    return [(i + step) * share % count < share for i in range(count)]


def _suffix(schedule: Schedule, step: int, count: int) -> list[bool]:
    depths = schedule.suffix_depths or [_share_of(schedule.ratio * factor, count) for factor in (0.5, 1.0, 1.5, 1.0)]
    for depth in depths:
        if not 1 <= depth <= count:
            raise UserError(f"suffix depth {depth}: must be from 1 to {count}, the number of layers")
    return _top(depths[step % len(depths)], count)


def _lisa(schedule: Schedule, step: int, count: int) -> list[bool]:
    """LISA (arXiv 2403.17919)."""
    return _drawn(schedule, step // schedule.period, count)


def _freeze(schedule: Schedule, step: int, count: int) -> list[bool]:
    """Selects all layers first, then fewer and fewer: the fraction (1 - t)^(1 / ratio - 1) after the fraction t of the
    run, which is `ratio` on average. A ratio of 1/4 is FreezeOut's cubic schedule (arXiv 1706.04983)."""
    left = max(1 - (step + 0.5) / max(1, schedule.steps), 0.0)
    return _top(_share_of(left ** (1 / schedule.ratio - 1), count), count)


def _dropbp(schedule: Schedule, step: int, count: int, drop_rates: Sequence[float] | None = None) -> list[bool]:
    """DropBP (arXiv 2402.17812): drops units at random by their rates, and more units by the highest rates if too many
    are left. If all are dropped, which the paper skips, keeps the topmost of the units with the lowest rate."""
    rates = list(drop_rates) if drop_rates else [1 - schedule.ratio] * count
    random = _Random(schedule.seed, step)
    kept = [random.uniform() >= rate for rate in rates]
    too_many = sum(kept) - _share_of(schedule.ratio, count)
    for unit in sorted(range(count), key=lambda u: -rates[u]):
        if too_many <= 0:
            break
        too_many -= kept[unit]
        kept[unit] = False
    if not any(kept):
        kept[min(reversed(range(count)), key=lambda u: rates[u])] = True
    return kept


_RULES: dict[str, Callable[[Schedule, int, int], list[bool]]] = {
    "full": _full,
    "lcsb": _lcsb,
    "suffix": _suffix,
    "lisa": _lisa,
    "freeze": _freeze,
    "dropbp": _dropbp,
}
