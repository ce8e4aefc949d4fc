"""The ServerApp, which runs on the server."""

from mobile_ft.federated import server_app

app = server_app()
