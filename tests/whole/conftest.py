"""A site of its own for each test that drives the product from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fakes.endpoint import endpoint
from tests.whole.prepared import Prepared
from tests.whole.site import Site

__all__ = ["endpoint"]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """A configured SQLite database, to be copied."""
    directory = tmp_path_factory.mktemp("prepared")
    return Prepared.at(Site(directory), str(directory / "chatui.sqlite3"))


@pytest.fixture
def make_site(tmp_path: Path, prepared: Prepared) -> Iterator[Callable[..., Site]]:
    """A configured site that is not started yet: `make_site(endpoint.base_url, server="uvicorn")`."""
    sites: list[Site] = []

    def make(base_url: str, *, server: str = "daphne") -> Site:
        directory = tmp_path / f"site-{len(sites)}"
        directory.mkdir()
        site = Site(directory, server=server)
        sites.append(site)
        prepared.copy_file(site, base_url)
        return site

    yield make
    for site in sites:
        site.close()
