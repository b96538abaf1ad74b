"""A detector that always finds the same three things, one of them with a name that would be a script."""

TRAP = "<img src=x onerror=alert(1)>"


class Finder:
    """As the platform's manual has a user's class."""

    def predict(self, given, names=None):
        """Boxes for a picture; for the word `text`, a text."""
        if isinstance(given, str) and given == "text":
            return [TRAP]
        return {
            "dclasses": ["cat", TRAP, "dog"],
            "dobjects": [[10, 20, 30, 40], [60, 5, 20.5, 20], [100, 90, 40, 50]],
            "dconfidences": [0.9, 0.5, 0.2],
        }
