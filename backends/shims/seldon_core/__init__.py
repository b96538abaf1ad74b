"""As much of Seldon's Python package as classes that were written for it import; the real one is used where it is."""
