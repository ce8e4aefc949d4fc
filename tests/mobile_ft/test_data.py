"""From rows to token file: what is learned of each kind of row, cutting, and `prepare` as a whole."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from mobile_ft.data import DataStats, encode_rows, prepare
from mobile_ft.errors import UserError
from mobile_ft.packing import NO_LOSS, EncodedRow
from mobile_ft.rows import ChatRow, PairRow, Row, TextRow
from mobile_ft.tokenizer import Tokenizer

Bundle = Callable[..., Path]
LONG = 10_000


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def encode_one(row: Row, tokenizer: Tokenizer, seq_len: int = LONG) -> EncodedRow:
    (encoded,) = encode_rows([row], tokenizer, seq_len).rows
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
    row = ChatRow("x:1", [user("one?"), assistant("1 é"), user("two?"), assistant("2"), user("thanks")])
    encoded = encode_one(row, chat)
    assert learned(encoded, chat) == ["1 é<|im_end|>\n", "2<|im_end|>\n"]
    assert chat.decode(whole(encoded, chat.encode("\n")[0])) == chat.render_chat(row.messages)


def test_chat_where_answers_repeat_the_prompt(chat: Tokenizer) -> None:
    encoded = encode_one(ChatRow("x:1", [user("same"), assistant("same"), user("same"), assistant("")]), chat)
    assert learned(encoded, chat) == ["same<|im_end|>\n", "<|im_end|>\n"]
    assert np.flatnonzero(encoded.targets != NO_LOSS)[0] > chat.render_chat([user("same")]).count("same")


def test_pair_goes_through_the_chat_template(chat: Tokenizer) -> None:
    pair, turns = PairRow("x:1", "hi", "yo"), ChatRow("x:1", [user("hi"), assistant("yo")])
    encoded, expected = encode_one(pair, chat), encode_one(turns, chat)
    assert encoded.tokens.tolist() == expected.tokens.tolist()
    assert encoded.targets.tolist() == expected.targets.tolist()
    assert learned(encoded, chat) == ["yo<|im_end|>\n"]


def test_pair_without_a_chat_template(tiny_bundle: Bundle) -> None:
    for name, add_bos, start in [("a", False, ""), ("b", True, "<|im_start|>")]:
        tokenizer = Tokenizer(tiny_bundle(name, add_bos_token=add_bos))
        encoded = encode_one(PairRow("x:1", "ab é", "c é"), tokenizer)
        assert learned(encoded, tokenizer) == ["c é<|endoftext|>"]
        assert tokenizer.decode(whole(encoded, tokenizer.eos_id)) == start + "ab éc é<|endoftext|>"


def test_token_that_straddles_the_start_of_the_completion_is_learned(plain: Tokenizer) -> None:
    """The tokenizer joins " " and "y"; leaving that token out would leave "y" unlearned."""
    assert learned(encode_one(PairRow("x:1", "a ", "yes"), plain), plain) == [" yes<|endoftext|>"]


def test_text_is_learned_everywhere(tiny_bundle: Bundle, chatml: str) -> None:
    for name, add_bos, text in [("a", False, "b é<|endoftext|>"), ("b", True, "ab é<|endoftext|>")]:
        tokenizer = Tokenizer(tiny_bundle(name, add_bos_token=add_bos, chat_template=chatml))
        assert learned(encode_one(TextRow("x:1", "ab é", ends=True), tokenizer), tokenizer) == [text]


def test_text_windows_predict_every_token_once(plain: Tokenizer) -> None:
    text = "".join(chr(97 + i % 26) for i in range(103))
    for length, ends, last in [(100, False, 9), (101, False, 10), (102, False, 1), (100, True, 10)]:
        encoded = encode_rows([TextRow("x.txt", text[:length], ends)], plain, seq_len=10)
        lengths = [len(row.tokens) for row in encoded.rows]
        assert lengths[:-1] == [10] * (len(lengths) - 1) and lengths[-1] == last
        expected = plain.encode(text[:length]) + ([plain.eos_id] if ends else [])
        assert np.concatenate([row.targets for row in encoded.rows]).tolist() == expected[1:]
        assert np.concatenate([row.tokens for row in encoded.rows]).tolist() == expected[:-1]
        assert (encoded.truncated, encoded.dropped) == (0, 0)


def test_long_rows_lose_their_end(plain: Tokenizer) -> None:
    fits, long, cut_off = (PairRow("x:1", "p" * n, "c" * 5) for n in (4, 5, 10))
    encoded = encode_rows([fits, long, cut_off], plain, seq_len=9)
    assert (encoded.truncated, encoded.dropped) == (1, 1)
    assert [learned(row, plain) for row in encoded.rows] == [["ccccc<|endoftext|>"], ["ccccc"]]
    assert [len(row.tokens) for row in encoded.rows] == [9, 9]


def test_the_last_token_within_reach_is_learned(plain: Tokenizer) -> None:
    """After 10 tokens of prompt, 10 places hold the completion's first token as a target."""
    encoded = encode_rows([PairRow("x:1", "p" * 10, "cd")], plain, seq_len=10)
    assert [learned(row, plain) for row in encoded.rows] == [["c"]]


