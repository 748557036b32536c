"""Addresses under `/o/<organization>/connections/`."""

from django.urls import path

from conversations.linking import pages, signing_in

urlpatterns = [
    path("", pages.connections, name="connections"),
    path("accounts/<uuid:account>/", pages.change_account, name="change_account"),
    path("<slug:server>/variables/", pages.change_variables, name="change_variables"),
    path("<slug:server>/begin", signing_in.begin, name="begin_sign_in"),
]
