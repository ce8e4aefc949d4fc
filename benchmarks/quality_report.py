"""Prints the tables of docs/quality.md in Markdown, and draws its picture."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from quality_runs import (
    ADAPTED,
    ADVISED,
    BEST,
    BUDGETS,
    CONTROLS,
    DATA,
    FULL,
    LEARNING_RATES,
    LONG,
    LONG_STEPS,
    REFERENCE,
    SCHEDULES,
    SHORT_STEPS,
    SMALL,
    STABILITY_RATES,
    STEPS,
    VARIANTS,
    Results,
    Run,
    operations,
    timing,
    variant,
)

BAR = 0.01  # allowed increase over the reference's loss at equal steps


def report(results: Results, picture: Path) -> None:
    tuning(results)
    rates(results)
    bar(results)
    headline_time(results)
    schedules_alone(results)
    variants(results)
    auto_schedule(results)
    long_runs(results)
    stability(results)
    draw(results, picture)


def table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print(f"\n### {title}\n\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def passes(loss: float | None, reference: float | None) -> bool:
    """The quality bar: within 1 % of the reference's held-out loss."""
    return loss is not None and reference is not None and loss <= (1 + BAR) * reference


def change(loss: float | None, of: float | None) -> str:
    return "" if loss is None or of is None else f"{100 * (loss / of - 1):+.1f} %"


Losses = tuple[float | None, float | None, int]


def losses_of(results: Results, data: str, sides: tuple[str, str], steps: tuple[int, int]) -> Losses:
    """Returns the mean losses of both sides over their common seeds, and the number of these seeds."""
    first, second = (results.seeds(data, side, n) for side, n in zip(sides, steps, strict=True))
    seeds = tuple(seed for seed in first if seed in second)
    loss, reference = (results.mean_loss(data, side, n, seeds) for side, n in zip(sides, steps, strict=True))
    return loss, reference, len(seeds)


def compared(results: Results, data: str, sides: tuple[str, str], steps: tuple[int, int]) -> str:
    """Returns the mean loss of the first side, its difference from the second's, and the number of common seeds."""
    loss, reference, seeds = losses_of(results, data, sides, steps)
    return "" if loss is None else f"{loss:.4f} ({change(loss, reference)}, {seeds})"


def cost(results: Results, side: str, reference: str) -> str:
    if not results.timed(side, reference):
        return ""
    return f"{results.step_seconds(side) / results.step_seconds(reference):.2f}"


def tuning(results: Results) -> None:
    rates = [
        lr
        for lr in LEARNING_RATES
        if any(Run("tuning", side, lr, STEPS, 1).name in results.losses for side in SCHEDULES)
    ]
    losses = {
        side: {lr: results.losses.get(Run("tuning", side, lr, STEPS, 1).name) for lr in rates} for side in SCHEDULES
    }
    best = {side: min((x for x in found.values() if x is not None), default=None) for side, found in losses.items()}

    def cell(side: str, loss: float | None) -> str:
        return "" if loss is None else f"**{loss:.4f}**" if loss == best[side] else f"{loss:.4f}"

    table(
        "Learning rates",
        ["schedule", *(f"{lr:g}" for lr in rates), "best, vs. full"],
        [
            [side, *(cell(side, loss) for loss in losses[side].values()), change(best[side], best[FULL])]
            for side in sorted(SCHEDULES, key=lambda side: best[side] or 0)
        ],
    )


def rates(results: Results) -> None:
    """Prints the evidence for `--lr auto`."""
    sides = [(data, FULL, steps) for steps in (STEPS, SHORT_STEPS) for data in DATA]
    sides += [("gsm8k", side, STEPS) for side in ADAPTED]
    rows = []
    for data, side, steps in sides:
        if side not in results.auto:
            continue
        auto = results.auto[side]
        found = {lr: results.losses.get(Run(data, side, lr, steps, 1).name) for lr in (*LEARNING_RATES, auto)}
        best = min((loss for loss in found.values() if loss is not None), default=None)
        cells = ["" if found[lr] is None else f"{found[lr]:.4f}" for lr in LEARNING_RATES]
        at_auto = "" if found[auto] is None else f"{found[auto]:.4f} ({change(found[auto], best)})"
        rows.append([f"{data}, {steps} steps{side.removeprefix(FULL)}", *cells, f"{auto:g}", at_auto])
    head = ["run", *(f"{lr:g}" for lr in LEARNING_RATES), "auto", "loss at auto, against the best"]
    table("Learning rates of full backward", head, rows)


def bar(results: Results) -> None:
    rows = []
    for side in (*ADVISED[1:], *CONTROLS):
        cells = [compared(results, data, (side, REFERENCE), (STEPS, STEPS)) for data in DATA]
        losses = [losses_of(results, data, (side, REFERENCE), (STEPS, STEPS)) for data in DATA]
        known = [passes(loss, reference) for loss, reference, seeds in losses if seeds]
        whole = len(known) == len(DATA) or not all(known)
        verdict = ("pass" if all(known) else "miss") if known and whole else "not run"
        rows.append([side, cost(results, side, REFERENCE), *cells, verdict])
    table(
        f"Equal steps ({STEPS}), against {REFERENCE}",
        ["configuration", "relative step time", *DATA, "within 1 %"],
        rows,
    )


def headline_time(results: Results) -> None:
    rows = []
    for side in ADVISED:
        if not cost(results, side, REFERENCE):
            continue
        steps = results.steps_in_time(side, REFERENCE)
        cells = [compared(results, data, (side, REFERENCE), (steps, STEPS)) for data in DATA]
        rows.append([side, str(steps), *cells])
    table(f"Equal time, that of {STEPS} steps of {REFERENCE}", ["configuration", "steps", *DATA], rows)


