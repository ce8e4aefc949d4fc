"""The command line `mobile-ft`: one file a command."""
