"""Checks that the model's embedding has a row for each token that was added to the tokenizer."""

from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.model.config import ModelConfig


def check_added_tokens(tokenizer: Tokenizer, config: ModelConfig, file: str) -> None:
    """Raises UserError, with `file` and the token, if an added token is beyond the embedding.

    Two kinds of tokens are allowed beyond it, because training texts do not contain them: the padding token, and
    special tokens of a family whose tokenizer is shared with models with vision, such as <image_soft_token> of Gemma 3
    1B.
    """
    beyond = {i: token for i, token in tokenizer.added_tokens().items() if i >= config.vocab_size}
    for number, token in sorted(beyond.items()):
        if token.content == tokenizer.pad_token or (token.special and config.family.vision_tokens):
            continue
        raise UserError(
            f"{file}: added token {token.content!r} has id {number}, but the model's embedding has only "
            f"{config.vocab_size} rows (vocab_size), for ids up to {config.vocab_size - 1}; resize the model's "
            "embedding to its tokenizer and save both, or remove the token from the tokenizer"
        )
