"""Measures how well a small model learns to call tools: `bench_tool_calls.py OUT`.

Exports SmolLM2-135M with a template in Hermes' format, trains on 300 generated rows, and lets the model call functions
for held-out questions, before and after. A call is correct if its function and all arguments are correct.
"""

import argparse
import json
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mobile_ft
from mobile_ft.cli.output import print_table

TEMPLATE = Path(__file__).with_name("hermes.jinja")
CITIES = "Lima Oslo Cairo Quito Paris Delhi Tokyo Accra Berlin Sydney Nairobi Toronto Lisbon Prague".split()  # noqa: SIM905
PEOPLE = "Anna Omar Lucia Chen Ivan Maya Tom Zara Paulo Kim Nils Aisha Ravi Elena Jonas Mei".split()  # noqa: SIM905
THINGS = ["milk", "bread", "two lamps", "a bicycle", "rice", "green tea", "a desk", "batteries", "soap", "a red coat"]
SUBJECTS = ["the meeting", "lunch", "the invoice", "our trip", "the keys", "the garden", "the report", "dinner"]
CURRENCIES = ["EUR", "USD", "JPY", "PEN", "INR", "NOK"]
TIMES = [f"{hour:02}:{minute:02}" for hour in range(6, 22) for minute in (0, 15, 30, 45)]

Arguments = dict[str, Any]


def tool(name: str, description: str, **parameters: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in parameters.items()}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


TOOLS = {
    "get_weather": tool("get_weather", "Weather of a city", city="string"),
    "set_alarm": tool("set_alarm", "Sets an alarm", time="string"),
    "send_message": tool("send_message", "Sends a message", to="string", about="string"),
    "convert_money": tool("convert_money", "Converts money", amount="integer", source="string", target="string"),
    "add_to_list": tool("add_to_list", "Adds to the shopping list", item="string"),
    "book_table": tool("book_table", "Books a table", city="string", people="integer", time="string"),
}


def draw(rng: random.Random, name: str) -> tuple[str, Arguments]:
    """Returns a question and the correct arguments."""
    city, person, when = rng.choice(CITIES), rng.choice(PEOPLE), rng.choice(TIMES)
    if name == "get_weather":
        return rng.choice(["What is the weather in {}?", "Is it raining in {}?", "How warm is {} today?"]).format(
            city
        ), {"city": city}
    if name == "set_alarm":
        return rng.choice(["Wake me at {}.", "Set an alarm for {}.", "I have to get up at {}."]).format(when), {
            "time": when
        }
    if name == "send_message":
        subject = rng.choice(SUBJECTS)
        asked = rng.choice(["Write {} about {}.", "Tell {} about {}.", "Send {} a message about {}."])
        return asked.format(person, subject), {"to": person, "about": subject}
    if name == "convert_money":
        source, target = rng.sample(CURRENCIES, 2)
        amount = rng.randint(2, 999)
        asked = rng.choice(["How much is {} {} in {}?", "Convert {} {} to {}.", "Change {} {} into {}."])
        return asked.format(amount, source, target), {"amount": amount, "source": source, "target": target}
    if name == "add_to_list":
        item = rng.choice(THINGS)
        return rng.choice(["Add {} to my list.", "We need {}.", "Remind me to buy {}."]).format(item), {"item": item}
    people = rng.randint(2, 9)
    asked = rng.choice(["Book a table for {1} in {0} at {2}.", "We are {1}, dinner in {0} at {2} please."])
    return asked.format(city, people, when), {"city": city, "people": people, "time": when}


def rows(rng: random.Random, count: int, known: set[str]) -> list[dict[str, Any]]:
    """Returns rows whose questions are not in `known`, and adds them to it."""
    found: list[dict[str, Any]] = []
    while len(found) < count:
        name = rng.choice(list(TOOLS))
        question, arguments = draw(rng, name)
        if question in known:
            continue
        known.add(question)
        offered = rng.sample([one for one in TOOLS if one != name], 2) + [name]
        rng.shuffle(offered)
        call = {"type": "function", "function": {"name": name, "arguments": arguments}}
        messages = [{"role": "user", "content": question}, {"role": "assistant", "content": None, "tool_calls": [call]}]
        found.append({"tools": [TOOLS[one] for one in offered], "messages": messages})
    return found


def called(text: str) -> Any:
    """Returns the name and the arguments of the call in an answer, or None."""
    match = re.search(r"<tool_call>\s*(.*?)\s*</tool_call>", text, re.DOTALL)
    try:
        return json.loads(match[1]) if match else None
    except ValueError:
        return None


def exact(ask: Callable[[dict[str, Any]], str], held_out: list[dict[str, Any]]) -> tuple[float, float]:
    """Returns the fractions of rows with the correct call, and with at least the correct function."""
    calls = functions = 0
    for row in held_out:
        wanted = row["messages"][1]["tool_calls"][0]["function"]
        found = called(ask(row))
        calls += found == wanted
        functions += isinstance(found, dict) and found.get("name") == wanted["name"]
    return calls / len(held_out), functions / len(held_out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=float, default=3)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--held-out", type=int, default=100)
    args = parser.parse_args()
    shutil.rmtree(args.out, ignore_errors=True)
    args.out.mkdir(parents=True)
    rng, known = random.Random(0), set[str]()
    train, held_out = rows(rng, 300, known), rows(rng, args.held_out, known)
    (args.out / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in train))
    bundle = args.out / "smollm2.bundle"
    mobile_ft.export_bundle("smollm2-135m", bundle, chat_template=TEMPLATE, max_seq_len=384, activation="int8")
    start = time.monotonic()
    options = {"epochs": args.epochs, "seq_len": 384, "lr": args.lr, "warmup_steps": 0}
    result = mobile_ft.train(bundle, args.out / "train.jsonl", args.out / "adapter", **options)
    minutes = (time.monotonic() - start) / 60
    model = mobile_ft.load(bundle, result.adapter)

    def ask(row: dict[str, Any]) -> str:
        return model.chat(row["messages"][:1], tools=row["tools"], max_tokens=80).text

    table = {"training": f"{len(result.losses)} steps, {minutes:.1f} minutes"}
    for name, adapter in (("before", None), ("after", result.adapter)):
        model.use_adapter(adapter)
        calls, functions = exact(ask, held_out)
        table[name] = f"{calls:.0%} of {len(held_out)} calls exact, {functions:.0%} of the functions correct"
    print_table("SmolLM2-135M calling tools", table)


if __name__ == "__main__":
    main()
