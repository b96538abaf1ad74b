"""The command `tensorgate`."""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import perf_counter

import httpx
import msgspec
import uvloop

from gateway import __version__, config, defaults, plugins, repository
from gateway.config import Config, ConfigError
from gateway.control.commands import add_commands
from gateway.models import Models
from gateway.paths import PathTable, pages_of
from gateway.programlog import begin_log
from gateway.protocols import load_adapters
from gateway.replay import Report, replay, told
from gateway.server import Assembly, serve
from gateway.sockets import listen, share
from gateway.startup import banner, control_banner, table, unasked
from gateway.summary import VersionSummary
from gateway.supervisor import Supervisor


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit code: 0 done, 1 it could not be done, 2 the command line is wrong."""
    options = _parser().parse_args(arguments)
    begin_log()
    try:
        return int(options.run(options))
    except ConfigError as error:
        print(f"tensorgate: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tensorgate", description="One inference gateway for many wire protocols.")
    parser.add_argument("--version", action="version", version=f"tensorgate {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, run: object, text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    started = command("serve", _serve, "Serve models until SIGTERM or Ctrl-C, then finish what is in flight.")
    _add_sources(started)
    started.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    started.add_argument("--port", type=int, help="port to listen on; 0 takes a free one (default 8080)")
    started.add_argument("--workers", type=_workers, metavar="N", help="processes that answer requests (default 1)")
    _add_device(started)
    checked = command("check", _check, "Check a configuration and its models' settings without loading anything.")
    checked.add_argument("config", type=Path, metavar="CONFIG", help="the TOML file")
    listed = command("routes", _routes, "List the paths that are served.")
    listed.add_argument("config", type=Path, nargs="?", metavar="CONFIG", help="the TOML file (default: all protocols)")
    shown = command("models", _models, "List models: of a running gateway, or loaded here to see whether they load.")
    _add_sources(shown)
    _add_device(shown)
    shown.add_argument("--url", default="http://127.0.0.1:8080", help="the running gateway (default %(default)s)")
    again = command("replay", _replay, "Ask the requests of a payload log again, and compare the answers.")
    again.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a file of the log, or its folder")
    again.add_argument("--url", default="http://127.0.0.1:8080", help="the gateway to ask (default %(default)s)")
    again.add_argument("--grpc", metavar="HOST:PORT", help="where to ask again what came over gRPC (default: nowhere)")
    again.add_argument("--connections", type=int, default=1, help="requests at a time (default %(default)s)")
    again.add_argument("--tolerance", type=float, default=1e-5, help="how far numbers may differ (default %(default)s)")
    again.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="sent along, as a key is")
    add_commands(commands)
    return parser


def _workers(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 256:
        raise argparse.ArgumentTypeError("expected 1 to 256")
    return number


def _add_sources(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", type=Path, nargs="?", metavar="CONFIG", help="a TOML file")
    parser.add_argument(
        "--models",
        type=Path,
        action="append",
        metavar="DIR",
        help="a folder of models; needs no CONFIG; may be repeated",
    )


def _add_device(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        help="where models run: auto takes CUDA where it works, cuda insists on it (default auto)",
    )


def _settings(options: argparse.Namespace) -> tuple[Config, Path, tuple[Path, ...]]:
    """The configuration with the command line's wishes in it, the folder its paths are relative to, and the models."""
    chosen = defaults.configured(options.config, options.models or ())
    wishes = {
        name: getattr(options, name)
        for name in ("host", "port", "device", "workers")
        if getattr(options, name, None) is not None
    }
    chosen = msgspec.structs.replace(chosen, gateway=msgspec.structs.replace(chosen.gateway, **wishes))
    base = options.config.parent if options.config else Path()
    roots = tuple(options.models) if options.models else config.models_dirs(chosen, options.config)
    single = {name: base / folder for name, folder in chosen.models.items()}
    for root in (*roots, *single.values()):
        if not root.is_dir():
            raise ConfigError(f"the models folder {root} {'is no folder' if root.exists() else 'does not exist'}")
    if not roots and not single and not chosen.models_control.enabled:
        if options.config is None:
            raise ConfigError("nothing to serve: give a CONFIG.toml or --models DIR")
        raise ConfigError(f"{options.config}: models_dir: no models folder is named; give one here or by --models DIR")
    return chosen, base, roots


