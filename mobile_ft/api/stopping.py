"""Strings that end an answer."""

from collections.abc import Sequence


class StopStrings:
    """Passes text on up to the first of some strings, which is cut off; what might be the start of one waits."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = [string for string in strings if string]
        self._held = ""
        self.found = False

    def add(self, text: str) -> str:
        """The part of all text so far that is new and certain."""
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
        """What was held back and turned out to be no such string."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, string: str) -> int:
    """The length of the longest end of `text` that `string` starts with."""
    longest = min(len(text), len(string) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(string[:n])), 0)
