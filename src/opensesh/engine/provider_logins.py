"""Logging in to providers with the methods that plugins offer."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ..errors import ProviderLoginError
from ..models.auth import store_entry, validate_entry
from ..plugins import hooks
from ..plugins.auth_methods import AuthMethodsOutput
from ..plugins.calling import explain
from .cancellation import run_in_thread_uncancellable

if TYPE_CHECKING:
    from ..plugins import Plugins
    from ..plugins.auth_methods import AuthMethod, Authorization


class ProviderLogins:
    """The methods of the plugins, and the logins that have begun: one for each provider, the last."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins
        self._pending: dict[str, Authorization] = {}

    @cached_property
    def methods(self) -> dict[str, list[AuthMethod]]:
        """The methods of each provider."""
        by_provider: dict[str, list[AuthMethod]] = {}
        if self._plugins.has_hook(hooks.auth_methods):
            for method in self._plugins.apply_sync(hooks.auth_methods, AuthMethodsOutput()).output.methods:
                by_provider.setdefault(method.provider_id, []).append(method)
        return by_provider

    async def authorize(self, provider_id: str, number: int, inputs: dict[str, str]) -> Authorization | None:
        """Begin to log in with the method of that number; ``None`` if it is one where the user enters an API key.

        Raises :class:`ProviderLoginError`.
        """
        methods = self.methods.get(provider_id, [])
        if not 0 <= number < len(methods):
            message = f"no plugin offers method {number} to log in to {provider_id}; use an API key"
            raise ProviderLoginError(message, reason="ProviderAuthError", provider_id=provider_id)
        authorize = methods[number].authorize
        if authorize is None:
            return None
        try:
            authorization = await authorize(inputs)
        except Exception as error:
            raise ProviderLoginError(explain(error), reason="ProviderAuthError", provider_id=provider_id) from error
        self._pending[provider_id] = authorization
        return authorization

    async def finish(self, provider_id: str, code: str | None) -> None:
        """Finish the login that has begun, and store its credentials in ``auth.json``.

        Raises :class:`ProviderLoginError`.
        """
        authorization = self._pending.get(provider_id)
        if authorization is None:
            message = f"no login to {provider_id} has begun"
            raise ProviderLoginError(message, reason="ProviderAuthOauthMissing", provider_id=provider_id)
        if authorization.method == "code" and not code:
            message = f"the login to {provider_id} needs the code that the provider gave"
            raise ProviderLoginError(message, reason="ProviderAuthOauthCodeMissing", provider_id=provider_id)
        try:
            credentials = await authorization.callback(code)
            entry = None if credentials is None else validate_entry(credentials)
        except Exception as error:
            raise _failed(provider_id, explain(error)) from error
        if entry is None:
            raise _failed(provider_id, f"the login to {provider_id} failed")
        self._pending.pop(provider_id, None)
        await run_in_thread_uncancellable(store_entry, provider_id, entry)


def _failed(provider_id: str, why: str) -> ProviderLoginError:
    return ProviderLoginError(why, reason="ProviderAuthOauthCallbackFailed", provider_id=provider_id)
