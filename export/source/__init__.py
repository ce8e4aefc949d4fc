"""Where a checkpoint's tensors, tokenizer and configuration come from."""
