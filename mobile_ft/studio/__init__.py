"""A local page on which a model is fine-tuned: `mobile-ft studio`."""
