"""Mutates JSON as values: changed bytes hardly ever leave a text that is still JSON."""

import copy
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from typing import Any

_ODD: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 64, 2**31, 2**32, 2**63, 2**64, 10**400, 0.0, 0.5, 1e-320, 1e39, math.nan),
    *(math.inf, -math.inf, "", "a", "</s>", "\n\ud800\x1b", "x" * 2000, [], {}, [[]], [0], [None], {"": 0}, [[[[1]]]]),
]
_MOST_DEPTH = 100
_PARTS = re.compile(rb"([\0\n])")  # between files of one input, and rows of a file


def mutate(data: bytes, seed: int, otherwise: Callable[[bytes], bytes]) -> bytes:
    """Some values of one of the JSON texts in `data` change or go; of no JSON, and now and then, `otherwise`."""
    rng = random.Random(seed)
    parts = _PARTS.split(data)
    which = rng.randrange(0, len(parts), 2)
    try:
        value = [json.loads(parts[which])]
    except (ValueError, RecursionError):
        return otherwise(data)
    if rng.random() < 0.1 or not isinstance(value[0], dict | list):
        return otherwise(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        places = list(_places(value, 0))
        holder, key = rng.choice(places)
        if isinstance(holder, dict) and rng.random() < 0.1:
            holder[str(rng.choice(_ODD))] = holder.pop(key)
        elif len(places) > 1 and rng.random() < 0.2:
            other, other_key = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[other_key]))
        elif holder is not value and rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(rng.choice(_ODD))
    parts[which] = json.dumps(value[0]).encode()
    return b"".join(parts)


def _places(holder: Any, depth: int) -> Iterator[tuple[Any, Any]]:
    for key in list(holder if isinstance(holder, dict) else range(len(holder))):
        yield holder, key
        if isinstance(holder[key], dict | list) and depth < _MOST_DEPTH:
            yield from _places(holder[key], depth + 1)
