"""The training bundle: its description, its weights file and its signature."""
