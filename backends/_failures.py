"""What ONNX Runtime raises, turned into texts that may be shown and into errors of the house."""

import re
from collections.abc import Iterable
from pathlib import Path

from onnxruntime.capi.onnxruntime_pybind11_state import DeviceReset, EPFail, InvalidArgument

from gateway.errors import GatewayError, InferenceFailed, InvalidTensor, OutOfMemory

MAX_CHARS = 500

_LOADING = re.compile(r"Load model from .*? failed: ?")
_PREFIX = re.compile(r"\[ONNXRuntimeError\] : \d+ : \w+ : ")
_NODE = re.compile(r"Non-zero status code returned while running (\w+) node\. ?Name: ?'[^']*' Status Message: ")
_SOURCE = r"(?:\b[A-Za-z]:)?[\\/]\S*\.(?:h|hpp|cc|cpp|cu|cuh):\d+ "
_SIGNATURE = r"[\w:~<>*&, ]*\(.*?\)(?: const)?(?: \[with [^\]]*\])? "
_CHECK = re.compile(_SOURCE + r".*? was false\. (?=\S)", re.DOTALL)
_FUNCTION = re.compile(_SOURCE + rf"(?:{_SIGNATURE})?", re.DOTALL)
_BARE_SOURCE = re.compile(r"\b\w+\.(?:h|hpp|cc|cpp|cu|cuh):\d+ (?:operator\(\)|[\w:~]+) ")
"""Newer kernels tell the file without its path, and the function without its arguments."""
_PATH = re.compile(r"(?<![\w.])(?:[A-Za-z]:)?[\\/][^\s'\"(),;]*")
_DETAIL = re.compile(r"\s*;\s*(?:(?:GPU|hostname|file|line|expr)=[^;]*|$)")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]{6,}\b")

_ARGUMENTS = "Invoked with:"
"""A call whose arguments do not fit is told with all of them, tensors included."""

_SHAPES = re.compile(
    r"shape|dimension|broadcast|\brank\b|\baxis\b|\bind(?:ex|ices)\b|\blengths?\b|\bsizes?\b|out of (?:data )?bounds",
    re.I,
)
_BY_ZERO = re.compile(r"(?:division|modulo) by zero", re.I)
_DEVICE = re.compile(r"cuda|cudnn|cublas|cufft|curand|nvrtc|nvidia|execution ?provider", re.I)
_MEMORY = re.compile(r"failed to allocate memory|out of memory|bad.?alloc|bfc_?arena", re.I)


def may_be_logged(error: Exception) -> bool:
    """Whether the error may be logged as it is, with its traceback."""
    return _ARGUMENTS not in str(error)


def logged(error: Exception) -> str:
    """The error's whole text, save for the values of the request."""
    return str(error).partition(_ARGUMENTS)[0].rstrip()


def shown(error: Exception, hide: Iterable[Path] = ()) -> str:
    """The error's text without paths, node names or addresses; names of files that lie in `hide` stay."""
    text = logged(error)
    for folder in sorted(map(str, hide), key=len, reverse=True):
        text = text.replace(f"{folder}/", "").replace(folder, "")
    text = _NODE.sub(r"\1: ", _LOADING.sub("", _PREFIX.sub("", text)))
    text = _DETAIL.sub("", _BARE_SOURCE.sub("", _FUNCTION.sub("", _CHECK.sub("", text))))
    text = " ".join(_ADDRESS.sub("", _PATH.sub("", text)).split())
    return text if len(text) <= MAX_CHARS else f"{text[:MAX_CHARS]}..."


def answer(error: Exception, proven: bool, hide: Iterable[Path] = ()) -> GatewayError:
    """The error that the client gets; `proven` says that the model has answered before.

    A model that has answered before and now stumbles does so over this request: a shape, an index, a division by
    zero, a text that is no number. Shapes, indices and zeros are the request's even before: the zeros that a model is
    warmed up with prove nothing. A device that fails is another matter.
    """
    if isinstance(error, UnicodeDecodeError):
        return InferenceFailed("the model gave a string that is not UTF-8")
    if out_of_memory(error):
        return OutOfMemory("there is not enough memory to run the model on this request")
    text = shown(error, hide)
    if isinstance(error, InvalidArgument):
        return InvalidTensor(text)
    if (proven or about_shapes(error) or _BY_ZERO.search(text)) and not of_device(error):
        return InvalidTensor(f"the model cannot take these inputs: {text}")
    return InferenceFailed(f"the model failed: {text}")


def about_shapes(error: Exception) -> bool:
    """Whether a kernel complains of sizes or indices."""
    return bool(_SHAPES.search(shown(error))) and not out_of_memory(error)


def of_device(error: Exception) -> bool:
    """Whether it is CUDA that failed, and not the model or the request."""
    if isinstance(error, InvalidArgument):
        return False
    # Asked of the text as shown: the paths of ONNX Runtime's sources say "cuda" too.
    return isinstance(error, EPFail | DeviceReset) or bool(_DEVICE.search(shown(error))) or out_of_memory(error)


def out_of_memory(error: Exception) -> bool:
    """Whether memory ran out: the device is sound, only this request was too large for it."""
    return isinstance(error, MemoryError) or bool(_MEMORY.search(str(error)))
