"""Encrypted model fields on Fernet, with rotation: the first of `ENCRYPTION_KEYS` encrypts, every one decrypts."""

import base64
import hashlib
import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import models

if TYPE_CHECKING:
    _TextField = models.TextField[Any, Any]
else:
    _TextField = models.TextField


class DecryptionError(Exception):
    """A stored secret was encrypted with a key that is not among `ENCRYPTION_KEYS`."""


def _fernet_key(key: str) -> bytes:
    """A Fernet key: `key` itself if it is one (32 bytes, URL-safe base64), else derived from it."""
    try:
        if len(base64.urlsafe_b64decode(key)) == 32:
            return key.encode()
    except ValueError:
        pass
    return base64.urlsafe_b64encode(hashlib.sha256(b"chatui:" + key.encode()).digest())


@lru_cache(maxsize=8)
def _cipher(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(_fernet_key(key)) for key in keys])


def cipher() -> MultiFernet:
    """The cipher of the current settings. Without `ENCRYPTION_KEYS` (development) it derives from `SECRET_KEY`."""
    keys = tuple(settings.ENCRYPTION_KEYS) or (settings.SECRET_KEY,)
    if not all(keys):
        raise ImproperlyConfigured("ENCRYPTION_KEYS holds an empty key.")
    return _cipher(keys)


def encrypt(text: str) -> str:
    return cipher().encrypt(text.encode()).decode("ascii")


def decrypt(token: str) -> str:
    """The text behind `token`. Raises `DecryptionError`, which never holds the token."""
    try:
        return cipher().decrypt(token.encode()).decode()
    except InvalidToken:
        raise DecryptionError("A stored secret cannot be decrypted with the current ENCRYPTION_KEYS.") from None


def rotated(token: str) -> str | None:
    """`token` encrypted anew with the first key; None if it already is. Raises `DecryptionError` if no key fits."""
    first = tuple(settings.ENCRYPTION_KEYS or (settings.SECRET_KEY,))[:1]
    try:
        _cipher(first).decrypt(token.encode())
        return None
    except InvalidToken:
        return encrypt(decrypt(token))


class _EncryptedField(_TextField):
    """What the two encrypted fields share. The column is text; lookups on it are refused, for they cannot match."""

    def get_lookup(self, lookup_name: str) -> Any:
        if lookup_name == "isnull":
            return super().get_lookup(lookup_name)
        raise TypeError(f"{self.__class__.__name__} cannot be looked up by {lookup_name!r}: it is encrypted.")

    def is_clear(self, stored: str | None) -> bool:
        """Whether the column's value `stored` stands for "nothing" and is therefore not encrypted."""
        return not stored


class EncryptedTextField(_EncryptedField):
    """Text, encrypted at rest. The empty string stays empty, so that 'not set' is visible without a key."""

    def get_prep_value(self, value: Any) -> Any:
        return encrypt(str(value)) if value else value

    def from_db_value(self, value: str | None, expression: object, connection: object) -> str | None:
        return decrypt(value) if value else value


class EncryptedJSONField(_EncryptedField):
    """A JSON value, encrypted at rest as a whole; `{}`, `[]` and `None` are stored as they are, in clear."""

    def get_prep_value(self, value: Any) -> Any:
        if value is None:
            return None
        text = json.dumps(value, ensure_ascii=False)
        return encrypt(text) if value else text

    def is_clear(self, stored: str | None) -> bool:
        return not stored or stored in ("{}", "[]", '""', "false", "0", "0.0", "null")

    def from_db_value(self, value: str | None, expression: object, connection: object) -> Any:
        if value is None:
            return None
        return json.loads(value if self.is_clear(value) else decrypt(value))

    def to_python(self, value: Any) -> Any:
        return value

    def value_to_string(self, obj: models.Model) -> str:
        # dumpdata must not put secrets into a file in clear.
        return encrypt(json.dumps(self.value_from_object(obj)))
