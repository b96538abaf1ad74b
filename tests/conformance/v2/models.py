"""The models that the cases call: an echo for every datatype, texts, and two that are run by ONNX Runtime."""

from pathlib import Path

import onnx_models

DTYPES = {
    "BOOL": "bool",
    **{f"{sign}INT{bits}": f"{sign}int{bits}".lower() for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "FP16": "float16",
    "FP32": "float32",
    "FP64": "float64",
    "BF16": "bfloat16",
    "BYTES": "string",
}
"""Datatype to what a model declares."""

_ECHO = 'backend = "echo"\n[echo.inputs.x]\ndtype = "{dtype}"\n'

_MORE = {
    "two": 'backend = "echo"\n[echo.inputs.a]\ndtype = "float32"\nshape = [-1, 2]\n[echo.inputs.b]\ndtype = "int64"\n',
    "grid": 'backend = "echo"\n[echo.inputs.x]\ndtype = "float32"\nshape = [-1, -1, 2]\n',
    "rows": 'backend = "echo"\n[echo.inputs.x]\ndtype = "float32"\nshape = [-1, 2]\n',
    "text": 'backend = "echo"\n[echo]\nsuffix = "_out"\n[echo.inputs.prompt]\ndtype = "string"\nshape = [-1]\n',
    "slow": 'backend = "echo"\n[echo]\ndelay_ms = 3000\n[echo.inputs.x]\ndtype = "float32"\n',
    "float8": 'backend = "echo"\n[echo.inputs.x]\ndtype = "float8e4m3fn"\n',
}


_CLASS = """
from seldon_core.flask_utils import SeldonMicroserviceException


class Service:
    def predict(self, X, names, meta=None):
        if X.dtype.kind == "b":
            raise SeldonMicroserviceException("no truths please", status_code=418)
        return {"texts": X.tolist()} if X.dtype.kind in "OU" else X * 2
"""


def write(folder: Path) -> None:
    """Lay them out."""
    tables = {name: _ECHO.format(dtype=dtype) for name, dtype in DTYPES.items()} | _MORE
    for name, text in tables.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "model.toml").write_text(text, "utf-8")
    (folder / "python" / "1").mkdir(parents=True)
    (folder / "python" / "1" / "service.py").write_text(_CLASS, "utf-8")
    (folder / "python" / "model.toml").write_text(
        'backend = "pyclass"\n[pyclass]\nentry = "service:Service"\n', "utf-8"
    )
    for version in (1, 2):
        onnx_models.write(onnx_models.identity(dims=("N", 2)), folder / "versions" / str(version))
    (folder / "versions" / "model.toml").write_text('versions = "all"\nlabels = { stable = 1 }\n', "utf-8")


def write_extra(folder: Path) -> None:
    """One more, for those who load by call."""
    onnx_models.write(onnx_models.identity(), folder / "extra" / "1")
