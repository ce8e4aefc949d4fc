"""Reads the tensors, tokenizer and configuration of models."""
