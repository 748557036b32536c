"""The aiohttp half of `chatui.netguard`: a connector whose resolver returns only checked addresses."""

from __future__ import annotations

import socket
from typing import Any

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

from chatui import netguard
from chatui.addresses import literal


class CheckedResolver(AbstractResolver):
    """Resolves a name to addresses that were all checked; aiohttp connects to these and resolves no second time."""

    def __init__(self, extra: tuple[str, ...]) -> None:
        self._extra = extra

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = await netguard.resolve(host, port, extra=self._extra)
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        """Nothing is held."""


class GuardedConnector(aiohttp.TCPConnector):
    """Checks scheme and literal addresses here (aiohttp does not resolve literals), names in its resolver."""

    def __init__(self, extra: tuple[str, ...], options: dict[str, Any]) -> None:
        options = {"ssl": netguard.tls_context()} | options
        super().__init__(resolver=CheckedResolver(extra), **options)
        self._extra = extra

    async def connect(self, req: Any, traces: Any, timeout: Any) -> Any:
        url = req.url
        host, port = url.host or "", url.port or 443
        netguard.check_scheme(url.scheme, host, port, extra=self._extra)
        if (address := literal(host)) is not None:
            netguard.check_address(address, host, port, extra=self._extra)
        return await super().connect(req, traces, timeout)
