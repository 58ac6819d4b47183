"""Requests signed for Amazon: the usual chain of credentials, and Signature Version 4, by botocore."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..errors import AuthFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

_NEEDS_BOTOCORE = (
    "Signing requests for Amazon needs botocore. Install it with: pip install 'opensesh[bedrock]'; "
    "or set AWS_BEARER_TOKEN_BEDROCK to an API key, which needs no signing."
)
_NO_CREDENTIALS = (
    "No AWS credentials were found. Set AWS_BEARER_TOKEN_BEDROCK, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "or sign in to a profile (aws sso login)."
)


class Signer:
    """Signs with the credentials of ``profile``, or with those that the environment, files or machine provide.

    Finding them may read files and ask the network, so call :meth:`sign` from a thread. They are kept, and renewed when
    they run out.
    """

    def __init__(self, service: str, region: str, profile: str | None = None) -> None:
        self._service = service
        self._region = region
        self._profile = profile
        self._credentials: Any = None

    def sign(self, url: str, headers: Mapping[str, str], content: bytes) -> dict[str, str]:
        """``headers``, and those that prove who POSTs ``content`` to ``url``; or :class:`AuthFailedError`."""
        try:
            auth, awsrequest = import_module("botocore.auth"), import_module("botocore.awsrequest")
            exceptions = import_module("botocore.exceptions")
        except ImportError as error:
            raise AuthFailedError(_NEEDS_BOTOCORE) from error
        request = awsrequest.AWSRequest(method="POST", url=url, data=content, headers=dict(headers))
        try:
            auth.SigV4Auth(self._found().get_frozen_credentials(), self._service, self._region).add_auth(request)
        except (exceptions.BotoCoreError, exceptions.ClientError) as error:
            raise AuthFailedError(f"AWS credentials could not be used: {error}") from error
        return {str(name): str(value) for name, value in request.headers.items()}

    def _found(self) -> Any:
        if self._credentials is None:
            self._credentials = import_module("botocore.session").Session(profile=self._profile).get_credentials()
        if self._credentials is None:
            raise AuthFailedError(_NO_CREDENTIALS)
        return self._credentials
