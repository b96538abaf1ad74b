"""Who may import whom, how large things may get and what is never done, read from the source of every file."""

import ast
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("gateway", "adapters", "backends")

LANGUAGE = {"gateway.types", "gateway.errors", "gateway.interfaces"}
"""What all three rooms speak; the plugins may import nothing else of the gateway."""

MAY_IMPORT_OWN = {
    "gateway.types": set(),
    "gateway.errors": set(),
    "gateway.interfaces": {"gateway.types", "gateway.errors"},
}
"""The language itself stands on nothing."""

ADAPTER_LIBRARIES = {
    "numpy",
    "msgspec",
    "simdjson",
    "orjson",
    "pybase64",
    "prometheus_client",
    "google",
    "python_multipart",
    "PIL",
}
"""`google` is protobuf."""

HTTP_MODULES = {
    f"gateway.{name}"
    for name in ("admin", "app", "cli", "cycle", "listener", "protocol", "server", "proxy", "websocket", "control.api")
}
CONFINED: dict[str, Callable[[str], bool]] = {
    **dict.fromkeys(("starlette", "uvicorn", "sse_starlette"), lambda name: name in HTTP_MODULES or _console(name)),
    **dict.fromkeys(("onnxruntime", "onnx"), lambda name: name.startswith("backends.")),
    "grpc": lambda name: name in ("gateway.rpc", "gateway.rpcreplay"),
    **dict.fromkeys(("orjson", "simdjson", "pybase64"), lambda name: name.startswith("adapters.")),
}
"""Library -> whether the module of that name may import it."""

INPUT_AND_OUTPUT = {
    *("asyncio", "http", "logging", "multiprocessing", "os", "pathlib", "selectors", "shutil", "signal", "socket"),
    *("sqlite3", "ssl", "subprocess", "tempfile", "urllib.request"),
}
"""What pure functions do without. An adapter's module `environment` is none: it is asked once, at start."""

KNOWN_TO = {
    "gateway.pipeline": {"gateway.app", "gateway.conversation", "gateway.rpc", "gateway.server"},
    "gateway.app": {"gateway.server"},
    "gateway.server": {"gateway.cli", "gateway.front", "gateway.startup"},
    "gateway.cli": {"gateway.__main__"},
}
"""The floors of the house from the hot path upwards, and who may import each."""

MAY_IMPORT_BY_NAME = "gateway.plugins"

NEVER_IMPORTED = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
NEVER_CALLED = {"eval", "exec", "__import__", "os.system", "os.popen"}
NEVER_PASSED = {"shell", "allow_pickle"}
"""Keywords that must never be True."""
NEVER_NAMED = {"BaseHTTPMiddleware"}
NEVER_A_FILE = {"utils", "util", "helpers", "helper", "common", "base", "core", "manager", "misc"}

FILE_LINES, FILE_MEDIAN = 400, 150
FUNCTION_LINES, FUNCTION_P95, FUNCTION_MEDIAN = 70, 40, 8

Function = ast.FunctionDef | ast.AsyncFunctionDef


def _console(name: str) -> bool:
    return name.startswith("gateway.console.")


class Module:
    """One source file."""

    def __init__(self, name: str, source: str) -> None:
        self.name = name
        self.source = source
        self.tree = ast.parse(source)

    @property
    def room(self) -> str:
        return self.name.partition(".")[0]

    @property
    def lines(self) -> int:
        return self.source.count("\n")

    def calls(self) -> Iterator[ast.Call]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    @cached_property
    def imports(self) -> list[str]:
        """Every module imported anywhere in the file; `from a import b` counts as `a.b`."""
        return list(_imports(ast.walk(self.tree)))

    @cached_property
    def own(self) -> set[str]:
        """The modules of our rooms that it imports."""
        return {_module_of(name) if "." in name else name for name in self.imports if name.partition(".")[0] in ROOMS}


def _imports(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names)


