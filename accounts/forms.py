"""allauth's sign-in form in our words."""

from allauth.account.forms import LoginForm as BaseLoginForm
from django.conf import settings
from django.utils.translation import gettext_lazy as _


class LoginForm(BaseLoginForm):  # type: ignore[misc]  # allauth has no type stubs
    """Fields `login` (a username or an e-mail address) and `password`."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)
        self.fields["login"].label = _("Username or e-mail address")
        self.fields["login"].widget.attrs.update(
            autocomplete="username", autocapitalize="none", spellcheck="false", autofocus=True
        )
        for field in self.fields.values():
            field.widget.attrs.pop("placeholder", None)  # it would only repeat the label

    @property
    def signup_open(self) -> bool:
        return bool(settings.SIGNUP_OPEN)
