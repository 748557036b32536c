"""What makes a server's definition impossible, field by field: told when it is saved, not when it is first used."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import urlsplit

from accounts.rules import rule_findings
from chatui.netguard import AddressRefusedError, check_url
from mcpservers.models import OWN_PREFIX, MCPServer, Transport
from mcpservers.oauth.config import oauth_findings
from mcpservers.placeholders import ENVIRONMENT, PLACEHOLDER, names_in, references_in

# RFC 9110, section 5.6.2: a field name is a token.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+\Z")
_HEADER_VALUE_BROKEN = re.compile(r"[\r\n\0]")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}\Z")
_NAMESPACES = {
    "user": {"id", "username", "email", "name"},
    "organization": {"slug"},
    "openid": {"access_token", "id_token"},
    "obo": {"access_token"},
    "request": {"conversation_id", "turn_id", "message_id"},
}

Finding = tuple[str, str]  # the field, what is wrong with it: never a value of a secret


def findings(
    server: MCPServer, *, environment: Collection[str] | None = None, kept: MCPServer | None = None
) -> Iterator[Finding]:
    """Everything that would keep `server` from ever working. Empty for a definition that can work.

    `environment` names the operator's variables that whoever saves it may refer to as `${NAME}`; None: none at all.
    What stands in the stored definition, `kept`, may stay. A server of one person may hold less, whoever saves it.
    """
    if server.owner_id is not None:
        yield from _own(server)
        environment = kept = None
    elif server.slug.startswith(OWN_PREFIX) and (server._state.adding if kept is None else kept.slug != server.slug):
        yield "slug", f"“{OWN_PREFIX}” begins the names of people's own servers."
    if server.transport == Transport.STDIO:
        yield from _stdio(server)
    else:
        yield from _remote(server)
    yield from (("variables", message) for message in variable_findings(server.variables))
    if server.trust == MCPServer.Trust.REVIEWED and server.new_tools == MCPServer.NewTools.ACCEPT:
        yield "new_tools", "Where an admin accepts each tool, that holds for new ones too."
    yield from (("read_only", message) for message in glob_findings(server.read_only))
    yield from (("rules", message) for message in rule_findings(server.rules))
    yield from _placeholders(server)
    yield from _references(server, environment, kept)


def _own(server: MCPServer) -> Iterator[Finding]:
    """What a server that a person adds for themselves may not be, nor say, besides what none may."""
    if server.transport == Transport.STDIO:
        yield "transport", "A server of your own is reached over HTTP: a local process is the operator's to run."
    if not server.slug.startswith(OWN_PREFIX):
        yield "slug", f"“{OWN_PREFIX}” begins the name of a server of your own."
    for name in ("oauth", "rules", "read_only"):
        if getattr(server, name):
            yield name, "This is an administrator's to say."
    try:
        check_url(PLACEHOLDER.sub("-", server.url), extra=server.allowances)
    except AddressRefusedError as error:
        yield "url", error.public_message


def _stdio(server: MCPServer) -> Iterator[Finding]:
    if not server.command:
        yield "command", "A local process needs a command."
    if server.url:
        yield "url", "A local process has no URL."
    if server.headers:
        yield "headers", "A local process has no headers: use its environment (env)."
    if server.oauth is not None:
        yield "oauth", "A local process has no OAuth sign-in."
    if not isinstance(server.args, list) or not all(isinstance(item, str) for item in server.args):
        yield "args", "The arguments are a list of texts."
    if not _texts(server.env):
        yield "env", "The environment maps names to texts."
    elif any(not name or "=" in name or "\0" in name + value for name, value in server.env.items()):
        yield "env", "A name in the environment is empty or holds “=”, or a value holds NUL."


def _remote(server: MCPServer) -> Iterator[Finding]:
    message = url_finding(server.url)
    if message:
        yield "url", message
    for name in ("command", "args", "env"):
        if getattr(server, name):
            yield name, "Only a local process (transport stdio) has this."
    yield from (("headers", message) for message in header_findings(server.headers))
    yield from (("oauth", message) for message in oauth_findings(server.oauth))


def url_finding(url: str) -> str | None:
    """What is wrong with the address of a server or an endpoint, or None."""
    if not url:
        return "An address (URL) is needed."
    authority = re.match(r"[^/?#]*(?://[^/?#]*)?", url)
    if authority and ("{{" in authority.group() or "${" in authority.group()):
        return "A placeholder may stand in the path and the query, not in scheme, host or port."
    if re.search(r"[\s\x00-\x1f\\]", PLACEHOLDER.sub("", url)):
        return "The address holds a space, a backslash or a control character."
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  # reading it is what checks it
    except ValueError:
        return "This is not a valid address (URL)."
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "The address starts with https:// (or http:// where the operator allows it) and names a host."
    if parts.username or parts.password:
        return "The address holds a user name or password: put credentials into a header."
    return None


def header_findings(headers: Any) -> Iterator[str]:
    if not _texts(headers):
        yield "The headers map names to texts."
        return
    for name, value in headers.items():
        if not _HEADER_NAME.match(name):
            yield f"“{name}” is not the name of a header."
        elif _HEADER_VALUE_BROKEN.search(value):
            yield f"The value of “{name}” holds a line break or NUL."


def variable_findings(variables: Any) -> Iterator[str]:
    if not isinstance(variables, dict):
        yield "The variables map names to {title, description, sensitive}."
        return
    for name, declared in variables.items():
        if not _VARIABLE_NAME.match(name):
            yield f"“{name}” is not a name for a variable: use letters, digits and underscores."
        elif not isinstance(declared, dict) or not declared.keys() <= {"title", "description", "sensitive"}:
            yield f"“{name}” is described by title, description and sensitive."
        elif not isinstance(declared.get("sensitive", True), bool):
            yield f"“{name}”: sensitive is true or false."


def glob_findings(globs: Any) -> Iterator[str]:
    if not isinstance(globs, list) or not all(isinstance(glob, str) and glob for glob in globs):
        yield "This is a list of patterns such as “get_*”."


def _texts(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, str) for item in value.values())


def _templates(server: MCPServer) -> dict[str, list[str]]:
    """The texts of the definition in which placeholders may stand, by field."""
    return {
        "url": [server.url],
        "args": [item for item in server.args if isinstance(item, str)] if isinstance(server.args, list) else [],
        "headers": list(server.headers.values()) if _texts(server.headers) else [],
        "env": list(server.env.values()) if _texts(server.env) else [],
    }


def _placeholders(server: MCPServer) -> Iterator[Finding]:
    declared = server.variables if isinstance(server.variables, dict) else {}
    for field, texts in _templates(server).items():
        for text in texts:
            if "{{" in PLACEHOLDER.sub("-", text):
                yield field, "“{{” begins a placeholder that does not end."
            for name in names_in(text):
                if server.owner_id is not None and "." in name and not name.startswith("user."):
                    message = "is not for a server of your own, which may use {{user.…}} and variables of its own."
                    yield field, f"{{{{{name}}}}} {message}"
                elif not _known(name, declared):
                    yield field, f"{{{{{name}}}}} is neither a variable of this server nor a placeholder that we know."


def _references(server: MCPServer, allowed: Collection[str] | None, kept: MCPServer | None) -> Iterator[Finding]:
    stored = _templates(kept) if kept is not None else {}
    for field, texts in _templates(server).items():
        for text in texts:
            if "${" not in text or text in stored.get(field, ()):
                continue
            if allowed is None:
                yield field, "“${…}” stands for a variable of this machine: only who runs it may write one."
            elif "${" in ENVIRONMENT.sub("-", text):
                yield field, "“${” begins a reference to a variable of this machine that does not end."
            else:
                unknown = sorted(set(references_in(text)) - set(allowed))
                yield from ((field, f"${{{name}}} is not listed in MCP_ENV_ALLOWLIST.") for name in unknown)


def _known(name: str, declared: dict[str, Any]) -> bool:
    namespace, dot, attribute = name.partition(".")
    if not dot:
        return name in declared
    return namespace in _NAMESPACES and (_NAMESPACES[namespace] is None or attribute in (_NAMESPACES[namespace] or ()))
