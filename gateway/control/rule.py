"""From a configuration to a control plane: opened before the gateway serves, in charge once it does."""

from collections.abc import Mapping
from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from gateway.config import Config, ConfigError, Secret, ServiceConfig, secret_text
from gateway.control import seeding
from gateway.control.api import Api
from gateway.control.errors import ControlError
from gateway.control.plane import Control
from gateway.control.plans import Change
from gateway.control.signin import SignIn
from gateway.control.store import FILE, Store
from gateway.fleet import Fleet
from gateway.plane import is_loopback


class Prepared:
    """An open store, with the configuration file's news in it, and the control plane over it."""

    def __init__(self, config: Config, base: Path) -> None:
        gateway = config.gateway
        local = gateway.admin_host == "localhost" or is_loopback(gateway.admin_host)
        token = secret_text("gateway.admin_token", gateway.admin_token, base) if gateway.admin_token else ""
        if not local and len(token) < 16:
            raise ConfigError(
                f"gateway.admin_token: {gateway.admin_host} can be reached from other machines, so a token of at least "
                "16 characters must be given"
            )
        data_dir = base / gateway.data_dir
        store = Store(_url(config, base, data_dir), data_dir)
        self.sown: tuple[Change, ...] = seeding.sow(store, config)
        """What the file has changed."""
        self.control = Control(store, config, base)
        self.first_token = self.control.accounts.first_token()
        """For the first administrator; shown once."""
        self.app = Api(self.control, local, SignIn(self.control, token))

    @property
    def services(self) -> dict[str, ServiceConfig]:
        """What is to be served."""
        return self.control.services

    def controls(self, fleet: Fleet) -> "Prepared":
        """The control plane, in charge of that fleet."""
        self.control.fleet = fleet
        return self

    async def run(self) -> None:
        """Decide, until cancelled."""
        await self.control.run()

    async def adopt(self, services: Mapping[str, ServiceConfig]) -> None:
        """Apply the file, if it has changed. Raises ConfigError, and then nothing has changed."""
        control, prune = self.control, self.control.config.gateway.prune
        seed = seeding.digest(services)
        if await control.blocking(control.store.setting, seeding.SETTING) == seed:
            return

        def change(held: dict[str, ServiceConfig]) -> None:
            after = seeding.sown(held, services, prune)
            held.clear()
            held.update(after)

        try:
            await control.act(seeding.ACTOR, change, seeding.seeded, seeding.NOTE)
            await control.blocking(control.store.set, seeding.SETTING, seed)
        except ControlError as error:
            raise ConfigError(f"services.{error.field}: {error}" if error.field else str(error)) from None

    def close(self) -> None:
        """Let go of the store."""
        self.control.store.close()


def prepare(config: Config, base: Path) -> Prepared:
    """Open the control plane that the configuration describes. Raises ConfigError."""
    return Prepared(config, base)


def _url(config: Config, base: Path, data_dir: Path) -> str:
    told = config.gateway.store
    text = secret_text("gateway.store", told, base) if isinstance(told, Secret) else told
    if not text:
        return f"sqlite:///{(data_dir / FILE).absolute()}"
    try:
        url = make_url(text)
    except ArgumentError:
        raise ConfigError("gateway.store: expected a database URL, such as postgresql://USER@HOST/NAME") from None
    if url.get_backend_name() == "postgresql" and url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    return url.render_as_string(hide_password=False)
