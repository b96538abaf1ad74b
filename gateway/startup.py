"""What a gateway says once it has started."""

from collections.abc import Iterable, Sequence

from gateway import __version__, repository
from gateway.config import Config
from gateway.server import Assembly
from gateway.summary import VersionSummary


def banner(assembly: Assembly, port: int) -> Iterable[str]:
    """Where it answers, and what."""
    host = assembly.config.gateway.host
    shown = f"[{host}]" if ":" in host else host
    models = assembly.models.describe()
    yield f"tensorgate {__version__} on http://{shown}:{port}"
    if assembly.config.gateway.grpc_port:
        yield f"  grpc       {shown}:{assembly.config.gateway.grpc_port}"
    yield f"  protocols  {', '.join(assembly.adapters)}"
    providers = sorted({one.provider for one in models if one.provider})
    notes = sorted({note for one in models for note in one.note.split("; ") if note})
    device = ", ".join(providers) or "none yet"
    yield f"  device     {device}" + (f" ({'; '.join(notes)})" if notes else "")
    for service in assembly.directory:
        if service.name != service.model or service.protected:
            key = ", needs a key" if service.protected else ""
            yield f"  service    {service.name} -> {service.model} ({service.type}{key})"
    yield from (f"  problem    {text}" for text in unasked(assembly.config))
    yield from (f"  {line}" for line in table(models))
    problems = dict(assembly.models.problems)
    default = assembly.config.default_service
    if default and assembly.directory.get(default) is None:
        problems["default_service"] = f"there is no service {default!r}"
    yield from (f"  problem    {name}: {problem}" for name, problem in problems.items())


def control_banner(host: str, port: int, first_token: str | None) -> Iterable[str]:
    """Where the control plane answers people and programs, and, the first time, what opens it."""
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    yield f"  console    {url}/console"
    yield f"  control    {url}/control/v1"
    if first_token is not None:
        yield f"  token      {first_token}"
        yield "             the first administrator's, shown this once: sign in with it, or set TENSORGATE_TOKEN"


def unasked(settings: Config) -> list[str]:
    """Services whose keys nobody needs: allowed, but seldom meant."""
    return [
        f"services.{name}: it has keys, but app_auth is not true, so nobody needs them"
        for name, service in settings.services.items()
        if not service.app_auth and (service.app_codes or service.aws_credentials)
    ]


def table(models: Sequence[VersionSummary]) -> Iterable[str]:
    """One line a version, columns aligned; signatures after the first have lines of their own."""
    if not models:
        yield f"no models: a model is a folder NAME with {repository.MODEL_FILE} or NAME/1/{repository.MODEL_FILE}"
        return
    rows = [("MODEL", "VERSION", "STATE", "RUNS ON", "LOADED IN", "SIGNATURES")]
    rows += [
        (
            one.name,
            f"{one.version}{''.join(f' [{label}]' for label in one.labels)}",
            one.state,
            one.provider or "-",
            f"{one.load_seconds * 1e3:.0f} ms" if one.provider else "-",
            one.signatures[0] if one.signatures else "-",
        )
        for one in models
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    column = " " * sum(width + 2 for width in widths[:-1])
    for row, one in zip(rows, [None, *models], strict=True):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        if one is not None:
            yield from (f"{column}{signature}" for signature in one.signatures[1:])
            if one.error:
                yield f"    {one.error}"
