"""Accounts in the admin of servers: what was discovered of the sign-in, our client there, who linked what, *Revoke*."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from asgiref.sync import async_to_sync
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path
from django.utils.translation import gettext_lazy as _

from accounts.actors import Actor
from accounts.admin_pages import AdminPages
from accounts.models import Role, User
from chatui.errors import NotFoundError
from mcpservers import peers
from mcpservers.errors import LinkError
from mcpservers.models import LinkedAccount, MCPServer, OAuthClient, OAuthDiscovery
from mcpservers.oauth import accounts, client_metadata, discovery
from mcpservers.oauth.flow import scopes_for
from mcpservers.oauth.whose import Whose, whose_account


class Accounts(AdminPages):
    """The part of the servers' admin that shows accounts. Who may see a server sees it, who may change it revokes."""

    def oauth_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<path:object_id>/accounts/", wrap(self.oauth_view), name="mcpservers_mcpserver_oauth"),
            path("<path:object_id>/accounts/discover/", wrap(self.discover_view), name="mcpservers_mcpserver_discover"),
            path("<path:object_id>/accounts/revoke/", wrap(self.revoke_view), name="mcpservers_mcpserver_revoke"),
        ]

    def oauth_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """What is known; no network."""
        server: MCPServer | None = self.seen(request, object_id)
        if server is None:
            return self.missing(request, object_id)
        may_change = self.has_change_permission(request, server)
        context = {"server": server, "may_change": may_change, **what_is_known(server)}
        return self.page(request, "admin/mcpservers/mcpserver/oauth.html", _("Accounts"), server, **context)

    def discover_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Read the server's metadata anew. Only by POST: a link must not make us connect."""
        server, answer = self.to_change(request, object_id)
        if server is None:
            return answer
        try:
            found = async_to_sync(discovery.discover)(server, fresh=True)
        except LinkError as error:
            messages.error(request, error.for_admin)
        else:
            messages.success(request, _("People sign in at %(host)s.") % {"host": found.host or found.issuer})
        return redirect("admin:mcpservers_mcpserver_oauth", server.pk)

    def revoke_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Disconnect somebody's account: it is revoked at the authorization server, and its connections end."""
        server, answer = self.to_change(request, object_id)
        if server is None:
            return answer
        assert isinstance(request.user, User)  # the site let them in
        account = LinkedAccount.objects.as_system().filter(server=server, pk=_id(request.POST.get("account"))).first()
        if account is None:
            messages.info(request, _("This account is not there any more."))
        else:
            self._revoke(request, server, account)
        return redirect("admin:mcpservers_mcpserver_oauth", server.pk)

    def _revoke(self, request: HttpRequest, server: MCPServer, account: LinkedAccount) -> None:
        # Whoever may change the server here may do so, a superuser without a membership, too.
        actor = Actor(UUID(str(request.user.pk)), server.organization_id, Role.OWNER)
        try:
            gone = async_to_sync(accounts.disconnect)(actor, account.pk)
        except NotFoundError:
            messages.info(request, _("This account is not there any more."))
            return
        async_to_sync(peers.account_changed)(server.pk, gone.user_id)
        messages.success(request, _("“%(account)s” is disconnected.") % {"account": gone.account})
        if gone.warning:
            messages.warning(request, gone.warning)


def what_is_known(server: MCPServer) -> dict[str, Any]:
    """For the page: whose accounts, what was discovered, our clients, the links, no secrets. Three queries."""
    row = OAuthDiscovery.objects.as_system().filter(server=server, binding=server.oauth_binding()).first()
    found = discovery.told_by(row, server) if row is not None else None
    links = LinkedAccount.objects.as_system().filter(server=server).select_related("user").defer("tokens")
    return {
        "identity": whose_accounts(server),
        "found": found,
        "fetched_at": row.fetched_at if row is not None else None,
        "expires_at": row.expires_at if row is not None else None,
        "scopes": scopes_for(server, found),
        "scopes_are_configured": bool(discovery.configured_scopes(server)),
        "clients": list(OAuthClient.objects.as_system().filter(server=server).defer("secrets")),
        "redirect_uri": client_metadata.redirect_uri(),
        "links": [_shown(server, link) for link in links.order_by("user__username", "created_at")],
    }


def whose_accounts(server: MCPServer) -> str:
    """One of "organization", "on_behalf", "people", "learnt" (people, as the server itself said), or "" for none."""
    whose = whose_account(server)
    if whose is Whose.OWN:
        return "people" if server.oauth is not None else "learnt"
    return whose.value


def _shown(server: MCPServer, link: LinkedAccount) -> dict[str, Any]:
    binding = server.oauth_binding()
    state = link.get_state_display() if link.binding == binding else _("of another address")
    return {"link": link, "state": state, "usable": link.works(binding)}


def _id(text: str | None) -> UUID | None:
    try:
        return UUID(text or "")
    except ValueError:
        return None