def _module_of(name: str) -> str:
    """`gateway.errors.GatewayError` as `gateway.errors`: the longest beginning that is a file, else two parts of it."""
    parts = name.split(".")
    whole = [".".join(parts[:length]) for length in range(len(parts), 1, -1)]
    return next((part for part in whole if _path(part).with_suffix(".py").is_file() or _path(part).is_dir()), whole[-1])


def _path(name: str) -> Path:
    return ROOT.joinpath(*name.split("."))


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _read(*folders: str) -> list[Module]:
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    written = [path for path in files if not path.stem.endswith("_pb2")]  # those are generated
    return [Module(_name(path), path.read_text("utf-8")) for path in written]


HOUSE = _read(*ROOMS)
EVERYTHING = [*HOUSE, *_read("tests", "scripts")]


# The rules: each yields what a module does wrong...


def own_imports(module: Module) -> Iterator[str]:
    """Rooms keep to themselves: gateway names no plugin, plugins speak only the language and their own files."""
    allowed = MAY_IMPORT_OWN.get(module.name)
    for name in sorted(module.own - {module.name}):
        if allowed is not None:
            good = name in allowed
        elif module.room == "gateway":
            good = name.partition(".")[0] == "gateway"
        else:
            good = name in LANGUAGE or _same_plugin(module, name)
        if not good:
            yield f"imports {name}"


def _same_plugin(module: Module, name: str) -> bool:
    """Whether `name` is a shared file (leading underscore) or lies in the same package as the module."""
    room, _, rest = name.partition(".")
    plugin = rest.partition(".")[0]
    return room == module.room and (plugin.startswith("_") or plugin == module.name.split(".")[1])


def adapter_libraries(module: Module) -> Iterator[str]:
    """Adapters need numpy, codecs and what of the standard library neither opens nor waits: they are pure functions."""
    if module.room != "adapters":
        return
    allowed = {*sys.stdlib_module_names, *ADAPTER_LIBRARIES, *ROOMS}
    pure = not module.name.endswith(".environment")
    for name in module.imports:
        outward = any(name == one or name.startswith(f"{one}.") for one in INPUT_AND_OUTPUT)
        if name.partition(".")[0] not in allowed or (pure and outward):
            yield f"imports {name}"
    if any(ast.unparse(call.func) == "open" for call in module.calls()):
        yield "calls open"


def floors(module: Module) -> Iterator[str]:
    """What stands higher is not known below."""
    for name in sorted(module.own & KNOWN_TO.keys() - {module.name}):
        if module.name not in KNOWN_TO[name]:
            yield f"imports {name}"


def confined_libraries(module: Module) -> Iterator[str]:
    """The web framework, the model runtime and the wire's codecs are each known in one place."""
    for name in module.imports:
        allowed = CONFINED.get(name.partition(".")[0])
        if allowed is not None and not allowed(module.name):
            yield f"imports {name}"


def visible_imports(module: Module) -> Iterator[str]:
    """Own imports stand at the top of the file, absolute, and nothing is imported by a computed name."""
    hidden = _imports(node for function in module.functions() for node in ast.walk(function))
    yield from (f"imports {name} inside a function" for name in hidden if name.partition(".")[0] in ROOMS)
    yield from (f"imports {name} relatively" for name in module.imports if name.startswith("."))
    if module.name != MAY_IMPORT_BY_NAME and any(name.startswith("importlib.import_module") for name in module.imports):
        yield "imports import_module"
    for call in module.calls():
        if module.name != MAY_IMPORT_BY_NAME and ast.unparse(call.func) == "importlib.import_module":
            yield "imports by name"


