"""Limits a training process to its budget and measures its memory by component, with the kernel's own figures."""
