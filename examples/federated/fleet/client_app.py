"""What a device runs."""

from mobile_ft.federated import client_app

app = client_app()
