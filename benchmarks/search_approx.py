"""Searches the coefficients of Approx-BP: `python benchmarks/search_approx.py [NAME ...] --bits 2 --plot FILE`.

Approx-BP (arXiv 2406.16282) keeps only the index of the interval, out of 2^k, that contains an activation's input. It
replaces the activation's derivative by that of h(x) = sum_i a_i max(x - c_i, 0), a step function of 2^k steps. The a
and c minimize the squared distance between h and the activation.

For given thresholds c, that distance is quadratic in a, so the best a solve linear equations. Only c is searched, by
simulated annealing, as in the paper, and then Nelder-Mead. If the activation is x + o(1) for large x, h must be too
(sum a_i = 1 and sum a_i c_i = 0), because the distance would not be finite otherwise. Squared ReLU is not, and is
approximated between -RANGE and RANGE.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table
from scipy.optimize import dual_annealing, minimize
from scipy.special import erf, expit

Array = NDArray[np.float64]

POINTS = 4001  # points of the grid between -RANGE and RANGE
TRIES = {
    1: 1,
    2: 1,
    3: 6,
}  # runs of annealing, which ends in local minima if there are many thresholds; the best is used
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "silu": lambda x: x * expit(x),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "gelu_tanh": lambda x: x * expit(2 * np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)),
    "softplus": lambda x: np.logaddexp(0, x),
    "squared_relu": lambda x: np.maximum(x, 0) ** 2,
}
PUBLISHED = {
    "silu": (
        (-0.04060357190528599, 1.080925428529668, -0.040321856624382146),
        (-6.3050461001646445, -0.0008684942046214787, 6.325815242089708),
    ),
    "gelu": (
        (-0.04922261145617846, 1.0979632065417297, -0.048740595085551286),
        (-3.1858810036855245, -0.001178821281161997, 3.190832613414926),
    ),
}


@dataclass(frozen=True)
class Approximation:
    """h(x) = sum_i a_i max(x - c_i, 0), with c ascending. `distance` is the integral of (h - activation)^2."""

    a: Array
    c: Array
    distance: float


def search(activation: Callable[[Array], Array], bits: int = 2, span: float = 20.0, seed: int = 0) -> Approximation:
    """Returns the best approximation with 2^bits steps between -span and span. The activation must approach 0 for small
    x."""
    x = np.linspace(-span, span, POINTS)
    y = activation(x)
    asymptotic = bool(abs(y[-1] - x[-1]) < 1e-3)

    def distance(thresholds: Array) -> float:
        return float(fit(x, y, np.sort(thresholds), asymptotic).distance)

    bounds = [(-0.4 * span, 0.4 * span if asymptotic else span)] * (2**bits - 1)
    polish = {"xatol": 1e-9, "fatol": 1e-15, "maxiter": 5000}
    tries = []
    for generator in np.random.default_rng(seed).spawn(TRIES[bits]):
        annealed = dual_annealing(distance, bounds, maxiter=200, rng=generator)
        tries.append(minimize(distance, annealed.x, method="Nelder-Mead", options=polish))
    return fit(x, y, np.sort(min(tries, key=lambda t: t.fun).x), asymptotic)


def fit(x: Array, y: Array, c: Array, asymptotic: bool) -> Approximation:
    """Returns the best a for these thresholds, on a grid x."""
    basis = np.maximum(x[:, None] - c, 0)
    gram, right = basis.T @ basis, basis.T @ y
    if asymptotic:  # with Lagrange multipliers: sum a = 1, sum a c = 0
        limits = np.stack([np.ones_like(c), c])
        gram = np.block([[gram, limits.T], [limits, np.zeros((2, 2))]])
        right = np.concatenate([right, [1.0, 0.0]])
    a = np.linalg.lstsq(gram, right, rcond=None)[0][: len(c)]
    return Approximation(a, c, distance_of(x, y, a, c))


def distance_of(x: Array, y: Array, a: Array, c: Array) -> float:
    return float(np.sum((np.maximum(x[:, None] - c, 0) @ a - y) ** 2) * (x[1] - x[0]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"activations: {', '.join(ACTIVATIONS)} (default: all)"
    )
    parser.add_argument("--bits", type=int, nargs="+", default=[2], choices=[1, 2, 3])
    parser.add_argument("--range", type=float, default=20.0, help="largest |x| (default: 20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="plot of activations, approximations and derivatives")
    args = parser.parse_args()
    for name in args.names:
        if name not in ACTIVATIONS:
            parser.error(f"{name}: must be one of {', '.join(ACTIVATIONS)}")
    names = args.names or list(ACTIVATIONS)
    table = Table("activation", "bits", "distance", "published", "a", "c")
    found: dict[tuple[str, int], Approximation] = {}
    for name in names:
        for bits in args.bits:
            best = found[name, bits] = search(ACTIVATIONS[name], bits, args.range, args.seed)
            published = "" if bits != 2 or name not in PUBLISHED else f"{published_distance(name, args.range):.6f}"
            numbers = ["\n".join(f"{v:.10g}" for v in values) for values in (best.a, best.c)]
            table.add_row(name, str(bits), f"{best.distance:.6f}", published, *numbers, end_section=True)
    Console().print(table)
    if args.plot:
        plot(found, args.plot)


def published_distance(name: str, span: float) -> float:
    x = np.linspace(-span, span, POINTS)
    a, c = PUBLISHED[name]
    return distance_of(x, ACTIVATIONS[name](x), np.array(a), np.array(c))


def plot(found: dict[tuple[str, int], Approximation], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3 * len(found)), layout="constrained")
    axes: Any = figure.subplots(len(found), 2, squeeze=False)
    for (name, bits), approximation in found.items():
        left, right = axes[list(found).index((name, bits))]
        width = max(4.0, 1.3 * float(np.abs(approximation.c).max()))
        x = np.linspace(-width, width, 2001)
        y = ACTIVATIONS[name](x)
        left.plot(x, y, label=name)
        left.plot(x, np.maximum(x[:, None] - approximation.c, 0) @ approximation.a, label=f"{bits} bits")
        right.plot(x, np.gradient(y, x), label="derivative")
        right.plot(x, (x[:, None] > approximation.c) @ approximation.a, label=f"{bits} bits")
        left.legend()
        right.legend()
    figure.savefig(file)


if __name__ == "__main__":
    main()
