"""File helpers of the whole package: JSON with limits, atomic replacement, paths under any locale."""