def forbidden_things(module: Module) -> Iterator[str]:
    """No code from data, no shell, no middleware that costs a task switch a request."""
    yield from (f"imports {name}" for name in module.imports if name.partition(".")[0] in NEVER_IMPORTED)
    for call in module.calls():
        if ast.unparse(call.func) in NEVER_CALLED:
            yield f"calls {ast.unparse(call.func)}"
        for keyword in call.keywords:
            if keyword.arg in NEVER_PASSED and ast.unparse(keyword.value) != "False":
                yield f"passes {keyword.arg}"
    for name in NEVER_NAMED:
        if name in module.source:
            yield f"names {name}"


def file_names(module: Module) -> Iterator[str]:
    """A name says what is inside."""
    yield from (f"is called {part}" for part in module.name.split(".") if part.strip("_") in NEVER_A_FILE)


def sizes(module: Module) -> Iterator[str]:
    """What is too long to be read at once holds more than one idea."""
    if module.lines > FILE_LINES:
        yield f"has {module.lines} lines"
    for function in module.functions():
        if _length(function) > FUNCTION_LINES:
            yield f"{function.name} has {_length(function)} lines"


def _length(function: Function) -> int:
    return (function.end_lineno or function.lineno) - function.lineno + 1


def docstrings(module: Module) -> Iterator[str]:
    """Modules and their public functions and classes say what they are for."""
    if ast.get_docstring(module.tree) is None:
        yield "has no docstring"
    for node in module.tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node):
            yield f"{node.name} has no docstring"


def empty_packages(module: Module) -> Iterator[str]:
    """Importing a room of plugins loads no plugin."""
    if module.name in ("adapters", "backends") and len(module.tree.body) > 1:
        yield "holds more than a docstring"


def documented_tests(module: Module) -> Iterator[str]:
    """A test says in one sentence what must be true."""
    for function in module.functions():
        if module.room == "tests" and function.name.startswith("test_") and not ast.get_docstring(function):
            yield f"{function.name} has no docstring"


