"""What a server that takes DPoP proofs checks of them: RFC 9449, section 4.3, all of it."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from dataclasses import dataclass, field

import jwt


class ProofRefused(Exception):
    """The proof is not taken. `error` is "invalid_dpop_proof" or "use_dpop_nonce"."""

    def __init__(self, description: str, error: str = "invalid_dpop_proof") -> None:
        super().__init__(description)
        self.error, self.description = error, description


@dataclass
class Proofs:
    """The proofs that one server has seen. With a `nonce` it wants that in every proof."""

    nonce: str = ""
    seen: list[str] = field(default_factory=list)  # their `jti`
    refused: list[str] = field(default_factory=list)  # why

    def check(self, proof: str, method: str, url: str, token: str = "") -> str:
        """The thumbprint of the key that the proof is of. Raises `ProofRefused`."""
        try:
            return self._checked(proof, method, url, token)
        except ProofRefused as refused:
            self.refused.append(refused.description)
            raise

    def _checked(self, proof: str, method: str, url: str, token: str) -> str:
        if not proof:
            raise ProofRefused("no proof")
        try:
            header = jwt.get_unverified_header(proof)
            key = header["jwk"]
            claims = jwt.decode(proof, jwt.PyJWK(key, "ES256"), ["ES256"], options={"verify_iat": False})
        except (jwt.PyJWTError, KeyError, ValueError) as error:
            raise ProofRefused(f"no proof: {error}") from None
        trouble = {
            "typ": header.get("typ") != "dpop+jwt",
            "the key is private": "d" in key,
            "jti": not isinstance(claims.get("jti"), str) or len(claims["jti"]) < 16 or claims["jti"] in self.seen,
            "htm": claims.get("htm") != method,
            "htu": claims.get("htu") != url,
            "iat": not isinstance(claims.get("iat"), int) or abs(claims["iat"] - time.time()) > 300,
            "ath": claims.get("ath", "") != (digest(token.encode()) if token else ""),
        }
        wrong = [name for name, is_wrong in trouble.items() if is_wrong]
        if wrong:
            raise ProofRefused(", ".join(wrong))
        self.seen.append(claims["jti"])
        if self.nonce and claims.get("nonce") != self.nonce:
            raise ProofRefused("another nonce is wanted", "use_dpop_nonce")
        return thumbprint(key)


def thumbprint(key: dict[str, str]) -> str:
    """RFC 7638, of the public key of an elliptic curve."""
    members = {name: key[name] for name in ("crv", "kty", "x", "y")}
    return digest(json.dumps(members, separators=(",", ":"), sort_keys=True).encode())


def digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
