"""The index of weights.ptd, out of a file that may hold anything."""

import pytest

from mobile_ft.bundle.flat_tensor import tensor_places
from tests.small_index import index


def test_places() -> None:
    assert tensor_places(index(["a", "b"], [(0, 3), (4096, 5)])) == {"a": (4096, 3), "b": (8192, 5)}
    assert tensor_places(index([], [])) == {}


def test_every_truncation_and_changed_byte_is_an_error_or_an_index() -> None:
    whole = index(["a", "b"], [(0, 3), (4096, 5)])
    for place in range(len(whole)):
        for broken in (whole[:place], *(whole[:place] + bytes([b]) + whole[place + 1 :] for b in (0, 1, 127, 255))):
            try:
                assert isinstance(tensor_places(broken), dict)
            except ValueError as error:
                assert str(error) in ("not a valid index of a FlatTensor file", "not a FlatTensor file")


def test_names_that_share_their_bytes() -> None:
    """Some hundred kilobytes that would else be gigabytes of names."""
    with pytest.raises(ValueError, match="not a valid index of a FlatTensor file"):
        tensor_places(index(["x" * 200_000] * 10_000, [(0, 1)] * 10_000))
