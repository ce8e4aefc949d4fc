"""From rows to token file: what is learned of each kind of row, cutting, and `prepare` as a whole."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from mobile_ft.data.packing import NO_LOSS, EncodedPair, EncodedRow
from mobile_ft.data.prepare import DataStats, EncodedRows, encode_rows, prepare
from mobile_ft.data.rows import DataSource, FileRow, JsonRow, Row
from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError

Bundle = Callable[..., Path]
LONG = 10_000


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def row(where: str = "x:1", **values: Any) -> JsonRow:
    return JsonRow(where, json.dumps(values))


def chat_row(*messages: dict[str, Any], **values: Any) -> JsonRow:
    return row(messages=messages, **values)


def pair_row(prompt: str, completion: str, **values: Any) -> JsonRow:
    return row(prompt=prompt, completion=completion, **values)


def sft_rows(encoded: EncodedRows) -> list[EncodedRow]:
    assert all(isinstance(row, EncodedRow) for row in encoded.rows)
    return cast(list[EncodedRow], encoded.rows)


def encode_one(row: Row, tokenizer: Tokenizer, seq_len: int = LONG) -> EncodedRow:
    (encoded,) = sft_rows(encode_rows([row], tokenizer, seq_len))
    assert encoded.tokens.dtype == encoded.targets.dtype == np.int32
    assert encoded.tokens.shape == encoded.targets.shape
    return encoded


def whole(row: EncodedRow, last: int) -> list[int]:
    """The row's tokens, given the one after its last place."""
    return [*row.tokens.tolist(), last]


def learned(row: EncodedRow, tokenizer: Tokenizer) -> list[str]:
    """The text of each run of targets; checks that a target is the token that follows."""
    runs: list[list[int]] = []
    before = NO_LOSS
    for place, target in enumerate(row.targets.tolist()):
        if target != NO_LOSS:
            assert place + 1 == len(row.tokens) or target == row.tokens[place + 1]
            if before == NO_LOSS:
                runs.append([])
            runs[-1].append(target)
        before = target
    return [tokenizer.decode(run) for run in runs]


@pytest.fixture
def chat(tiny_bundle: Bundle, chatml: str) -> Tokenizer:
    return Tokenizer(tiny_bundle("chat", chat_template=chatml, eos_token="<|im_end|>"))


@pytest.fixture
def plain(tiny_bundle: Bundle) -> Tokenizer:
    return Tokenizer(tiny_bundle("plain"))


def test_chat_learns_assistant_turns(chat: Tokenizer) -> None:
    messages = [user("one?"), assistant("1 é"), user("two?"), assistant("2"), user("thanks")]
    encoded = encode_one(chat_row(*messages), chat)
    assert learned(encoded, chat) == ["1 é<|im_end|>\n", "2<|im_end|>\n"]
    assert chat.decode(whole(encoded, chat.encode("\n")[0])) == chat.render_chat(messages)


def test_chat_where_answers_repeat_the_prompt(chat: Tokenizer) -> None:
    encoded = encode_one(chat_row(user("same"), assistant("same"), user("same"), assistant("")), chat)
    assert learned(encoded, chat) == ["same<|im_end|>\n", "<|im_end|>\n"]
    assert np.flatnonzero(encoded.targets != NO_LOSS)[0] > chat.render_chat([user("same")]).count("same")


def test_pair_goes_through_the_chat_template(chat: Tokenizer) -> None:
    pair, turns = pair_row("hi", "yo"), chat_row(user("hi"), assistant("yo"))
    encoded, expected = encode_one(pair, chat), encode_one(turns, chat)
    assert encoded.tokens.tolist() == expected.tokens.tolist()
    assert encoded.targets.tolist() == expected.targets.tolist()
    assert learned(encoded, chat) == ["yo<|im_end|>\n"]


def test_pair_without_a_chat_template(tiny_bundle: Bundle) -> None:
    for name, add_bos, start in [("a", False, ""), ("b", True, "<|im_start|>")]:
        tokenizer = Tokenizer(tiny_bundle(name, add_bos_token=add_bos))
        encoded = encode_one(pair_row("ab é", "c é"), tokenizer)
        assert learned(encoded, tokenizer) == ["c é<|endoftext|>"]
        assert tokenizer.decode(whole(encoded, tokenizer.eos_id)) == start + "ab éc é<|endoftext|>"