def schedules_alone(results: Results) -> None:
    rows = []
    for side in SCHEDULES:
        row = [side, cost(results, side, FULL), f"{operations(side, results.size):.2f}"]
        row += [compared(results, data, (side, FULL), (STEPS, STEPS)) for data in DATA]
        if row[1]:
            steps = results.steps_in_time(side, FULL)
            row += [compared(results, data, (side, FULL), (steps, STEPS)) for data in DATA]
        else:
            row += [""] * len(DATA)
        row.append(compared(results, "gsm8k", (side, FULL), (round(STEPS / operations(side, results.size)), STEPS)))
        if any(row[3:]):
            rows.append(row)
    head = ["schedule", "step time", "operations per step"]
    head += [f"{data}, equal {same}" for same in ("steps", "time") for data in DATA]
    table("Schedules alone: int8, exact storage, against full", [*head, "gsm8k, equal operations"], rows)


def variants(results: Results) -> None:
    rows = []
    for side in (*SCHEDULES, *VARIANTS):
        exact = side.split(",")[0]
        if side in VARIANTS or exact == side and any(v.startswith(f"{exact},") for v in VARIANTS):
            reference = f"{exact}, float32"
            seed_1 = [results.mean_loss("gsm8k", s, STEPS, (1,)) for s in (side, reference)]
            loss = "" if seed_1[0] is None else f"{seed_1[0]:.4f}"
            rows.append([side, cost(results, side, REFERENCE), loss, change(*seed_1)])
    head = ["configuration", "relative step time", "gsm8k", "vs. float32, exact storage"]
    table("Compute and storage, seed 1", head, sorted(rows, key=lambda row: row[0].split(",")[0]))


def auto_schedule(results: Results) -> None:
    """Prints the evidence for mobile_ft/api/auto_schedule.py."""
    rows = []
    for schedule in (*BEST, *SMALL):
        cells = ["", ""]
        if cost(results, variant(schedule, storage="int8"), REFERENCE):
            both = (STEPS, results.steps_in_time(variant(schedule, storage="int8"), REFERENCE))
            known = {steps: results.learned(schedule, steps) for steps in both}
            cells = [f"{n} steps: {learned:.3f}" if learned is not None else "" for n, learned in known.items()]
        rows.append([schedule, f"{results.best_lr(schedule):g}", *cells])
    head = ["schedule", "learning rate", "equal steps", "equal time"]
    table("Loss reduction, relative to that of 100 steps of full", head, rows)


def long_runs(results: Results) -> None:
    rows = []
    full = results.mean_loss("gsm8k", FULL, LONG_STEPS)
    for side in LONG:
        loss = results.mean_loss("gsm8k", side, LONG_STEPS)
        if loss is None:
            continue
        right = results.right.get(results.run("gsm8k", side, LONG_STEPS, 1).name)
        short = compared(results, "gsm8k", (side, FULL), (STEPS, STEPS))
        rows.append([side, short, f"{loss:.4f} ({change(loss, full)})", interval(*right) if right else ""])
    head = ["schedule", f"{STEPS} steps", f"{LONG_STEPS} steps", "correct answers, 95 % interval"]
    table("Longer runs", head, rows)


def interval(right: int, of: int) -> str:
    """Wilson's score interval."""
    z, p = 1.96, right / of
    middle, half = (p + z * z / (2 * of)), z * (p * (1 - p) / of + z * z / (4 * of * of)) ** 0.5
    low, high = ((middle + sign * half) / (1 + z * z / of) for sign in (-1, 1))
    return f"{right} of {of} ({100 * low:.1f} to {100 * high:.1f} %)"


def stability(results: Results) -> None:
    rates = (*LEARNING_RATES, *STABILITY_RATES)
    rows = []
    for side in (FULL, "lcsb 1/2 random"):
        losses = [results.losses.get(Run("tuning", side, lr, STEPS, 1).name) for lr in rates]
        rows.append([side, *("" if loss is None else f"{loss:.4f}" for loss in losses)])
    table("Higher learning rates", ["schedule", *(f"{lr:g}" for lr in rates)], rows)


def draw(results: Results, path: Path) -> None:
    """Plots the held-out loss of gsm8k, seed 1, by minutes, with one panel per budget: runs of up to some hundred steps
    at the best learning rate, connected by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5), layout="constrained")
    panels = figure.subplots(1, len(BUDGETS), sharex=True, sharey=True)
    sides = [*SCHEDULES, *(side for side in ADVISED if side not in SCHEDULES)]
    styles = {side: {"color": f"C{i % 10}", "marker": "osD"[i // 10]} for i, side in enumerate(sides)}
    for axes, budget in zip(panels, BUDGETS, strict=True):
        for side in sides:
            if timing(side, budget) not in results.seconds:
                continue
            names = [name.split("/") for name in results.losses]
            steps = sorted({int(parts[-2]) for parts in names if "/".join(parts).startswith(f"gsm8k/{side}/")})
            points = [
                (results.run_seconds(side, n, budget) / 60, loss)
                for n in steps
                if n != LONG_STEPS and (loss := results.mean_loss("gsm8k", side, n, (1,))) is not None
            ]
            if points:
                axes.plot(*zip(*points, strict=True), label=side, linewidth=0.8, **styles[side])
        more = ", moments in 8 bits" if BUDGETS[budget] else ""
        axes.set(title=f"{budget} MB{more}", xlabel="minutes of training")
    panels[0].set(ylabel="held-out loss, gsm8k")
    handles = {label: line for axes in panels for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize="small")
    figure.savefig(path)
