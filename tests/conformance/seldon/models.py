"""The cases' classes as folders that the gateway can serve: one for every class, environment and set of parameters."""

import json
import shutil
from pathlib import Path

from conformance.seldon.cases import Case

CLASSES = Path(__file__).resolve().parents[2] / "data" / "seldon" / "seldon_models.py"


def serving_name(case: Case) -> str:
    """The folder's name for the case's class; the same for cases that ask for the same."""
    given = json.dumps([case.get("env", {}), case.get("args", [])], sort_keys=True)
    mark = "" if given == "[{}, []]" else f"-{case['id']}"
    return f"{case['model']}{mark}"


def write(case: Case, folder: Path) -> None:
    """Lay the class out, unless it lies there already."""
    if folder.exists():
        return
    (folder / "1").mkdir(parents=True)
    shutil.copy(CLASSES, folder / "1" / CLASSES.name)
    lines = ['backend = "pyclass"', "[pyclass]", f'entry = "{CLASSES.stem}:{case["model"]}"']
    if parameters := _parameters(case):
        lines.append(f"parameters = {{ {', '.join(f'{name} = {value}' for name, value in parameters.items())} }}")
    if environment := case.get("env"):
        lines.append("[pyclass.environment]")
        lines += [f"{name} = {json.dumps(value)}" for name, value in environment.items()]
    (folder / "model.toml").write_text("\n".join(lines), "utf-8")


def _parameters(case: Case) -> dict[str, str]:
    """What the wrapper was given on its command line."""
    arguments = case.get("args", [])
    if "--parameters" not in arguments:
        return {}
    given = json.loads(arguments[arguments.index("--parameters") + 1])
    return {one["name"]: one["value"] for one in given}
