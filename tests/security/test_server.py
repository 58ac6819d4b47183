"""Requests that are made to keep a server busy."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from ..server.serving import serving


@pytest.mark.parametrize("name", ["opensesh_view", "opensesh_PORT"])
@pytest.mark.parametrize("path", ["/ui/enter", "/ui/", "/config"])
async def test_a_cookie_takes_linear_time_before_a_sign_in(tmp_path: Path, name: str, path: str) -> None:
    async with serving(tmp_path) as client:
        name = name.replace("PORT", client.url.rpartition(":")[2])
        cookie = f'{name}="' + '\\"' * 30_000 + '"'
        begun = time.process_time()
        await client.http.get(path, headers={"cookie": cookie})
        await client.http.post(path, headers={"cookie": cookie})
        assert time.process_time() - begun < 2.0
