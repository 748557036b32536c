"""Django's registration of the admin, with our site in the place of Django's."""

from django.contrib.admin.apps import AdminConfig


class ChatUIAdminConfig(AdminConfig):
    default_site = "chatui.admin_site.ChatUIAdminSite"
