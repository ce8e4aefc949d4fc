"""Federated fine-tuning of SmolLM2, as a Flower app."""
