"""Models that other servers run: language models behind OpenAI's API, tensors behind TF Serving or v2.

The folder needs no file but model.toml.
"""

import ssl

from backends.remote.client import Client
from backends.remote.language import PROBE, LanguageBackend, metadata_of
from backends.remote.settings import Config as Config
from backends.remote.settings import api_key, checked
from backends.remote.tensors import TensorBackend, dialect_of, plans_of
from backends.remote.watch import Watch
from gateway.errors import LoadFailed
from gateway.interfaces import Backend, ModelSource


async def load(source: ModelSource, config: Config) -> Backend:
    """The model, once a server answers or need not yet. Raises LoadFailed."""
    config = checked(config)
    client = Client(config, api_key(config, source), _trust(source, config))
    try:
        return await _open(source, config, client)
    except BaseException:
        await client.close()
        raise


async def _open(source: ModelSource, config: Config, client: Client) -> Backend:
    if config.kind == "openai":
        metadata = metadata_of(source, config)
        # A server that refuses the list of its models, or has none, is there all the same.
        watch = Watch(client, PROBE, 499)
        await watch.start(config.start_seconds, required=config.required)
        return LanguageBackend(metadata, config, client, watch)
    dialect = dialect_of(source, config)
    watch = Watch(client, dialect.probe, 299)
    await watch.start(config.start_seconds, required=config.required)
    try:
        plans = await plans_of(source, config, dialect, client)
        return TensorBackend(source, config, plans, dialect, client, watch)
    except BaseException:
        await watch.close()
        raise


def _trust(source: ModelSource, config: Config) -> ssl.SSLContext | bool:
    """Which certificates count; nothing is read where no server speaks TLS."""
    if not any(url.startswith("https:") for url in config.urls):
        return False
    if not config.ca_file:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cafile=str(source.root / config.ca_file))
    except (OSError, ssl.SSLError):
        raise LoadFailed("remote.ca_file: there is no readable file of certificates") from None
