"""Finds what is bright in a picture and answers as a detection model does: a class, a box and a confidence."""

import base64
import io

import numpy as np
from PIL import Image
from seldon_core.flask_utils import SeldonMicroserviceException


class inference_service(object):
    def __init__(self, threshold=128):
        self.threshold = threshold

    def predict(self, X, features_names):
        bright = self.pixels(X) > self.threshold
        if not bright.any():
            return {"dclasses": [], "dobjects": [], "dconfidences": []}
        rows, columns = np.flatnonzero(bright.any(1)), np.flatnonzero(bright.any(0))
        x, y = int(columns[0]), int(rows[0])
        width, height = int(columns[-1]) + 1 - x, int(rows[-1]) + 1 - y
        filled = bright[y : y + height, x : x + width].mean()
        return {"dclasses": ["bright"], "dobjects": [[x, y, width, height]], "dconfidences": [round(float(filled), 3)]}

    def pixels(self, X):
        """Shades of grey: from base64 text or the bytes of a PNG or JPEG, or one picture's numbers as they are."""
        if isinstance(X, np.ndarray) and X.size == 1:
            X = X.item()
        try:
            if isinstance(X, str):
                X = base64.b64decode(X, validate=True)
            if isinstance(X, bytes):
                return np.asarray(Image.open(io.BytesIO(X)).convert("L"))
        except (ValueError, OSError):
            raise SeldonMicroserviceException("strData must be the base64 of a PNG or JPEG file") from None
        if X.ndim != 2:
            raise SeldonMicroserviceException(f"expected one picture of shape [height, width], got {list(X.shape)}")
        return X
