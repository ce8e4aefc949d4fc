"""The one exception that is the user's to mend."""


class UserError(Exception):
    """A mistake in the input. The message is one line naming the file, row or value and what would be right."""
