"""The ClientApp, which runs on devices."""

from mobile_ft.federated import client_app

app = client_app()
