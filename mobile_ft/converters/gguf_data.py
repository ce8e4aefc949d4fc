"""Tensors for GGUFWriter that report every write error.

The writer calls NumPy's `tofile`, which buffers the end of a tensor and ignores errors when it is written.
"""

from typing import BinaryIO

import numpy as np
import numpy.typing as npt


class _Written(np.ndarray):
    def tofile(self, file: BinaryIO) -> None:  # type: ignore[override]
        file.write(np.ascontiguousarray(self).data)


def written(tensor: npt.NDArray) -> npt.NDArray:
    return tensor.view(_Written)
