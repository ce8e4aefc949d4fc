"""Approximates the mean of products B A by one product of the same rank.

Averaging A and B separately does not average B A. Here the weighted mean of the clients' products is truncated to the
adapter's rank by a singular value decomposition, which is the best approximation of that rank (Eckart and Young).
FlexLoRA (arXiv 2402.11505) does the same on the server.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]
Double = npt.NDArray[np.float64]

_SHORTEST = 0.1  # smallest length of A in any direction of the product, relative to A's median singular value


@dataclass(frozen=True)
class Product:
    """The product `b` `a`, and the Frobenius norms of the mean and of its truncated part."""

    a: Matrix  # [rank, in]
    b: Matrix  # [out, rank]
    norm: float
    left_out: float


def mean_product(a: Sequence[Matrix], b: Sequence[Matrix], weights: Sequence[float]) -> Product:
    """Returns the mean product of the clients' `a` [rank, in] and `b` [out, rank]. The sum of `weights` is 1.

    A product has many factorizations. The one whose A is nearest to the mean of the clients' A is returned. With the
    factors of the plain decomposition, A would shrink to the size of B, and so would the next round's gradient of B.
    """
    rank = a[0].shape[0]
    # Mean = L R, with L [out, clients x rank] and R [clients x rank, in]: QR of both leaves a small core to decompose.
    left = np.concatenate([w * x.astype(np.float64) for w, x in zip(weights, b, strict=True)], axis=1)
    right = np.concatenate([x.astype(np.float64) for x in a], axis=0)
    q_left, r_left = np.linalg.qr(left)
    q_right, r_right = np.linalg.qr(right.T)
    u, s, vt = np.linalg.svd(r_left @ r_right.T)
    whole = float(np.linalg.norm(s))
    mean_a = np.average(np.stack(a).astype(np.float64), axis=0, weights=weights)
    used = int((s[:rank] > s[0] * 1e-7).sum()) if whole > 0 else 0  # the mean's rank may be lower than the adapter's
    a_new, b_new = _nearest(q_left @ u[:, :used], s[:used], (vt[:used] @ q_right.T).T, mean_a)
    return Product(a_new.astype(np.float32), b_new.astype(np.float32), whole, float(np.linalg.norm(s[rank:])))


def _nearest(u: Double, s: Double, v: Double, mean_a: Double) -> tuple[Double, Double]:
    """Returns A [rank, in] near `mean_a`, and B [out, rank], with B A = U S V^T; u [out, k], s [k], v [in, k], k <=
    rank.

    With G [rank, k] = `mean_a` V, A = G V^T and B = U S G^+ would be sufficient. Directions of V that are short in
    `mean_a` are made longer, because B would be huge otherwise. The part of `mean_a` outside of V stays in directions
    of A that B ignores.
    """
    if s.size == 0:
        return mean_a, np.zeros((u.shape[0], mean_a.shape[0]))
    inside = mean_a @ v
    p, sigma, qt = np.linalg.svd(inside, full_matrices=False)  # [rank, k], [k], [k, k]
    sigma = np.maximum(sigma, _SHORTEST * np.median(np.linalg.svd(mean_a, compute_uv=False)))
    unseen = mean_a - inside @ v.T
    a = (p * sigma) @ qt @ v.T + unseen - p @ (p.T @ unseen)
    return a, (u * s) @ (qt.T / sigma) @ p.T
