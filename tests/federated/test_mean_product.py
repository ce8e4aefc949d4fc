"""The mean of products at the adapter's rank, against a decomposition of the whole matrix."""

import numpy as np
import pytest

from mobile_ft.federated.mean_product import mean_product

OUT, IN, RANK = 40, 60, 4


def clients(count: int, drift: float, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray], list[float]]:
    """A's that are `drift` from a common one."""
    rng = np.random.default_rng(seed)
    common = rng.uniform(-1, 1, (RANK, IN)) / np.sqrt(IN)
    a = [(common + drift * rng.standard_normal(common.shape)).astype(np.float32) for _ in range(count)]
    b = [(1e-2 * rng.standard_normal((OUT, RANK))).astype(np.float32) for _ in range(count)]
    return a, b, list(rng.dirichlet(np.ones(count)))


def mean(a: list[np.ndarray], b: list[np.ndarray], weights: list[float]) -> np.ndarray:
    return sum(w * y.astype(float) @ x for w, x, y in zip(weights, a, b, strict=True))


@pytest.mark.parametrize("count", [1, 2, 8, 40])  # the last have more columns in all than the matrix
@pytest.mark.parametrize("drift", [1e-2, 0.1])
def test_the_best_of_its_rank(count: int, drift: float) -> None:
    a, b, weights = clients(count, drift)
    product, whole = mean_product(a, b, weights), mean(a, b, weights)
    rest = np.linalg.norm(np.linalg.svd(whole, compute_uv=False)[RANK:])
    assert np.linalg.norm(product.b.astype(float) @ product.a - whole) <= rest + 1e-6 * np.linalg.norm(whole)
    assert product.left_out == pytest.approx(rest, abs=1e-9)
    assert product.norm == pytest.approx(np.linalg.norm(whole))
    assert (product.a.shape, product.b.shape) == ((RANK, IN), (OUT, RANK))


def test_a_common_a_stays() -> None:
    """Then nothing is left out, and B is the mean of B."""
    a, b, weights = clients(8, 0)
    product = mean_product(a, b, weights)
    np.testing.assert_allclose(product.a, a[0], atol=1e-6)
    np.testing.assert_allclose(product.b, sum(w * x for w, x in zip(weights, b, strict=True)), atol=1e-7)


def test_a_stays_near_the_mean() -> None:
    a, b, weights = clients(8, 1e-2)
    product = mean_product(a, b, weights)
    between = sum(w * x for w, x in zip(weights, a, strict=True))
    assert np.linalg.norm(product.a - between) < 0.1 * np.linalg.norm(between)


def test_nothing_learned_changes_nothing() -> None:
    a, _, weights = clients(3, 0)
    product = mean_product(a, [np.zeros((OUT, RANK), np.float32)] * 3, weights)
    np.testing.assert_allclose(product.a, a[0], atol=1e-7)
    assert not product.b.any() and product.left_out == 0


def test_a_product_of_lower_rank() -> None:
    a, b, weights = clients(3, 0)
    b = [np.outer(x[:, 0], [1, 0, 0, 0]).astype(np.float32) for x in b]
    product, whole = mean_product(a, b, weights), mean(a, b, weights)
    assert np.linalg.norm(product.b.astype(float) @ product.a - whole) < 1e-6 * np.linalg.norm(whole)
    assert np.linalg.matrix_rank(product.a, tol=1e-3) == RANK  # room to learn in what the product does not use


def test_directions_that_the_mean_of_a_lacks() -> None:
    """Two A's that cancel out: their mean is nearly nothing, their products are not."""
    a, b, _ = clients(2, 0)
    a, b = [a[0], -a[0]], [b[0], -b[0]]
    product = mean_product(a, b, [0.501, 0.499])
    whole = mean(a, b, [0.501, 0.499])
    assert np.linalg.norm(product.b.astype(float) @ product.a - whole) < 1e-5 * np.linalg.norm(whole)
