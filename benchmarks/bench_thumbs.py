"""What 100 labels change: `python benchmarks/bench_thumbs.py WIKITEXT2 --json FILE`.

A user likes answers that meet a preference, which a program can check, and dislikes the others:

    short     at most 15 words
    greeting  begins with Hello, Hi, Hey or Good morning, afternoon or evening
    json      is a JSON object with the answer under "answer", and nothing else
    no-the    does not have the word "the"

Two more preferences, "question" (ends with a question mark) and "list" (begins with a dash), serve to choose learning
rates and epochs, and count for nothing else. 50 questions of the dialogues get the model's own answer (drawn at
temperature 0.7) with the label that it deserves, and the same answer as the user corrected it, labelled true. From
these 100 labels learn, each from the base model on,

    kto   all 100
    dpo   the pairs of a corrected answer and an own answer that was disliked
    sft   the liked ones alone

With `--rehearse RATE`, an epoch on texts follows that the base model wrote itself, without a prompt.

Greedy answers to 40 other prompts (thumbs_prompts.txt: instructions, not questions of a chat) show how many meet
the preference. Empty answers, the share of distinct pairs of words relative to the base model's, WikiText-2's
perplexity and the seconds of training stand beside it. Results in the JSON file are not computed again.
"""

import argparse
import json
import random
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tools"))  # folder of the demo's data

from dialogues import write_data
from rich.console import Console
from rich.table import Table
from wikitext import write_wikitext

import mobile_ft

QUESTIONS, SEQ_LEN = 50, 256
MAX_SEQ_LEN = 512  # of a prompt behind examples, and its answer
OWN_TOKENS, MAX_TOKENS = 64, 192  # of answers that are labelled, and of those that are counted
SHORT_WORDS = 15
# Of the texts, longer than the rows that are trained on: so no end is learned where the limit cut them off.
TEXTS, TEXT_TOKENS = 24, 300
SEEDS = (1, 2, 3)
TUNING = ("question", "list")
# Chosen with the tuning preferences, before the others were run.
OPTIONS: dict[str, dict[str, Any]] = {
    "kto": {"loss": "kto", "lr": 2e-4, "epochs": 3, "beta": 0.5},
    "dpo": {"loss": "dpo", "lr": 5e-5, "epochs": 4, "beta": 0.5},
    "sft": {"loss": "sft", "lr": 1e-4, "epochs": 2},
}
GREETING = re.compile(r"(hello|hi|hey|good (morning|afternoon|evening))\b", re.IGNORECASE)
THE = re.compile(r"\bthe\b ?", re.IGNORECASE)
Found = dict[str, Any]


def is_json(answer: str) -> bool:
    try:
        found = json.loads(answer)
    except ValueError:
        return False
    return isinstance(found, dict) and isinstance(found.get("answer"), str) and found["answer"].strip() != ""


def first_turn(answer: str) -> str:
    """Leaves out the turns that a base model writes after its answer, as in gemma_few_shot.jinja."""
    return answer.split("\n\nUser:")[0].strip()


def first_sentence(answer: str) -> str:
    return re.split(r"(?<=[.!?])\s", answer.strip())[0]


def shortened(answer: str) -> str:
    words = first_sentence(answer).split()
    return " ".join(words) if len(words) <= SHORT_WORDS else " ".join(words[:SHORT_WORDS]).rstrip(",;:") + "."


def whole(answer: str) -> str:
    """Leaves out a sentence that the limit of tokens cut off."""
    ended = re.match(r".*[.!?]", answer.strip(), re.DOTALL)
    return ended.group() if ended else answer.strip()


def without_the(answer: str) -> str:
    text = THE.sub("", answer)
    return text[:1].upper() + text[1:]


