"""Federated fine-tuning with Flower: devices train LoRA on their own rows, and a server aggregates their changes.

A Flower app's pyproject.toml names `client_app()` and `server_app()`; docs/tutorials/fleet.md shows how to run them.
"""

from mobile_ft.federated.client import client_app
from mobile_ft.federated.fedsvd import FedSvd
from mobile_ft.federated.server import server_app
from mobile_ft.federated.strategy import LoraStrategy

__all__ = ["FedSvd", "LoraStrategy", "client_app", "server_app"]
