"""People's own servers, apart from the organization's: what an admin sees of them."""

from __future__ import annotations

from django.utils.translation import gettext_lazy as _

from mcpservers.models.servers import MCPServer


class OwnServer(MCPServer):
    """A server that a person added for themselves. Its secrets, tools and accounts are that person's alone."""

    class Meta:
        proxy = True
        verbose_name = _("server of a person's own")
        verbose_name_plural = _("people's own servers")
        ordering = ["owner__username", "title"]
