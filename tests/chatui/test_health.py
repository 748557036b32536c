"""Probes: alive while the loop runs, ready while new work is welcome, whatever host they name."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError
from django.test import AsyncClient, Client

from chatui import health
from conversations import supervisor


@pytest.mark.parametrize("address", ["/healthz", "/readyz"])
async def test_a_good_process_is_alive_and_ready(transactional_db: None, address: str) -> None:
    response = await AsyncClient().get(address)
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert response["Cache-Control"] == "no-store"
    assert not response.cookies


def test_a_synchronous_server_answers_too(transactional_db: None) -> None:
    assert Client().get("/healthz").json() == {"status": "ok"}
    assert Client().get("/readyz").json() == {"status": "ok"}


async def test_a_probe_by_address_is_answered(transactional_db: None) -> None:
    for address, status in (("/readyz", 200), ("/healthz", 200), ("/accounts/login/", 400)):
        response = await AsyncClient().get(address, headers={"host": "10.1.2.3:8000"})
        assert response.status_code == status


async def test_a_process_that_is_shutting_down_is_alive_but_not_ready(transactional_db: None) -> None:
    await supervisor.current().aclose()
    assert (await AsyncClient().get("/healthz")).status_code == 200
    response = await AsyncClient().get("/readyz")
    assert (response.status_code, response.json()) == (503, {"status": "draining"})


async def test_without_its_database_a_process_is_not_ready(transactional_db: None, monkeypatch: Any) -> None:
    def gone() -> None:
        raise OperationalError("connection to server at 10.0.0.5 failed")

    monkeypatch.setattr(health, "_ask_database", gone)
    response = await AsyncClient().get("/readyz")
    assert (response.status_code, response.json()) == (503, {"status": "database"})
    assert (await AsyncClient().get("/healthz")).status_code == 200


async def test_a_database_that_hangs_is_not_waited_for(transactional_db: None, monkeypatch: Any) -> None:
    import threading

    release = threading.Event()
    monkeypatch.setattr(health, "_ask_database", release.wait)
    monkeypatch.setattr(health, "DATABASE_SECONDS", 0.05)
    response = await AsyncClient().get("/readyz")
    release.set()
    assert response.status_code == 503
