"""What every part of the package needs of files: JSON with limits, safe replacement, paths under any locale."""
