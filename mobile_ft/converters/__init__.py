"""The targets of `mobile-ft convert`, one file per target. All of them read a model by `fine_tuned`."""
