"""Writes runtime/unicode/unicode_tables.cpp: `python tools/unicode_tables.py`.

The runtime's tokenizer must be equal to the `tokenizers` library, whose tables are from several versions of Unicode. So
the tables are derived from the library. Categories are determined by its regular expressions. Combining classes and
canonical decompositions, which Unicode never changes, are Python's, for the characters that the library supports. The
tables for methods of str (upper, islower and so on) are Python's, too; they change only for new characters.
"""

import subprocess
import unicodedata
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

NAMES = (  # the same as in runtime/unicode/unicode.cpp
    *("Cc", "Cf", "Cn", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No"),
    *("Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"),
)
OUT = Path(__file__).parents[1] / "runtime" / "unicode" / "unicode_tables.cpp"
LAST = 0x110000
SURROGATES = range(0xD800, 0xE000)


def categories() -> list[int]:
    """Returns the category of every code point, as an index of NAMES. Surrogates, which are not in any text, are Cs."""
    found = [NAMES.index("Cs") if c in SURROGATES else NAMES.index("Cn") for c in range(LAST)]
    points = [c for c in range(LAST) if c not in SURROGATES]
    text = "".join(map(chr, points))
    for index, name in enumerate(NAMES):
        if name in ("Cn", "Cs"):
            continue
        matches = pre_tokenizers.Split(Regex(rf"\p{{{name}}}+"), "removed", invert=True)
        for _, (begin, end) in matches.pre_tokenize_str(text):
            for c in points[begin:end]:
                found[c] = index
    return found


def category_runs() -> Iterator[int]:
    start = 0
    for category, run in groupby(categories()):
        yield start << 5 | category
        start += sum(1 for _ in run)


def numeric() -> Iterator[str]:
    digits = pre_tokenizers.Digits(individual_digits=True)
    start = 0
    for is_digit, run in groupby(
        range(LAST), key=lambda c: c not in SURROGATES and len(digits.pre_tokenize_str(f"a{chr(c)}")) > 1
    ):
        length = sum(1 for _ in run)
        if is_digit:
            yield f"{{0x{start:x}, 0x{start + length - 1:x}}}"
        start += length


def decompositions() -> Iterator[str]:
    nfc, nfd = normalizers.NFC(), normalizers.NFD()
    for c in range(LAST):
        parts = unicodedata.decomposition(chr(c))
        if not parts or parts.startswith("<") or nfd.normalize_str(chr(c)) == chr(c):
            continue
        first, second = ([int(part, 16) for part in parts.split()] + [0])[:2]
        again = nfc.normalize_str(chr(first) + (chr(second) if second else ""))
        composes = str(second != 0 and again == chr(c)).lower()
        yield f"{{0x{c:x}, {{0x{first:x}, 0x{second:x}}}, {composes}}}"


def combining_class(c: int) -> int:
    """Returns the combining class, or 0 for characters that the library does not reorder."""
    found = unicodedata.combining(chr(c))
    if found == 0:
        return 0
    low, high = "\u0334", "\u0301"  # characters of the classes 1 and 230
    wrong, right = (high + chr(c), chr(c) + high) if found == 1 else (chr(c) + low, low + chr(c))
    return found if normalizers.NFD().normalize_str(wrong) == unicodedata.normalize("NFD", right) else 0


def class_runs() -> Iterator[str]:
    start = 0
    for found, run in groupby(range(LAST), key=combining_class):
        length = sum(1 for _ in run)
        if found:
            yield f"{{0x{start:x}, {length}, {found}}}"
        start += length


def case_runs(mapped: Callable[[str], str], plain: Callable[[str], str]) -> Iterator[str]:
    """Yields runs of the characters for which `mapped` and `plain` differ: every character, or every second one, with
    the same distance to the mapped character."""
    found = [
        (c, ord(mapped(chr(c))) - c)
        for c in range(LAST)
        if c not in SURROGATES and len(mapped(chr(c))) == 1 and mapped(chr(c)) != plain(chr(c))
    ]
    while found:
        (first, delta), count = found[0], 1
        stride = found[1][0] - first if len(found) > 1 else 1
        while stride <= 2 and count < len(found) and found[count] == (first + count * stride, delta):
            count += 1
        yield f"{{0x{first:x}, {count}, {stride if count > 1 else 1}, {delta}}}"
        found = found[count:]


def expansions() -> Iterator[str]:
    """Yields characters that become several characters in upper or title case."""
    for c in map(chr, range(LAST)):
        if max(len(c.upper()), len(c.title())) > 1:
            upper, title = (", ".join(f"0x{ord(part):x}" for part in text) for text in (c.upper(), c.title()))
            yield f"{{0x{ord(c):x}, {{{upper}}}, {{{title}}}}}"


def ranges(holds: Callable[[str], bool]) -> list[str]:
    starts = [c for c in range(LAST) if holds(chr(c)) and not (c > 0 and holds(chr(c - 1)))]
    ends = [c for c in range(LAST) if holds(chr(c)) and not (c + 1 < LAST and holds(chr(c + 1)))]
    return [f"{{0x{start:x}, 0x{end:x}}}" for start, end in zip(starts, ends, strict=True)]


def is_ignorable(c: str) -> bool:
    """Whether the form of a sigma does not depend on this neighbouring character."""
    return f"a{c}Σ".lower()[-1] == "ς" and f" {c}Σ".lower()[-1] == "σ"


def exceptions(holds: Callable[[str], bool], *in_categories: str) -> list[str]:
    """Returns the characters for which a property does not follow from the category."""
    return ranges(lambda c: holds(c) != (unicodedata.category(c) in in_categories))


def table(kind: str, name: str, count: str, rows: list[str]) -> str:
    return f"const {kind} {name}[] = {{{', '.join(rows)}}};\nconst size_t {count} = std::size({name});\n"


def main() -> None:
    text = f"// Written by tools/unicode_tables.py from tokenizers {tokenizers.__version__}.\n"
    text += '#include "runtime/unicode/unicode_tables.h"\n\n#include <iterator>\n\nnamespace mft {\n\n'
    text += table("uint32_t", "kCategoryRuns", "kCategoryRunCount", [f"0x{run:x}" for run in category_runs()])
    text += "\n" + table("CharacterRange", "kNumeric", "kNumericCount", list(numeric()))
    text += "\n" + table("DecompositionRow", "kDecompositions", "kDecompositionCount", list(decompositions()))
    text += "\n" + table("ClassRun", "kClassRuns", "kClassRunCount", list(class_runs()))
    text += "\n" + table("CaseRun", "kUpperRuns", "kUpperRunCount", list(case_runs(str.upper, str)))
    text += "\n" + table("CaseRun", "kLowerRuns", "kLowerRunCount", list(case_runs(str.lower, str)))
    text += "\n" + table("CaseRun", "kTitleRuns", "kTitleRunCount", list(case_runs(str.title, str.upper)))
    text += "\n" + table("CaseExpansion", "kExpansions", "kExpansionCount", list(expansions()))
    for name, rows in (
        ("Lower", exceptions(str.islower, "Ll")),
        ("Upper", exceptions(str.isupper, "Lu")),
        ("Ignorable", exceptions(is_ignorable, "Mn", "Me", "Cf", "Lm", "Sk")),
        ("Digit", exceptions(str.isdigit, "Nd")),
        ("Numeral", exceptions(str.isnumeric, "Nd", "Nl", "No")),
    ):
        text += "\n" + table("CharacterRange", f"k{name}Exceptions", f"k{name}ExceptionCount", rows)
    OUT.write_text(text + "\n}  // namespace mft\n")
    subprocess.run(["clang-format", "-i", OUT], check=True)


if __name__ == "__main__":
    main()
