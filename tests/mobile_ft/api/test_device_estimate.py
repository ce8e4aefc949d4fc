"""What a step takes on a device that is not here."""

import pytest

from mobile_ft.api.device_estimate import estimate_device, known_devices
from mobile_ft.errors import UserError


def test_rates_follow_from_the_cores() -> None:
    # Two cores of 2.8 GHz with 16 multiply-adds a cycle, two of 2.25 GHz with 8; four times as many of bytes.
    peak = 2 * (2 * 2.8e9 * 16 + 2 * 2.25e9 * 8)
    pixel = estimate_device("pixel-6", {})
    assert (pixel.threads, pixel.compute, pixel.arithmetic) == (4, "int8", "int8-dotprod")
    assert pixel.throughput == pytest.approx((peak / (1 / 3.2 + 0.19), 0.5 * peak, 0.04 * peak, 0.02 * peak, 1e9))
    assert estimate_device("pixel-6", {"compute": "float32"}).throughput[0] == pytest.approx(0.8 * peak)
    assert pixel.watts == pytest.approx(2 * 3.0 + 2 * 1.2 + 1)


def test_fewer_threads_take_the_fastest_cores() -> None:
    pixel = estimate_device("pixel-8", {"threads": "1"})
    assert (pixel.threads, pixel.arithmetic) == (1, "int8-i8mm")
    assert pixel.throughput[1] == pytest.approx(0.5 * 2 * 2.91e9 * 16)
    assert estimate_device("pixel-8", {"threads": "100"}).threads == 5


def test_without_dot_products_it_computes_in_float32() -> None:
    pi = estimate_device("raspberry-pi-4", {})
    assert (pi.compute, pi.arithmetic) == ("float32", "float32-neon")
    # Products of bytes are no faster there, and rounding comes on top.
    assert estimate_device("raspberry-pi-4", {"compute": "int8"}).throughput[0] < pi.throughput[0]


def test_a_hot_phone_is_slower_and_takes_less_power() -> None:
    phone = estimate_device("pixel-6", {})
    step = phone.of_step(2.0)
    assert step["hot_step_seconds"] == pytest.approx(2 * (phone.watts / 4) ** 0.4)
    assert step["joules"] == pytest.approx(4 * step["hot_step_seconds"])
    assert step["battery_percent"] == pytest.approx(100 * step["joules"] / (17.8 * 3600))
    board = estimate_device("raspberry-pi-5", {}).of_step(2.0)
    assert (board["hot_step_seconds"], board["joules"], board["battery_percent"]) == (2.0, pytest.approx(18), None)


def test_shares_of_the_peak_are_those_measured() -> None:
    """The formula gives what was measured on a Zen 4 of 230 GFLOP/s, with products of bytes four times as fast."""
    peak, measured = 230e9, {"float32": 189e9, "int8": 453e9}
    pixel = {c: estimate_device("pixel-6", {"compute": c}).throughput[0] / (2 * 1.256e11) * peak for c in measured}
    assert pixel == pytest.approx(measured, rel=0.05)


@pytest.mark.parametrize("name", known_devices())
def test_every_device_is_whole(name: str) -> None:
    device = estimate_device(name, {})
    assert min(device.throughput) > 0 and device.threads > 0 and device.watts > 1
    assert device.of_step(1.0)["hot_step_seconds"] >= 1


def test_an_unknown_device_is_told() -> None:
    with pytest.raises(UserError, match="device pixel-88: unknown device; did you mean pixel-8"):
        estimate_device("pixel-88", {})
