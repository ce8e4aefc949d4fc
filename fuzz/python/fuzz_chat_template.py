"""A chat template, through the rendering of a chat."""

import json
from pathlib import Path

from mobile_ft.tokenizer import Tokenizer
from tests.harmful_templates import CHAT, HARMFUL
from tests.small_tokenizer import small_tokenizer


def seeds() -> list[bytes]:
    published = [
        "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] | trim }}{% endfor %}",
        "{%- set n = namespace(x=0) %}{%- for m in messages[::-1] %}{% set n.x = n.x + 1 %}{% endfor %}{{ n.x }}",
        "{% macro m(x) %}{{ x|tojson(indent=2) }}{% endmacro %}{{ m(messages) }}",
        "{{ messages|map(attribute='role')|join(',')|replace('user', 'b') }}",
        "{% if m is string and 'a' in m.split('b')[-1].strip() %}{{ raise_exception('no') }}{% endif %}",
    ]
    return [source.encode(errors="surrogatepass") for source in (*published, *HARMFUL) if len(source) < 500]


def run(data: bytes, folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(small_tokenizer())
    config = {"eos_token": "</s>", "chat_template": data.decode(errors="surrogateescape")}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    Tokenizer(folder).render_chat(CHAT, add_generation_prompt=True)
