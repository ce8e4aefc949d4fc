"""Training data: reads rows and tokenizes them."""