def test_token_that_straddles_the_start_of_the_completion_is_learned(plain: Tokenizer) -> None:
    """The tokenizer joins " " and "y"; leaving that token out would leave "y" unlearned."""
    assert learned(encode_one(pair_row("a ", "yes"), plain), plain) == [" yes<|endoftext|>"]


def test_text_is_learned_everywhere(tiny_bundle: Bundle, chatml: str) -> None:
    for name, add_bos, text in [("a", False, "b é<|endoftext|>"), ("b", True, "ab é<|endoftext|>")]:
        tokenizer = Tokenizer(tiny_bundle(name, add_bos_token=add_bos, chat_template=chatml))
        assert learned(encode_one(row(text="ab é"), tokenizer), tokenizer) == [text]


def test_text_windows_predict_every_token_once(plain: Tokenizer, tmp_path: Path) -> None:
    text = "".join(chr(97 + i % 26) for i in range(103))
    for length, ends, last in [(100, False, 9), (101, False, 10), (102, False, 1), (100, True, 10)]:
        file = tmp_path / "x.txt"
        file.write_text(text[:length])
        given = row(text=text[:length]) if ends else FileRow("x.txt", file)
        encoded = encode_rows([given], plain, seq_len=10)
        rows = sft_rows(encoded)
        lengths = [len(one.tokens) for one in rows]
        assert lengths[:-1] == [10] * (len(lengths) - 1) and lengths[-1] == last
        expected = plain.encode(text[:length]) + ([plain.eos_id] if ends else [])
        assert np.concatenate([one.targets for one in rows]).tolist() == expected[1:]
        assert np.concatenate([one.tokens for one in rows]).tolist() == expected[:-1]
        assert (encoded.truncated, encoded.dropped) == (0, 0)


def test_each_window_begins_with_bos(tiny_bundle: Bundle, tmp_path: Path) -> None:
    tokenizer = Tokenizer(tiny_bundle("bos", add_bos_token=True))
    for length, lengths in [(9, [9]), (10, [10]), (11, [10, 1]), (31, [10, 10, 10, 1])]:
        text = "".join(chr(97 + i % 26) for i in range(length))
        file = tmp_path / "x.txt"
        file.write_text(text)
        rows = sft_rows(encode_rows([FileRow("x.txt", file)], tokenizer, seq_len=10))
        assert [len(one.tokens) for one in rows] == lengths
        expected = tokenizer.encode(text)
        assert np.concatenate([one.targets for one in rows]).tolist() == expected
        for i, one in enumerate(rows):
            assert one.tokens.tolist() == [tokenizer.bos_id, *expected[10 * i : 10 * i + 9]][: len(one.tokens)]


def test_long_rows_lose_their_end(plain: Tokenizer) -> None:
    fits, long, cut_off = (pair_row("p" * n, "c" * 5) for n in (4, 5, 10))
    encoded = encode_rows([fits, long, cut_off], plain, seq_len=9)
    assert (encoded.truncated, encoded.dropped) == (1, 1)
    assert [learned(row, plain) for row in sft_rows(encoded)] == [["ccccc<|endoftext|>"], ["ccccc"]]
    assert [len(row.tokens) for row in sft_rows(encoded)] == [9, 9]


def test_the_last_token_within_reach_is_learned(plain: Tokenizer) -> None:
    """After 10 tokens of prompt, 10 places hold the completion's first token as a target."""
    encoded = encode_rows([pair_row("p" * 10, "cd")], plain, seq_len=10)
    assert [learned(row, plain) for row in sft_rows(encoded)] == [["c"]]


def test_empty_rows_are_dropped(plain: Tokenizer) -> None:
    rows: list[Row] = [row(text=""), row("x:2", text="ab"), pair_row("", "", where="x:3")]
    encoded = encode_rows(rows, plain, seq_len=8)
    assert (len(encoded.rows), encoded.dropped) == (1, 2)


