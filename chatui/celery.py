"""The Celery application: tasks are thin wrappers over functions that also run without a broker."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "chatui.settings")
app = Celery("chatui")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