def test_empty_rows_are_dropped(plain: Tokenizer) -> None:
    rows: list[Row] = [TextRow("x:1", "", ends=True), TextRow("x:2", "ab", ends=True), PairRow("x:3", "", "")]
    encoded = encode_rows(rows, plain, seq_len=8)
    assert (len(encoded.rows), encoded.dropped) == (1, 2)


def test_nothing_left_to_learn(plain: Tokenizer) -> None:
    with pytest.raises(UserError, match="^x:1 and all rows after it: nothing to learn within 3 tokens"):
        encode_rows([PairRow("x:1", "long prompt", "c")], plain, seq_len=3)
    with pytest.raises(UserError, match="sequence length 0"):
        encode_rows([TextRow("x:1", "ab", ends=True)], plain, seq_len=0)


def test_rows_the_model_cannot_take(plain: Tokenizer, tiny_bundle: Bundle) -> None:
    row = ChatRow("x:7", [user("a"), assistant("b"), user("c"), assistant("d")])
    with pytest.raises(UserError, match="^x:7: the model has no chat template"):
        encode_rows([row], plain, LONG)
    strict = "{% if messages|length > 2 %}{{ raise_exception('too long') }}{% endif %}"
    with pytest.raises(UserError, match="^x:7: .*too long"):
        encode_rows([row], Tokenizer(tiny_bundle("strict", chat_template=strict)), LONG)
    # As templates do that show the thoughts of the last turn only.
    last_only = "{% for m in messages %}{{ m.role }}:{{ m.content if loop.last }};{% endfor %}"
    with pytest.raises(UserError, match="^x:7: .*before message 2.*split the chat"):
        encode_rows([row], Tokenizer(tiny_bundle("last", chat_template=last_only)), LONG)


def test_long_text_is_tokenized_in_chunks_without_a_trace(
    smollm2_bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer(smollm2_bundle)
    text = "A line, 12 of them.\n\n  Indented; naïve 🙂\nx\n" * 20
    expected = tokenizer.encode(text)
    monkeypatch.setattr("mobile_ft.data._CHUNK", 50)
    encoded = encode_one(TextRow("x.txt", text, ends=False), tokenizer)
    assert whole(encoded, int(encoded.targets[-1])) == expected


def test_smollm2_chat(smollm2_bundle: Path) -> None:
    tokenizer = Tokenizer(smollm2_bundle)
    row = ChatRow("x:1", [user("2+2?"), assistant("It is 4."), user("Sure?"), assistant("\n100%")])
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
    code = "import sys, mobile_ft.data; sys.exit(bool({'torch', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_prepare_writes_nothing_for_bad_rows(chat: Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"text": "good"}\n{"text": 3}\n')
    with pytest.raises(UserError, match=r"train\.jsonl:2: "):
        prepare(tmp_path, "train", chat, seq_len=8, seed=0, out=tmp_path / "tokens")
    assert [file.name for file in tmp_path.glob("tokens*")] == []
