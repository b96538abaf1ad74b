"""Requests that come together are answered together: one run of the model for the rows of all of them."""