def test_nothing_left_to_learn(plain: Tokenizer) -> None:
    with pytest.raises(UserError, match="^x:1 and all following rows: no tokens to train on within 3 tokens"):
        encode_rows([pair_row("long prompt", "c")], plain, seq_len=3)
    with pytest.raises(UserError, match="seq_len 0: must be at least 1"):
        encode_rows([row(text="ab")], plain, seq_len=0)


def test_rows_the_model_cannot_take(plain: Tokenizer, tiny_bundle: Bundle) -> None:
    chat = chat_row(user("a"), assistant("b"), user("c"), assistant("d"), where="x:7")
    with pytest.raises(UserError, match="^x:7: the model has no chat template"):
        encode_rows([chat], plain, LONG)
    strict = "{% if messages|length > 2 %}{{ raise_exception('too long') }}{% endif %}"
    with pytest.raises(UserError, match="^x:7: .*too long"):
        encode_rows([chat], Tokenizer(tiny_bundle("strict", chat_template=strict)), LONG)


def test_answers_that_a_template_leaves_out_are_not_learned(tiny_bundle: Bundle) -> None:
    last_only = "{% for m in messages %}{{ m.role }}:{{ m.content if loop.last }};{% endfor %}"
    tokenizer = Tokenizer(tiny_bundle("last", chat_template=last_only))
    encoded = encode_one(chat_row(user("a"), assistant("b"), user("c"), assistant("d")), tokenizer)
    assert learned(encoded, tokenizer) == ["assistant:d;"]  # all of the turn: no prompt begins it


def test_bad_rows_are_skipped_if_wanted(plain: Tokenizer) -> None:
    rows = [row(f"x:{i}", text="good") if i % 2 else row(f"x:{i}", txt="bad") for i in range(40)]
    with pytest.raises(UserError, match='^x:0: the row has "txt"; it must have'):
        encode_rows(rows, plain, LONG)
    encoded = encode_rows(rows, plain, LONG, options={"on_bad_row": "skip"})
    assert (len(encoded.rows), encoded.read, encoded.bad) == (20, 40, 20)
    assert len(encoded.bad_rows) == 10 and encoded.bad_rows[9].startswith('x:18: the row has "txt"')
    with pytest.raises(UserError, match="^x:0: the row has .*; 20 of 20 rows are malformed"):
        encode_rows(rows[::2], plain, LONG, options={"on_bad_row": "skip"})


