"""Who is calling: the holder of a token of the control plane."""

import hmac

from gateway.control.accounts import User, digest
from gateway.control.plane import Control


class SignIn:
    """Finds out whose a token is."""

    def __init__(self, control: Control, admin_token: str = "") -> None:
        """With the token of the configuration, if there is one, which makes an administrator."""
        self._control = control
        self._admin = digest(admin_token) if admin_token else ""

    async def holder(self, token: str) -> User | None:
        """Whose token it is, if it is good."""
        return await self.owner(digest(token[:256]))

    async def owner(self, token_digest: str) -> User | None:
        """Whose the token of that digest is, if it still is good."""
        if self._admin and hmac.compare_digest(token_digest, self._admin):
            return User("admin-token", "admin")
        return await self._control.blocking(self._control.accounts.owner, token_digest)
