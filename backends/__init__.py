"""Model runtimes: tensors in, tensors out, no wire format."""