# Preference -> its check, and a correction that meets it.
PREFERENCES: dict[str, tuple[Callable[[str], bool], Callable[[str], str]]] = {
    "short": (lambda answer: 0 < len(answer.split()) <= SHORT_WORDS, shortened),
    "greeting": (lambda answer: GREETING.match(answer) is not None, lambda answer: f"Hello! {answer}"),
    "json": (is_json, lambda answer: json.dumps({"answer": answer})),
    "no-the": (lambda answer: answer.strip() != "" and THE.search(answer) is None, without_the),
    "question": (lambda answer: answer.strip().endswith("?"), lambda answer: f"{answer} Does that help you?"),
    "list": (lambda answer: answer.lstrip().startswith("- "), lambda answer: f"- {answer}"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wikitext2", type=Path)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--chat-template", type=Path, help="for a model without one, such as gemma.jinja")
    parser.add_argument(
        "--preference", action="append", choices=PREFERENCES, help=f"default: all but {' and '.join(TUNING)}"
    )
    parser.add_argument("--way", action="append", choices=OPTIONS, help="default: all")
    parser.add_argument("--seeds", type=int, default=len(SEEDS))
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of train")
    parser.add_argument("--rehearse", metavar="RATE", help="learning rate of texts of the base model; default: none")
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    given = dict(option.split("=", 1) for option in args.option)
    if args.rehearse and args.chat_template is None:
        parser.error("--rehearse requires --chat-template: the texts are written by the model without it")
    results: dict[str, Found] = json.loads(args.json.read_text()) if args.json.exists() else {}
    with tempfile.TemporaryDirectory() as temporary:
        thumbs = Thumbs(Path(temporary), args.model, args.chat_template, args.wikitext2, args.rehearse)
        rehearsed = [f"rehearse={args.rehearse}"] if args.rehearse else []
        name = Path(args.model).stem  # of a file, too
        base_key = f"{name}/base"
        if base_key not in results:
            results[base_key] = thumbs.score(None)
            save(args.json, results)
        preferences = args.preference or [name for name in PREFERENCES if name not in TUNING]
        for seed in SEEDS[: args.seeds]:
            for preference in preferences:
                for way in args.way or OPTIONS:
                    key = "/".join([name, preference, way, str(seed), *args.option, *rehearsed])
                    if key not in results:
                        results[key] = thumbs.learned(preference, way, seed, OPTIONS[way] | given)
                        save(args.json, results)
                        print(key, summary(preference, results[key], results[base_key]), flush=True)
    show(results)


def save(path: Path, results: dict[str, Found]) -> None:
    path.write_text(json.dumps(results, indent=1) + "\n")


class Thumbs:
    """A model with questions to ask it and prompts to test it."""

    def __init__(
        self, folder: Path, model: str, chat_template: Path | None, wikitext2: Path, rehearse: str | None
    ) -> None:
        self.rehearse = rehearse
        self.folder, self.bundle, self.general = folder, folder / "bundle", folder / "general.txt"
        mobile_ft.export_bundle(
            model, self.bundle, max_seq_len=MAX_SEQ_LEN, chat_template=chat_template, progress=False
        )
        write_wikitext(wikitext2, self.bundle, self.general)
        write_data(folder / "dialogues")
        lines = (folder / "dialogues" / "train.jsonl").read_text().splitlines()
        asked = (json.loads(line)["messages"][0]["content"] for line in lines)
        self.questions = list(dict.fromkeys(question for question in asked if len(question.split()) > 3))
        self.prompts = Path(__file__).with_name("thumbs_prompts.txt").read_text().splitlines()
        self.model = mobile_ft.load(self.bundle)
        self.own: dict[int, list[tuple[str, str]]] = {}
        if rehearse:
            self.plain = folder / "plain"
            mobile_ft.export_bundle(model, self.plain, max_seq_len=MAX_SEQ_LEN, progress=False)

    @cached_property
    def texts(self) -> list[dict[str, str]]:
        """Rows of what the base model writes without a prompt."""
        model = mobile_ft.load(self.plain)
        drawn = [model.generate("", max_tokens=TEXT_TOKENS, temp=1.0, seed=1000 + i) for i in range(TEXTS)]
        return [{"text": text.text} for text in drawn]

    def own_answers(self, seed: int) -> list[tuple[str, str]]:
        """Questions of this seed with the base model's answers."""
        if seed not in self.own:
            self.model.use_adapter(None)
            chosen = random.Random(seed).sample(self.questions, QUESTIONS)
            drawn: dict[str, Any] = {"max_tokens": OWN_TOKENS, "temp": 0.7, "seed": seed}
            answers = [self.model.generate(question, **drawn).text for question in chosen]
            self.own[seed] = [
                (question, whole(first_turn(answer))) for question, answer in zip(chosen, answers, strict=True)
            ]
        return self.own[seed]

    def rows(self, preference: str, way: str, seed: int) -> list[dict[str, Any]]:
        meets, correct = PREFERENCES[preference]
        rows: list[dict[str, Any]] = []
        for question, own in self.own_answers(seed):
            prompt = [{"role": "user", "content": question}]
            good, bad = [{"role": "assistant", "content": text} for text in (own if meets(own) else correct(own), own)]
            if way == "dpo":
                rows += [] if meets(own) else [{"prompt": prompt, "chosen": [good], "rejected": [bad]}]
            elif way == "sft":
                rows += [{"messages": [*prompt, good]}] * (2 if meets(own) else 1)
            else:
                rows += [{"messages": [*prompt, good], "label": True}]
                rows += [{"messages": [*prompt, bad], "label": meets(own)}]
        return rows

    def learned(self, preference: str, way: str, seed: int, options: dict[str, Any]) -> Found:
        out = self.folder / "adapter"
        shutil.rmtree(out, ignore_errors=True)
        rows = self.rows(preference, way, seed)
        start = time.monotonic()
        mobile_ft.train(self.bundle, rows, out, seq_len=SEQ_LEN, seed=seed, progress=False, **options)
        if self.rehearse:
            learned, out = out, self.folder / "rehearsed"
            shutil.rmtree(out, ignore_errors=True)
            once: dict[str, Any] = {"lr": self.rehearse, "epochs": 1, "adapter": learned}
            mobile_ft.train(self.plain, self.texts, out, seq_len=SEQ_LEN, seed=seed, progress=False, **once)
        seconds = time.monotonic() - start
        return self.score(out) | {"seconds": seconds}

    def score(self, adapter: Path | None) -> Found:
        self.model.use_adapter(adapter)
        answers = [first_turn(self.model.generate(prompt, max_tokens=MAX_TOKENS).text) for prompt in self.prompts]
        general = mobile_ft.evaluate(self.bundle, self.general, adapter=adapter, seq_len=SEQ_LEN, progress=False).ppl
        return {"answers": answers, "general": general}


def conforming(preference: str, found: Found) -> float:
    answers = found["answers"]
    return sum(PREFERENCES[preference][0](answer) for answer in answers) / len(answers)


def distinct_2(found: Found) -> float:
    """The share of distinct pairs of neighbouring words in all answers."""
    pairs = [pair for answer in found["answers"] for pair in zip(answer.split(), answer.split()[1:], strict=False)]
    return len(set(pairs)) / max(1, len(pairs))


def summary(preference: str, found: Found, base: Found) -> list[str]:
    """Conforming answers of the base model and afterwards, empty ones, distinct pairs, perplexity and seconds."""
    return [
        f"{100 * conforming(preference, base):.0f} %",
        f"{100 * conforming(preference, found):.0f} %",
        str(sum(not answer for answer in found["answers"])),
        f"{100 * distinct_2(found) / distinct_2(base):.0f} %",
        f"{100 * (found['general'] / base['general'] - 1):+.1f} %",
        f"{found['seconds']:.0f}",
    ]


def show(results: dict[str, Found]) -> None:
    table = Table("run", "base", "after", "empty", "distinct-2", "perplexity", "seconds")
    for key, found in results.items():
        model, preference, *_ = key.split("/")
        if preference != "base":
            table.add_row(key, *summary(preference, found, results[f"{model}/base"]))
    Console().print(table)


if __name__ == "__main__":
    main()