RULES: dict[Callable[[Module], Iterator[str]], list[Module]] = {
    own_imports: HOUSE,
    adapter_libraries: HOUSE,
    floors: HOUSE,
    confined_libraries: HOUSE,
    visible_imports: HOUSE,
    forbidden_things: HOUSE,
    docstrings: HOUSE,
    empty_packages: HOUSE,
    file_names: EVERYTHING,
    sizes: EVERYTHING,
    documented_tests: EVERYTHING,
}
"""Rule -> the files that must keep it."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule_holds(rule: Callable[[Module], Iterator[str]]) -> None:
    """Every file of the house keeps every rule."""
    assert [f"{module.name} {fault}" for module in RULES[rule] for fault in rule(module)] == []


@pytest.mark.parametrize(
    ("rule", "name", "source", "fault"),
    [
        (own_imports, "gateway.routing", "from adapters import tfserving", "imports adapters.tfserving"),
        (own_imports, "adapters.seldon", "from gateway.models import Models", "imports gateway.models"),
        (own_imports, "adapters.seldon", "import backends.ort", "imports backends.ort"),
        (own_imports, "backends.ort", "from adapters import _csv", "imports adapters._csv"),
        (own_imports, "gateway.types", "from gateway.errors import GatewayError", "imports gateway.errors"),
        (adapter_libraries, "adapters.seldon", "from starlette.requests import Request", "starlette.requests.Request"),
        (adapter_libraries, "adapters._csv", "import urllib.request", "imports urllib.request"),
        (adapter_libraries, "adapters.tfserving.rows", "from asyncio import to_thread", "imports asyncio.to_thread"),
        (adapter_libraries, "adapters.seldon", "open('x')", "calls open"),
        (floors, "gateway.auth", "from gateway.pipeline import Pipeline", "imports gateway.pipeline"),
        (floors, "gateway.observe", "from gateway import app", "imports gateway.app"),
        (confined_libraries, "gateway.pipeline", "import starlette.responses", "imports starlette.responses"),
        (confined_libraries, "gateway.models", "import onnxruntime", "imports onnxruntime"),
        (confined_libraries, "backends.echo", "import orjson", "imports orjson"),
        (visible_imports, "gateway.app", "def f():\n    from gateway import types", "gateway.types inside a function"),
        (visible_imports, "gateway.app", "from . import types", "relatively"),
        (visible_imports, "gateway.app", "import importlib\nimportlib.import_module('x')", "imports by name"),
        (forbidden_things, "gateway.app", "from pickle import loads", "imports pickle.loads"),
        (forbidden_things, "gateway.app", "eval('1')", "calls eval"),
        (forbidden_things, "gateway.app", "run('ls', shell=True)", "passes shell"),
        (forbidden_things, "gateway.app", "import x.BaseHTTPMiddleware", "names BaseHTTPMiddleware"),
        (file_names, "gateway.utils", "", "is called utils"),
        (sizes, "gateway.app", "x = 1\n" * 401, "has 401 lines"),
        (sizes, "gateway.app", "async def f():\n" + "    x = 1\n" * 70, "f has 71 lines"),
        (docstrings, "gateway.app", "'Doc.'\ndef serve():\n    pass", "serve has no docstring"),
        (docstrings, "gateway.app", "x = 1", "has no docstring"),
        (empty_packages, "adapters", "'Doc.'\nimport os", "holds more"),
        (documented_tests, "tests.test_x", "def test_y():\n    pass", "test_y has no docstring"),
    ],
)
def test_rule_catches(rule: Callable[[Module], Iterator[str]], name: str, source: str, fault: str) -> None:
    """Each rule finds the fault it is there for, so that a clean run means something."""
    assert fault in "; ".join(rule(Module(name, source)))


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("adapters.seldon", "from adapters._tensorjson import decode\nfrom gateway.types import Call\nimport json"),
        ("adapters.sagemaker.environment", "import os"),
        ("adapters.tfserving.predict", "from adapters.tfserving import errors\nimport numpy as np\nimport simdjson"),
        ("backends.ort", "import onnxruntime\nfrom backends._image import decode"),
        ("gateway.app", "from starlette.applications import Starlette\nfrom gateway import config"),
    ],
)
def test_rules_allow(name: str, source: str) -> None:
    """What the architecture wants passes every import rule."""
    rules = (own_imports, adapter_libraries, floors, confined_libraries, visible_imports, forbidden_things)
    assert [fault for rule in rules for fault in rule(Module(name, source))] == []


def test_no_import_cycle() -> None:
    """No module needs itself, however far around."""
    edges = {module.name: module.own - {module.name} for module in HOUSE}
    assert _cycle(edges) == []
    assert _cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) == ["a", "b", "c", "a"]


def _cycle(edges: dict[str, set[str]]) -> list[str]:
    """Some cycle of the graph, its first node repeated at the end; empty if there is none."""
    done: set[str] = set()

    def visit(node: str, trail: list[str]) -> list[str]:
        if node in trail:
            return [*trail[trail.index(node) :], node]
        if node not in done:
            for following in sorted(edges.get(node, ())):
                if found := visit(following, [*trail, node]):
                    return found
            done.add(node)
        return []

    return next((found for node in sorted(edges) if (found := visit(node, []))), [])


def test_typical_sizes() -> None:
    """Most files and functions are small: the caps above are for exceptions."""
    lengths = sorted(_length(function) for module in HOUSE for function in module.functions())
    assert statistics.median(lengths) <= FUNCTION_MEDIAN
    assert lengths[len(lengths) * 95 // 100] <= FUNCTION_P95
    assert statistics.median(module.lines for module in HOUSE) <= FILE_MEDIAN


def test_every_adapter_has_cases() -> None:
    """A protocol is not done without a folder of conformance tests of its own."""
    adapters = {module.name.split(".")[1] for module in HOUSE if module.name.startswith("adapters.")}
    public = sorted(name for name in adapters if not name.startswith("_"))
    assert public
    assert [name for name in public if not any((ROOT / "tests" / "conformance" / name).glob("*"))] == []
