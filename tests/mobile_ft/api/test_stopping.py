import pytest

from mobile_ft.api.stopping import StopStrings


def shown(strings: list[str], pieces: list[str]) -> tuple[list[str], bool]:
    """What is shown piece by piece, and at the end; whether a stop string was found."""
    cutter = StopStrings(strings)
    parts = [cutter.add(piece) for piece in pieces]
    return [*parts, cutter.finish()], cutter.found


@pytest.mark.parametrize(
    ("strings", "pieces", "parts", "found"),
    [
        ([], ["a", "b"], ["a", "b", ""], False),
        (["User:"], ["Hi U", "se", "r: x", "y"], ["Hi ", "", "", "", ""], True),
        (["User:"], ["Use", "ful"], ["", "Useful", ""], False),
        (["User:"], ["a Us"], ["a ", "Us"], False),
        (["aab"], ["aa", "ab"], ["", "a", ""], True),  # the second a is the start
        (["b", "ab"], ["xa", "b"], ["x", "", ""], True),  # of several the first in the text
        (["", "."], ["One.", "Two"], ["One", "", ""], True),
    ],
)
def test_text_is_cut_at_the_first_stop(strings: list[str], pieces: list[str], parts: list[str], found: bool) -> None:
    assert shown(strings, pieces) == (parts, found)


@pytest.mark.parametrize("size", range(1, 8))
def test_pieces_do_not_matter(size: int) -> None:
    text = "abcabcabd and more"
    parts, found = shown(["abd"], [text[i : i + size] for i in range(0, len(text), size)])
    assert ("".join(parts), found) == ("abcabc", True)
