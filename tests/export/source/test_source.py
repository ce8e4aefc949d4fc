"""The record of conversions against float64."""

import numpy as np

from mobile_ft.bundle.description import Conversion
from mobile_ft.export.source.source import Conversions
from mobile_ft.model.formats import unpack
from mobile_ft.runtime import quantize


def test_the_error_is_that_of_all_rows() -> None:
    weights = np.random.default_rng(0).standard_normal((100, 64)).astype(np.float32)
    record, errors = Conversions(), []
    for rows in (weights[:64], weights[64:]):
        packed = quantize(rows, "q4_1")
        record.add("BF16", rows, packed, "q4_1")
        errors.append(unpack(packed, "q4_1", len(rows)) - rows.astype(np.float64))
    record.add("BF16", weights[:16], quantize(weights[:16], "q8_0"), "q8_0")
    expected = np.sqrt(np.mean(np.concatenate(errors) ** 2) / np.mean(weights.astype(np.float64) ** 2))
    found = {(c.source, c.format): c for c in record.to_list()}
    assert found.keys() == {("BF16", "q4_1"), ("BF16", "q8_0")}
    assert found["BF16", "q4_1"].weights == 6400 and found["BF16", "q8_0"].weights == 1024
    assert np.isclose(found["BF16", "q4_1"].error, expected, rtol=1e-6)
    assert found["BF16", "q8_0"].error < found["BF16", "q4_1"].error / 8


def test_what_is_kept_exactly() -> None:
    """Values of float16, and nothing but zeros."""
    weights = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float16).astype(np.float32)
    record = Conversions()
    record.add("F16", weights, quantize(weights, "f16"), "f16")
    record.add("F32", np.zeros((16, 32), np.float32), quantize(np.zeros((16, 32), np.float32), "q4_0"), "q4_0")
    assert record.to_list() == [Conversion("F16", "f16", 512, 0.0), Conversion("F32", "q4_0", 512, 0.0)]