def _serve(options: argparse.Namespace) -> int:
    settings, base, roots = _settings(options)
    control = plugins.load_control().prepare(settings, base) if settings.gateway.data_dir else None
    if control is not None:
        settings = msgspec.structs.replace(settings, services=control.services)

    def read() -> Config:
        return _settings(options)[0]

    with contextlib.ExitStack() as opened:
        gateway = settings.gateway
        many = gateway.workers > 1
        assembly = None if many else Assembly(settings, base, roots)
        if assembly is not None:
            assembly.prepare()
        socks = [
            opened.enter_context(sock) for sock in (share(gateway) if many else [listen(gateway.host, gateway.port)])
        ]
        admin = None
        if control is not None:
            admin = opened.enter_context(listen(gateway.admin_host, gateway.admin_port))

        def started(lines: Iterable[str]) -> None:
            print("\n".join(lines))
            if control is not None and admin is not None:
                shown = control_banner(gateway.admin_host, admin.getsockname()[1], control.first_token)
                print("\n".join(shown))
            sys.stdout.flush()

        controls = control and control.controls
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            if assembly is None:
                runner.run(Supervisor(settings, base, roots, socks, read).run(started, controls, admin))
            else:
                runner.run(
                    serve(assembly, socks[0], lambda port: started(banner(assembly, port)), controls, admin, read)
                )
    return 0


def _check(options: argparse.Namespace) -> int:
    options.models = None
    settings, base, roots = _settings(options)
    assembly = Assembly(settings, base, roots)
    scan = repository.scan(roots, None, assembly.models.single)
    for name, problem in scan.problems.items():
        print(f"{name}: {problem}", file=sys.stderr)
    for text in unasked(settings):
        print(f"{options.config.name}: {text}", file=sys.stderr)
    missing = [
        f"services.{name}.model: there is no model {service.model or name!r}"
        for name, service in settings.services.items()
        if (service.model or name) not in scan.models
    ]
    if settings.default_service not in {"", *scan.models, *assembly.directory.names()}:
        missing.append(f"default_service: there is no service {settings.default_service!r}")
    for text in missing:
        print(f"{options.config.name}: {text}", file=sys.stderr)
    if scan.problems or missing:
        return 1
    print(f"{options.config}: ok, {len(scan.models)} models, {len(settings.services)} services")
    return 0


def _routes(options: argparse.Namespace) -> int:
    settings = defaults.configured(options.config)
    rows = PathTable(load_adapters(settings)).rows()
    rows += [("GET", path, "gateway", path.removeprefix("/")) for path in pages_of(settings.gateway)]
    width = max(len(path) for _, path, _, _ in rows)
    for method, path, protocol, name in rows:
        print(f"{method:<7} {path:<{width}}  {protocol} {name}")
    return 0


def _models(options: argparse.Namespace) -> int:
    if options.config is None and not options.models:
        models = _running(_with_scheme(options.url))
    else:
        settings, base, roots = _settings(options)
        single = {name: base / folder for name, folder in settings.models.items()}
        models = asyncio.run(_loaded(Models(roots, settings.gateway.device, single)))
    print("\n".join(table(models)))
    return 1 if any(one.error for one in models) else 0


def _replay(options: argparse.Namespace) -> int:
    headers = {}
    for header in options.header:
        name, colon, value = header.partition(":")
        if not colon or not name.strip():
            raise ConfigError(f"--header {name[:64]!r}: expected NAME:VALUE")
        headers[name.strip()] = value.strip()
    if options.connections < 1:
        raise ConfigError("--connections: expected at least 1")
    started, said = perf_counter(), 0.0

    def progress(report: Report) -> None:
        nonlocal said
        if sys.stderr.isatty() and perf_counter() - said > 0.2:
            said = perf_counter()
            print(f"\r{report.sent} asked, {report.differing} different", end="", file=sys.stderr, flush=True)

    async def ask() -> Report:
        rpc = plugins.load_rpc_replay().RpcClient(options.grpc) if options.grpc else None
        try:
            return await replay(
                options.files,
                _with_scheme(options.url),
                connections=options.connections,
                tolerance=options.tolerance,
                headers=headers,
                progress=progress,
                rpc=rpc.ask if rpc is not None else None,
            )
        finally:
            if rpc is not None:
                await rpc.close()

    report = asyncio.run(ask())
    if said:
        print(file=sys.stderr)
    print("\n".join(told(report, options.tolerance, perf_counter() - started)))
    return 0 if report.good else 1


def _with_scheme(url: str) -> str:
    return url.rstrip("/") if "://" in url else f"http://{url.rstrip('/')}"


def _running(url: str) -> list[VersionSummary]:
    try:
        page = httpx.get(f"{url}/statusz", timeout=10).raise_for_status()
    except httpx.HTTPError as error:
        text = f"no gateway answers at {url}: {error}; name a CONFIG or --models DIR to load here"
        raise ConfigError(f"{text}, or the admin listener if there is a control plane") from None
    return msgspec.convert(page.json()["models"], list[VersionSummary])


async def _loaded(models: Models) -> list[VersionSummary]:
    await models.start()
    try:
        return models.describe()
    finally:
        await models.close()
