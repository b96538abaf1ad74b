"""The keys of model.toml that say whether and how requests to the model are answered together."""

from typing import Annotated, Literal

from msgspec import Meta, Struct


class BatchingConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """The `[batching]` table of model.toml."""

    mode: Literal["auto", "off", "on"] = "auto"
    """auto: where the model's graph and a trial at load both say that rows do not mind each other, and it pays."""
    max_batch_size: Annotated[int, Meta(ge=1, le=65_536)] = 64
    """Rows that are run together at most; what the model was measured to gain from may be less."""
    max_delay_us: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    """How long a request waits at most for runs that are under way; 0: until one of them is over."""
    pad_to: tuple[Annotated[int, Meta(ge=1, le=65_536)], ...] = ()
    """The only numbers of rows that the model is given, as far as they reach; the rows filled up are dropped again."""
