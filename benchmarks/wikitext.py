"""WikiText-2 as general text, for benchmarks that measure how much of it a model forgets."""

from pathlib import Path

from mobile_ft.data.tokenizer import Tokenizer

CHARACTERS = 30_000


def write_wikitext(wikitext2: Path, bundle: Path, out: Path) -> None:
    """Writes the first characters of WikiText-2's test split.

    WikiText-2 has <unk> in place of rare words. For some models, such as Gemma, this is a special token that they never
    learned to predict. Most of the perplexity, and of its changes, would come from it, so "unknown" replaces it there.
    """
    text = (wikitext2 / "test.txt").read_text()[:CHARACTERS]
    tokenizer = Tokenizer(bundle)
    unk = tokenizer.token_id("<unk>")
    if unk is not None and tokenizer.is_special(unk):
        text = text.replace("<unk>", "unknown")
    out.write_text(text)
