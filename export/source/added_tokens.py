"""Tokens that were added to a tokenizer: the model must have a row of its embedding for each."""

from mobile_ft.data.tokenizer import Tokenizer
from mobile_ft.errors import UserError
from mobile_ft.model.config import ModelConfig


def check_added_tokens(tokenizer: Tokenizer, config: ModelConfig, file: str) -> None:
    """Raises UserError naming the `file` and the first token beyond the embedding.

    Two kinds may be beyond it, since no text for training holds them: a token for padding, and special ones of a family
    that shares its tokenizer with models with vision, as <image_soft_token> of Gemma 3 with 1 billion parameters.
    """
    beyond = {i: token for i, token in tokenizer.added_tokens().items() if i >= config.vocab_size}
    with_vision = config.family.inside is not None
    for number, token in sorted(beyond.items()):
        if token.content == tokenizer.pad_token or (token.special and with_vision):
            continue
        raise UserError(
            f"{file}: added token {token.content!r} has the number {number}, but the model's embedding has "
            f"{config.vocab_size} rows (vocab_size), for numbers up to {config.vocab_size - 1}; resize the model's "
            "embedding to its tokenizer and save both, or take the token out of the tokenizer"
        )
