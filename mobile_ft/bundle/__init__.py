"""The training bundle: its description, the layout of its weights, its signature."""
