"""Pinned tools in the admin: what waits, what changed in it, and the buttons that accept or reject it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.http import urlencode
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from accounts.admin_pages import AdminPages
from accounts.models import User
from mcpservers.models import MCPServer, ToolVersion
from mcpservers.pin_decisions import decide
from mcpservers.pin_reviews import PER_PAGE, Shown, chosen, counts, reviews, waiting, with_waiting

DECISIONS = {"accept": ToolVersion.Decision.ACCEPTED, "reject": ToolVersion.Decision.REJECTED}
LABELS = {
    Shown.WAITING: _("Waiting"),
    Shown.FLAGGED: _("Flagged"),
    Shown.ACCEPTED: _("Accepted"),
    Shown.REJECTED: _("Rejected"),
    Shown.ALL: _("All"),
}


class PinnedTools(AdminPages):
    """The part of the servers' admin that reviews tools. Who may see a server sees them, who may change it decides."""

    def pin_urls(self) -> list[URLPattern]:
        wrap = self.admin_site.admin_view
        return [
            path("<path:object_id>/pins/", wrap(self.pins_view), name="mcpservers_mcpserver_pins"),
            path("<path:object_id>/pins/decide/", wrap(self.decide_view), name="mcpservers_mcpserver_pins_decide"),
        ]

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = super().get_queryset(request)  # type: ignore[misc]  # of the admin that this is mixed into
        return with_waiting(rows.filter(owner=None))  # people's own have a page of their own, which shows less

    @admin.display(description=_("Tools that wait"), ordering="waiting")
    def waiting_badge(self, obj: Any) -> str:
        if not obj.waiting:
            return "–"
        return format_html(
            '<a class="bg-orange-100 font-semibold px-2 py-1 rounded-default text-orange-700 dark:bg-orange-500/20'
            ' dark:text-orange-400" href="{}">{}</a>',
            reverse("admin:mcpservers_mcpserver_pins", args=[obj.pk]),
            ngettext("%(number)d waits", "%(number)d wait", obj.waiting) % {"number": obj.waiting},
        )

    def pins_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The versions of one server's tools: those that wait, unless `?show=` or `?q=` ask for others."""
        server: MCPServer | None = self.seen(request, object_id)
        if server is None:
            return self.missing(request, object_id)
        numbers = counts(server)
        asked = request.GET.get("show", "")
        shown = Shown(asked) if asked in list(Shown) else Shown.WAITING if numbers[Shown.WAITING] else Shown.ALL
        words = request.GET.get("q", "").strip()[:100]
        page = Paginator(chosen(server, shown, words), PER_PAGE).get_page(request.GET.get("page"))
        context = {
            "server": server,
            "filters": [(each.value, LABELS[each], numbers[each]) for each in Shown],
            "shown": shown.value,
            "words": words,
            "page": page,
            "reviews": reviews(server, page.object_list),
            "may_change": self.has_change_permission(request, server),
        }
        return self.page(request, "admin/mcpservers/mcpserver/pins.html", _("Accepted tools"), server, **context)

    def decide_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Accept or reject the versions that were shown and chosen, never what the server lists meanwhile."""
        server, answer = self.to_change(request, object_id)
        if server is None:
            return answer
        what, _colon, which = request.POST.get("do", "").partition(":")
        decision = DECISIONS.get(what)
        lists = {"": "version", "shown": "shown", "plain": "plain"}  # marked, all of the page, those without suspicion
        ids = _ids(request.POST.getlist(lists[which]) if which in lists else [which])
        if decision is None:
            messages.error(request, _("Nothing was done: use one of the buttons."))
        elif not ids:
            messages.warning(request, _("Nothing was chosen: mark the tools first."))
        else:
            assert isinstance(request.user, User)  # the site let them in
            self._tell(request, decision, len(decide(server, ids, decision, request.user)))
        kept = {name: value for name in ("show", "q") if (value := request.POST.get(name))}
        address = reverse("admin:mcpservers_mcpserver_pins", args=[server.pk])
        return redirect(f"{address}?{urlencode(kept)}" if kept else address)

    def _tell(self, request: HttpRequest, decision: ToolVersion.Decision, number: int) -> None:
        if not number:
            messages.info(request, _("Nothing changed: it was decided already."))
        elif decision == ToolVersion.Decision.ACCEPTED:
            text = ngettext("%(number)d tool is accepted.", "%(number)d tools are accepted.", number)
            messages.success(request, text % {"number": number})
        else:
            text = ngettext("%(number)d tool is rejected.", "%(number)d tools are rejected.", number)
            messages.success(request, text % {"number": number})

    def pins_context(self, server_id: str | None) -> dict[str, Any]:
        """For the button on a server's page: how many wait."""
        try:
            key = UUID(str(server_id))
        except ValueError:
            return {"waiting_tools": 0}
        return {"waiting_tools": waiting(ToolVersion.objects.filter(server=key)).count()}


def _ids(texts: list[str]) -> list[UUID]:
    """What of a form's values are ids."""
    found = []
    for text in texts:
        try:
            found.append(UUID(text))
        except ValueError:
            continue
    return found
