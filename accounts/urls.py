"""Addresses of our own beside allauth's under `/accounts/`."""

from django.urls import path

from accounts import views

urlpatterns = [path("link/<str:secret>/", views.signin_link, name="signin_link")]
