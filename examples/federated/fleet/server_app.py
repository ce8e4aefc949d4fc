"""What the server runs."""

from mobile_ft.federated import server_app

app = server_app()
