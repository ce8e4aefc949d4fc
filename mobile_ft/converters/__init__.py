"""What `mobile-ft convert` writes, one file a target; `fine_tuned` is what all of them read."""
