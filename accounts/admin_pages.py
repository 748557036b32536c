"""Pages of a model's admin besides Django's own: the row, who may see or change it, and the frame around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse


class AdminPages:
    """For a `ModelAdmin`, and for what is mixed into one."""

    admin_site: Any
    opts: Any

    if TYPE_CHECKING:  # of Django's `ModelAdmin`

        def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any: ...
        def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool: ...
        def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool: ...
        def _get_obj_does_not_exist_redirect(self, request: HttpRequest, opts: Any, object_id: str) -> HttpResponse: ...

    def seen(self, request: HttpRequest, object_id: str) -> Any:
        """The row; None where there is none that the person may see."""
        row = self.get_object(request, object_id)
        return row if row is not None and self.has_view_permission(request, row) else None

    def changeable(self, request: HttpRequest, object_id: str) -> Any:
        """The row; None where there is none that the person may change."""
        row = self.seen(request, object_id)
        return row if row is not None and self.has_change_permission(request, row) else None

    def missing(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The answer where there is no such row for the person."""
        return self._get_obj_does_not_exist_redirect(request, self.opts, object_id)

    def page(self, request: HttpRequest, template: str, title: Any, row: Any, **context: Any) -> HttpResponse:
        """A page about `row`, in the frame of the site."""
        frame = self.admin_site.each_context(request)
        values = {**frame, "title": title, "subtitle": str(row), "opts": self.opts, **context}
        return TemplateResponse(request, template, values)

    def to_change(self, request: HttpRequest, object_id: str) -> tuple[Any, HttpResponse]:
        """The row of a button, or None and the answer that is given instead. Only by POST."""
        if request.method != "POST":
            return None, HttpResponseNotAllowed(["POST"])
        row = self.changeable(request, object_id)
        return row, HttpResponse() if row is not None else self.missing(request, object_id)
