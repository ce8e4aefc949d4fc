"""Holds a training process to its budget and sees where its memory lies, by the kernel's own figures."""
