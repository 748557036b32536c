"""Proofs that we hold the key that a token is bound to (DPoP, RFC 9449): keys, proofs, and the nonces of servers.

The extension of MCP (SEP-1932) adds nothing to the RFC. A key is made when an account is linked, and stored with its
tokens. What needs cryptography is imported when the first proof is made.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit
from uuid import uuid4

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

ALGORITHM = "ES256"
SCHEME = "DPoP"  # of `Authorization`, and `token_type` of tokens that are bound
PROOF, NONCE = "dpop", "dpop-nonce"  # headers
WANTS_NONCE = "use_dpop_nonce"  # RFC 9449, sections 8 and 9
PROOF_ERRORS = frozenset({WANTS_NONCE, "invalid_dpop_proof"})  # of the proof, not of a token or grant
KEY, KIND = "dpop_key", "token_type"  # in the stored tokens of an account, where there is a key
LONGEST_NONCE = 1000
_MOST_NONCES, _MOST_KEYS = 2000, 200


class BoundToken(str):
    """An access token that is good only with proofs of its `key`. As a text, in a log too, it is the token alone."""

    __slots__ = ("key",)
    key: str

    def __new__(cls, token: str, key: str) -> BoundToken:
        made = super().__new__(cls, token)
        made.key = key
        return made


def token_in(tokens: Mapping[str, str]) -> str:
    """The access token among an account's stored tokens, as it is to be sent; "" where there is none."""
    token = tokens.get("access_token", "")
    return BoundToken(token, tokens.get(KEY, "")) if tokens.get(KIND) == SCHEME else token


# --- Keys and proofs ----------------------------------------------------------------------------------------------


def new_key() -> str:
    """A private key for ES256, as PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    made = ec.generate_private_key(ec.SECP256R1())
    return made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def proof(method: str, url: str, *, key: str, access_token: str = "", nonce: str = "") -> str:
    """A proof for one request (RFC 9449, section 4.2), never to be sent twice."""
    import jwt  # slow to import, and few servers need it

    loaded, public = _loaded(key)
    claims: dict[str, str | int] = {
        "jti": uuid4().hex,
        "htm": method,
        "htu": urlunsplit(urlsplit(url)._replace(query="", fragment="")),
        "iat": int(time.time()),
    }
    if access_token:
        claims["ath"] = _digest(access_token)
    if nonce:
        claims["nonce"] = nonce
    return jwt.encode(claims, loaded, ALGORITHM, headers={"typ": "dpop+jwt", "jwk": public})


def thumbprint(key: str) -> str:
    """What names the public key in tokens that are bound to it (RFC 7638; `jkt` of RFC 9449, section 6)."""
    return _digest(json.dumps(_loaded(key)[1], sort_keys=True, separators=(",", ":")))


@lru_cache(maxsize=_MOST_KEYS)
def _loaded(key: str) -> tuple[EllipticCurvePrivateKey, dict[str, str]]:
    """The private key, and the members of its public half that RFC 7638 counts."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from jwt.algorithms import ECAlgorithm

    loaded: EllipticCurvePrivateKey = load_pem_private_key(key.encode(), None)  # type: ignore[assignment]  # our own
    public = ECAlgorithm.to_jwk(loaded.public_key(), as_dict=True)
    return loaded, {name: public[name] for name in ("crv", "kty", "x", "y")}


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


# --- Nonces -------------------------------------------------------------------------------------------------------


class Nonces:
    """The last nonce that each origin gave for each key. Losing one costs a request that is repeated."""

    def __init__(self) -> None:
        self._last: OrderedDict[tuple[str, str], str] = OrderedDict()

    def of(self, url: str, key: str) -> str:
        """The nonce for a request to `url`; "" where none is known."""
        return self._last.get(_place(url, key), "")

    def keep(self, url: str, key: str, headers: Mapping[str, str]) -> None:
        """Remember the nonce that an answer of `url` brings, if it does."""
        nonce = headers.get(NONCE, "")
        if not nonce or len(nonce) > LONGEST_NONCE:
            return
        place = _place(url, key)
        self._last[place] = nonce
        self._last.move_to_end(place)
        while len(self._last) > _MOST_NONCES:
            self._last.popitem(last=False)


def _place(url: str, key: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower(), thumbprint(key)


# An issuer and a server may be at one origin: their nonces have nothing to do with each other.
OF_ISSUERS, OF_SERVERS = Nonces(), Nonces()
