"""The command line `mobile-ft`, one file per command."""