@pytest.mark.parametrize(
    ("name", "content", "errors"),
    [
        (
            "x.csv",
            b"text,weight\na,1\nb\nc,heavy\nd\xff,1\ne,1,2\nf,1\n",
            [
                ":3: must have one cell per column (2)",
                ":4: \"weight\" is 'heavy'; it must be a number",
                ":5: is not UTF-8; save the file as UTF-8",
                ":6: must have one cell per column (2)",
            ],
        ),
        ("x.jsonl", b'{"text": "a"}\n{"text": "\xff"}\n{"text": "b"}\n', [":2: byte 11 is not UTF-8"]),
    ],
)
def test_rows_that_cannot_be_read_are_skipped_if_wanted(
    name: str, content: bytes, errors: list[str], plain: Tokenizer, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    stats = prepare(file, "train", plain, 32, 0, tmp_path / "out", options={"on_bad_row": "skip"})
    assert (stats.rows - stats.bad, stats.bad) == (2, len(errors))
    for found, expected in zip(stats.bad_rows, errors, strict=True):
        assert found.startswith(f"{file}{expected}")
    with pytest.raises(UserError, match=re.escape(f"{file}{errors[0]}")):
        prepare(file, "train", plain, 32, 0, tmp_path / "out")


def test_rows_in_memory_that_cannot_be_read_are_skipped_if_wanted(plain: Tokenizer, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": "a"}, {"text": object()}, {"text": "b"}]
    stats = prepare(rows, "train", plain, 32, 0, tmp_path / "out", options={"on_bad_row": "skip"})
    assert (stats.rows, stats.bad) == (3, 1) and stats.bad_rows[0].startswith("row 2: ")


def test_what_is_learned(chat: Tokenizer, plain: Tokenizer) -> None:
    turns = chat_row(user("one?"), assistant("1"), user("two?"), assistant("2"))
    (last,) = sft_rows(encode_rows([turns], chat, LONG, options={"assistant_turns": "last"}))
    assert learned(last, chat) == ["2<|im_end|>\n"]
    (all_of_it,) = sft_rows(encode_rows([turns], chat, LONG, options={"mask_prompt": "false"}))
    assert all_of_it.targets.tolist()[:-1] == all_of_it.tokens.tolist()[1:]
    (pair,) = sft_rows(encode_rows([pair_row("p", "c")], plain, LONG, options={"mask_prompt": "false"}))
    assert learned(pair, plain) == ["c<|endoftext|>"] and len(pair.tokens) == 2


def test_texts_with_their_own_ends_get_no_others(tiny_bundle: Bundle) -> None:
    tokenizer = Tokenizer(tiny_bundle("bos", add_bos_token=True))
    bos, eos = "<|im_start|>", "<|endoftext|>"
    for given in (row(text=f"{bos}ab{eos}"), row(text="ab"), pair_row(f"{bos}a", f"b{eos}")):
        encoded = encode_one(given, tokenizer)
        assert tokenizer.decode(whole(encoded, int(encoded.targets[-1]))) == f"{bos}ab{eos}"


def preference(prompt: str, chosen: str, rejected: str, weight: float = 1.0) -> JsonRow:
    return row(prompt=prompt, chosen=chosen, rejected=rejected, weight=weight)


def encode_pair(row: JsonRow, tokenizer: Tokenizer, seq_len: int = LONG) -> EncodedPair:
    (pair,) = encode_rows([row], tokenizer, seq_len, "dpo").rows
    assert isinstance(pair, tuple)
    return pair


def test_preferences_learn_both_completions(chat: Tokenizer, plain: Tokenizer) -> None:
    pair = preference("hi", "yes", "no!")
    for tokenizer, end in [(chat, "<|im_end|>\n"), (plain, "<|endoftext|>")]:
        chosen, rejected = encode_pair(pair, tokenizer)
        assert learned(chosen, tokenizer) == ["yes" + end]
        assert learned(rejected, tokenizer) == ["no!" + end]
        for side, answer in [(chosen, "yes"), (rejected, "no!")]:
            assert side.tokens.tolist() == encode_one(pair_row("hi", answer), tokenizer).tokens.tolist()


def test_preferences_learn_nothing_of_answers_before_the_completion(chat: Tokenizer) -> None:
    before = [user("one?"), assistant("1"), user("two?")]
    chosen, rejected = encode_pair(row(prompt=before, chosen=[assistant("2")], rejected=[assistant("3")]), chat)
    assert learned(chosen, chat) == ["2<|im_end|>\n"]
    assert learned(rejected, chat) == ["3<|im_end|>\n"]


def test_each_side_of_a_preference_has_half_the_places(plain: Tokenizer) -> None:
    fits = preference("p" * 4, "c" * 6, "d")  # 10 places, the completion's six tokens, EOS
    too_long = preference("p" * 4, "c", "d" * 7)
    no_completion = preference("p" * 11, "c", "d")
    encoded = encode_rows([fits, too_long, no_completion], plain, 21, "dpo")
    assert (encoded.truncated, encoded.dropped) == (1, 1)
    sides = [[learned(side, plain)[0] for side in cast(EncodedPair, pair)] for pair in encoded.rows]
    assert sides == [["cccccc<|endoftext|>", "d<|endoftext|>"], ["c<|endoftext|>", "ddddddd"]]
    with pytest.raises(
        UserError,
        match="^x:1 and all following rows: no tokens to train on within 10 tokens .half of seq_len for each answer",
    ):
        encode_rows([no_completion], plain, 21, "dpo")
    with pytest.raises(UserError, match="seq_len 1: must be at least 2"):
        encode_rows([fits], plain, 1, "dpo")


def test_a_preference_counts_as_one_row_with_kto(plain: Tokenizer) -> None:
    both_long, one_long = preference("p", "c" * 30, "d" * 30), preference("p", "c", "d" * 30)
    no_room, weightless = preference("p" * 30, "c", "d"), preference("p", "c", "d", weight=0)
    encoded = encode_rows([both_long, one_long, no_room, weightless], plain, 10, "kto")
    assert (encoded.read, len(encoded.rows), encoded.truncated, encoded.dropped) == (4, 4, 2, 2)


def test_one_long_side_is_enough_to_drop_a_preference(chat: Tokenizer) -> None:
    short, long = ([user(text), assistant("c")] for text in ("p", "p" * 60))
    for chosen, rejected in [(short, long), (long, short)]:
        encoded = encode_rows([preference("p", "c", "d"), row(chosen=chosen, rejected=rejected)], chat, 80, "dpo")
        assert (len(encoded.rows), encoded.dropped) == (1, 1)


def test_rows_for_another_loss(plain: Tokenizer) -> None:
    with pytest.raises(UserError, match='^x:1: is a preference, with "chosen" and "rejected"; use loss dpo'):
        encode_rows([preference("p", "c", "d")], plain, LONG)
    with pytest.raises(
        UserError, match='^x:2: is not a preference; loss dpo requires "prompt", "chosen" and "rejected"'
    ):
        encode_rows([row("x:2", text="a")], plain, LONG, "dpo")


def test_weights_of_rows(plain: Tokenizer) -> None:
    rows: list[Row] = [
        row(text="a" * 30, weight=0.5),
        pair_row("p", "c", weight=2, where="x:2"),
        pair_row("p", "c", where="x:3"),
        pair_row("p", "c", weight=0, where="x:4"),
        pair_row("p", "c", weight=1e-60, where="x:5"),  # too small for the file's float32
    ]
    encoded = encode_rows(rows, plain, seq_len=16)
    assert [row.weight for row in sft_rows(encoded)] == [0.5, 0.5, 2, 1]
    assert encoded.dropped == 2
    chosen, rejected = encode_pair(preference("p", "c", "d", weight=3), plain)
    assert chosen.weight == rejected.weight == 3
    with pytest.raises(UserError, match="no tokens to train on"):
        encode_rows([preference("p", "c", "d", weight=0)], plain, LONG, "dpo")


def test_half_a_surrogate_pair_is_refused(plain: Tokenizer) -> None:
    for given in [row(text="a\ud83d"), pair_row("a", "b\ud83d")]:
        with pytest.raises(UserError, match="^x:1: not JSON; .*surrogate"):
            encode_rows([given], plain, LONG)


def test_smollm2_chat(smollm2_bundle: Path) -> None:
    tokenizer = Tokenizer(smollm2_bundle)
    row = chat_row(user("2+2?"), assistant("It is 4."), user("Sure?"), assistant("\n100%"))
    encoded = encode_one(row, tokenizer)
    # "assistant\n" and "\n100%" share the token "\n\n".
    assert learned(encoded, tokenizer) == ["It is 4.<|im_end|>\n", "\n\n100%<|im_end|>\n"]
    text = tokenizer.decode(encoded.tokens.tolist())
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")


def write_rows(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_prepare(chat: Tokenizer, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"messages": [user("a"), assistant("b")]},
        {"prompt": "q" * 5, "completion": "c" * 5},
        {"question": "q", "answer": "d" * 60},
        {"prompt": "q" * 60, "completion": "c"},
        {"text": "t" * 70},
    ]
    write_rows(tmp_path / "train.jsonl", rows)
    out = tmp_path / "tokens.safetensors"
    stats = prepare(tmp_path, "train", chat, seq_len=40, seed=3, out=out)
    file = load_file(out)
    assert {name: (tensor.dtype.name, tensor.ndim) for name, tensor in file.items()} == {
        "tokens": ("int32", 1),
        "targets": ("int32", 1),
        "positions": ("int32", 1),
        "offsets": ("int64", 1),
    }
    places = [int(length) for length in np.diff(np.append(np.flatnonzero(file["positions"] == 0), stats.tokens))]
    first = len(chat.encode(chat.render_chat([user("a"), assistant("b")]))) - 1
    assert sorted(places) == sorted([first, first + 8, 40, 40, 30])
    learned_places = [3, 7, 40 - (first - 3), 40, 30]
    assert stats == DataStats(
        rows=5,
        sequences=len(file["offsets"]) - 1,
        tokens=len(file["tokens"]),
        target_tokens=sum(learned_places),
        truncated=1,
        dropped=1,
        forms={"chat messages": 1, "prompt and completion": 2, "question and answer": 1, "text": 1},
    )
    assert np.count_nonzero(file["targets"] != NO_LOSS) == sum(learned_places)


def test_prepare_is_deterministic(chat: Tokenizer, tmp_path: Path) -> None:
    write_rows(tmp_path / "train.jsonl", [{"text": "x" * (3 + i % 17)} for i in range(50)])
    files = []
    for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
        prepare(tmp_path, "train", chat, seq_len=32, seed=seed, out=tmp_path / name)
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1] != files[2]


def test_training_needs_no_torch() -> None:
    code = "import sys, mobile_ft.data.prepare; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_prepare_writes_nothing_for_bad_rows(chat: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "good"}\n{"text": 3}\n')
    with pytest.raises(UserError, match=r"train\.jsonl:2: "):
        prepare(tmp_path, "train", chat, seq_len=8, seed=0, out=tmp_path / "tokens")
    assert [file.name for file in tmp_path.glob("tokens*")] == []


def test_prepare_weights(chat: Tokenizer, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{"text": "t" * 9, "weight": 2.5}, {"text": "u" * 4}]
    out = tmp_path / "tokens.safetensors"
    prepare(rows, "train", chat, seq_len=32, seed=0, out=out)
    file = load_file(out)
    assert file["weights"].dtype == np.float32
    expected = np.where(file["tokens"] == chat.encode("t")[0], 2.5, 1)
    assert file["weights"].tolist() == expected.tolist() and 2.5 in expected
    prepare(rows[1:], "train", chat, seq_len=32, seed=0, out=out)
    assert "weights" not in load_file(out)


def test_prepare_preferences(chat: Tokenizer, tmp_path: Path) -> None:
    rows = [{"prompt": f"p{i}", "chosen": f"c{i}" * (i % 5), "rejected": f"r{i}"} for i in range(30)]
    out = tmp_path / "tokens.safetensors"
    stats = prepare({"train": rows}, "train", chat, seq_len=120, seed=0, out=out, loss="dpo")
    with safe_open(out, "numpy") as file:
        assert file.metadata() == {"rows": "pairs"}
    tensors = load_file(out)
    assert stats.rows == 30 and stats.tokens == len(tensors["tokens"])
    prompts = []
    for start, end in zip(tensors["offsets"][:-1], tensors["offsets"][1:], strict=True):
        starts = [start + place for place in np.flatnonzero(tensors["positions"][start:end] == 0)] + [end]
        texts = [chat.decode(tensors["tokens"][a:b].tolist()) for a, b in zip(starts[:-1], starts[1:], strict=True)]
        for chosen, rejected in zip(texts[::2], texts[1::2], strict=True):
            (prompt,) = re.findall(r"user\np(\d+)", chosen)
            assert chosen.endswith(f"assistant\n{f'c{prompt}' * (int(prompt) % 5)}<|im_end|>")
            assert rejected.endswith(f"user\np{prompt}<|im_end|>\n<|im_start|>assistant\nr{prompt}<|im_end|>")
            prompts.append(int(prompt))
    assert sorted(prompts) == list(range(30))


def test_prepare_takes_rows_from_anywhere(chat: Tokenizer, tmp_path: Path) -> None:
    rows = [{"text": f"text {i}"} for i in range(20)]
    write_rows(tmp_path / "train.jsonl", rows)
    sources: list[DataSource] = [tmp_path, str(tmp_path / "train.jsonl"), rows, {"train": rows}]
    files = set()
    for data in sources:
        prepare(data, "train", chat, seq_len=32, seed=1, out=tmp_path / "out")
        files.add((tmp_path / "out").read_bytes())
    assert len(files) == 1
