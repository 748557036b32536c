"""The addresses under `/v1/`."""

from django.urls import path

from conversations.openai_api import views

urlpatterns = [
    path("models", views.models),
    path("models/<str:slug>", views.model),
    path("chat/completions", views.completions),
]
