"""Addresses of our own beside allauth's under `/accounts/`."""

from django.urls import path

from accounts import oidc, views

urlpatterns = [
    path("link/<str:secret>/", views.signin_link, name="signin_link"),
    path(
        "oidc/<str:provider_id>/login/callback/", oidc.callback, name="openid_connect_callback"
    ),  # instead of allauth's
]
