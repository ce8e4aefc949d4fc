"""Strings that end an answer."""

from collections.abc import Sequence


class StopStrings:
    """Passes on text up to the first stop string, which is removed. Text that may begin a stop string is held back."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = [string for string in strings if string]
        self._held = ""
        self.found = False

    def add(self, text: str) -> str:
        """Adds `text` and returns the new text that is certainly not part of a stop string."""
        if self.found:
            return ""
        text = self._held + text
        starts = [start for string in self._strings if (start := text.find(string)) >= 0]
        if starts:
            self.found, self._held = True, ""
            return text[: min(starts)]
        keep = max((_overlap(text, string) for string in self._strings), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """Returns the text that was held back, at the end of the answer."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, string: str) -> int:
    """Returns the length of the longest suffix of `text` that is a prefix of `string`."""
    longest = min(len(text), len(string) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(string[:n])), 0)
