"""The one exception that is the user's to mend."""


class UserError(Exception):
    """A mistake in the input. The message is one line naming the file, row or value and what would be right."""


class MobileFtWarning(UserWarning):
    """Something in the input that was put up with: a row that was cut, say. The message is one line."""
