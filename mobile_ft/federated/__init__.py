"""Federated fine-tuning on Flower: devices train LoRA on their own rows, and a server puts their changes together.

`client_app()` and `server_app()` are what a Flower app's pyproject.toml names; docs/tutorials/fleet.md tells how to run
them.
"""

from mobile_ft.federated.client import client_app
from mobile_ft.federated.fedsvd import FedSvd
from mobile_ft.federated.server import server_app
from mobile_ft.federated.strategy import LoraStrategy

__all__ = ["FedSvd", "LoraStrategy", "client_app", "server_app"]
