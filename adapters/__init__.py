"""Wire protocols: one module each, pure functions from bytes to tensors and back."""
