"""`mobile-ft generate`: answers one prompt."""

import argparse

from mobile_ft.bundle import Bundle, read_bundle, read_tokenizer
from mobile_ft.cli.arguments import Subparsers, add_adapter, add_bundle, integer
from mobile_ft.cli.native import Event, run_native
from mobile_ft.errors import UserError
from mobile_ft.tokenizer import TextStream, Tokenizer


def add_parser(commands: Subparsers) -> None:
    parser = commands.add_parser("generate", help="answer one prompt")
    add_bundle(parser)
    add_adapter(parser, "none, the model as it was exported")
    option = parser.add_argument
    option("--prompt", metavar="TEXT", required=True, help="put into the model's chat template if any")
    option("--max-tokens", metavar="N", type=integer(1), default=100, help="longest answer (default: 100)")
    option(
        "--temp",
        metavar="T",
        type=float,
        default=0.0,
        help="sampling temperature (default: 0, the likeliest)",
    )
    option("--seed", metavar="N", type=integer(0), default=0)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    bundle = read_bundle(args.bundle)
    tokenizer = read_tokenizer(bundle)
    prompt = _prompt_tokens(bundle, tokenizer, args.prompt)
    arguments = ["generate", str(bundle.folder), "--prompt-tokens", ",".join(map(str, prompt))]
    arguments += ["--stop-tokens", str(tokenizer.eos_id)]
    arguments += ["--max-tokens", str(args.max_tokens), "--temp", str(args.temp), "--seed", str(args.seed)]
    if args.adapter is not None:
        arguments += ["--adapter", str(args.adapter)]
    stream = TextStream(tokenizer)

    def on_event(event: Event) -> None:
        if event["event"] == "token":
            print(stream.add(event["id"]), end="", flush=True)

    run_native(arguments, on_event)
    print(stream.finish())


def _prompt_tokens(bundle: Bundle, tokenizer: Tokenizer, text: str) -> list[int]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError("--prompt: not UTF-8 text") from error
    if tokenizer.has_chat_template:
        chat = tokenizer.render_chat([{"role": "user", "content": text}], add_generation_prompt=True)
        tokens = tokenizer.encode(chat)
    else:
        tokens = tokenizer.encode(text, add_special=True)
    if not tokens:
        raise UserError("--prompt: empty")
    if len(tokens) >= bundle.max_seq_len:
        raise UserError(f"--prompt: {len(tokens)} tokens; {bundle.folder} takes {bundle.max_seq_len}, answer included")
    return tokens
