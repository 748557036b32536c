"""Which view answers which address."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

from accounts.views import own_settings
from conversations import approvals_page, usage_pages, views
from conversations.linking import signing_in

handler400 = "chatui.error_pages.bad_request"
handler403 = "chatui.error_pages.permission_denied"
handler404 = "chatui.error_pages.not_found"
handler500 = "chatui.error_pages.server_error"

urlpatterns = [
    path("", views.home, name="home"),
    path("o/<slug:organization>/", views.chat, name="chat"),
    path("o/<slug:organization>/c/<uuid:conversation>/", views.chat, name="conversation"),
    path("o/<slug:organization>/approvals/", approvals_page.approvals, name="approvals"),
    path("o/<slug:organization>/usage/", usage_pages.usage, name="usage"),
    path("o/<slug:organization>/usage/export/", usage_pages.export, name="usage_export"),
    path("o/<slug:organization>/connections/", include("conversations.linking.urls")),
    path("settings/", own_settings, name="settings"),
    path("mcp/oauth/callback", signing_in.callback, name="oauth_callback"),
    path("mcp/oauth/client.json", signing_in.client_document, name="oauth_client"),
    path("accounts/", include("accounts.urls")),
    path("accounts/", include("allauth.urls")),
    path("api/v1/", include("conversations.api.urls")),
    path("v1/", include("conversations.openai_api.urls")),
    path("favicon.ico", RedirectView.as_view(url="/static/icon.svg")),  # for pages that name no icon
    path("admin/", admin.site.urls),
]
