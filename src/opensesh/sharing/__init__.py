"""Sharing: sessions published on a share server that the user chose, until they are unshared.

Nothing is sent unless the user asked for it. :class:`~opensesh.sharing.share_service.ShareService` shares and unshares
sessions, :class:`~opensesh.sharing.share_sync.ShareSync` keeps shares up to date while sessions run (it subscribes to
the bus and needs no engine), and :mod:`~opensesh.sharing.share_server` runs a share server.
"""

from __future__ import annotations
