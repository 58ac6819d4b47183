"""Sharing: what others may see of a session, on a server that the user chose, until it is taken back.

Nothing leaves unless it was asked for. :class:`~opensesh.sharing.share_service.ShareService` shares and takes back,
:class:`~opensesh.sharing.share_sync.ShareSync` keeps shares up to date while sessions run, and
:mod:`~opensesh.sharing.share_server` is a server for them. No engine is needed: a sharer listens to the bus.
"""

from __future__ import annotations
