"""Forms of the admin for people: what they may name, and what they must not take from others."""

from __future__ import annotations

from typing import Any, ClassVar

from django import forms
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _
from unfold.widgets import (
    UnfoldAdminPasswordWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from accounts import audit
from accounts.budgets_field import BudgetsField
from accounts.models import ApiKey, AuditAction, Membership, Organization, Role, User
from accounts.tenant_admin import Reach, TenantForm, within
from chatui.form_fields import RulesField


def last_owner(membership: Membership) -> bool:
    """Whether the organization would be left without an active owner if this membership went."""
    others = Membership.objects.active().filter(organization=membership.organization_id, role=Role.OWNER)
    return membership.role == Role.OWNER and not others.exclude(pk=membership.pk).exists()


class OrganizationForm(TenantForm):
    budgets = BudgetsField(
        label=_("Budgets"),
        help_text=_(
            "Periods begin at 00:00 UTC. “Only these” names groups or agents by slug and people by user name, separated"
            " by commas; for them it stands in for the budget of all of them."
        ),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields.get("budgets")
        if isinstance(field, BudgetsField):
            field.organization_id, field.stored = self.instance.pk, self.instance.budgets


class MembershipForm(TenantForm):
    """Role, groups and whether it holds. Only owners name owners, and somebody stays one."""

    reach: ClassVar[Reach] = Reach()

    def clean_role(self) -> str:
        role = str(self.cleaned_data["role"])
        organization = self.cleaned_data.get("organization") or self.instance.organization
        if role == Role.OWNER and self.instance.role != Role.OWNER and not self.reach.owns(organization.pk):
            raise ValidationError(_("Only an owner names another owner."))
        return role

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        stored = Membership.objects.filter(pk=self.instance.pk).first()
        leaves = cleaned.get("role") != Role.OWNER or cleaned.get("is_active") is False
        if stored is not None and leaves and not self.reach.superuser and last_owner(stored):
            self.add_error("role", _("This is the organization's last owner: name another one first."))
        return cleaned


class NewMembershipForm(MembershipForm):
    person = forms.CharField(
        label=_("Person"),
        help_text=_("The user name or e-mail address of an existing user."),
        widget=UnfoldAdminTextInputWidget,
    )

    def clean_person(self) -> User:
        found = User.named(str(self.cleaned_data["person"]).strip())
        if found is None:
            raise ValidationError(_("There is no user of this name or address: make one under Users."))
        self.instance.user = found
        return found

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        organization, person = cleaned.get("organization"), cleaned.get("person")
        if organization and person and organization.memberships.filter(user=person).exists():
            self.add_error("person", _("This user is a member already."))
        return cleaned


def _username(row: Membership) -> str:
    return str(row.user)


class GroupForm(TenantForm):
    rules = RulesField(
        label=_("Rules"),
        help_text=_(
            "What happens to its members' calls, on top of the rules of servers and agents: the strictest decides."
            " Patterns are over server__tool."
        ),
    )
    members = forms.ModelMultipleChoiceField(
        label=_("Members"), queryset=Membership.objects.none(), required=False, widget=forms.CheckboxSelectMultiple
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "members" not in self.fields:
            return
        memberships = Membership.objects.active().select_related("user").order_by("user__username")
        field = self.fields["members"]
        assert isinstance(field, forms.ModelMultipleChoiceField)
        # Whose members can be chosen is known once the organization is: not in the form for a new group.
        field.queryset = memberships.filter(organization=self.instance.organization_id)
        field.initial = self.instance.memberships.all() if self.instance.organization_id else ()
        field.label_from_instance = _username  # type: ignore[method-assign,assignment]  # as Django documents it

    def _save_m2m(self) -> None:
        super()._save_m2m()  # type: ignore[misc]  # of Django's ModelForm
        if "members" in self.cleaned_data:
            self.instance.memberships.set(self.cleaned_data["members"])


class UserForm(TenantForm):
    new_password = forms.CharField(
        label=_("New password"),
        required=False,
        strip=False,
        widget=UnfoldAdminPasswordWidget(attrs={"autocomplete": "new-password"}),
        help_text=_("Leave empty to keep what is set. Whoever signs in with a one-time link needs none."),
    )

    def clean_new_password(self) -> str:
        password = str(self.cleaned_data["new_password"])
        if password:
            validate_password(password, self.instance)
        return password

    def save(self, commit: bool = True) -> Any:
        if self.cleaned_data.get("new_password"):
            self.instance.set_password(self.cleaned_data["new_password"])
        elif self.instance._state.adding:
            self.instance.set_unusable_password()
        return super().save(commit)


class NewUserForm(UserForm):
    """A user with a first membership; without one an organization's admin would not see the user again."""

    reach: ClassVar[Reach] = Reach()
    organization = forms.ModelChoiceField(
        label=_("Organization"), queryset=Organization.objects.all(), widget=UnfoldAdminSelectWidget
    )
    role = forms.ChoiceField(label=_("Role"), choices=Role.choices, initial=Role.MEMBER, widget=UnfoldAdminSelectWidget)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        field = self.fields["organization"]
        assert isinstance(field, forms.ModelChoiceField)
        field.queryset = within(Organization.objects.all(), self.reach.choices())
        field.required = not self.reach.superuser

    def clean_role(self) -> str:
        role = str(self.cleaned_data["role"])
        organization = self.cleaned_data.get("organization")
        if role == Role.OWNER and organization and not self.reach.owns(organization.pk):
            raise ValidationError(_("Only an owner names another owner."))
        return role

    def _save_m2m(self) -> None:
        super()._save_m2m()  # type: ignore[misc]  # of Django's ModelForm
        if self.cleaned_data.get("organization"):
            membership = Membership.objects.create(
                user=self.instance, organization=self.cleaned_data["organization"], role=self.cleaned_data["role"]
            )
            audit.record(
                AuditAction.MEMBER_ADDED,
                organization_id=membership.organization_id,
                target=audit.Target("membership", membership.pk),
                person_id=membership.user_id,
                details={"values": {"role": [None, membership.role]}},
            )


class ApiKeyForm(TenantForm):
    reach: ClassVar[Reach] = Reach()
    person: ClassVar[Any] = None
    scopes = forms.MultipleChoiceField(
        label=_("Scopes"), choices=[(scope, scope) for scope in ApiKey.SCOPES], widget=forms.CheckboxSelectMultiple
    )

    def clean_user(self) -> User:
        user: User = self.cleaned_data["user"]
        if not self.reach.superuser and user != self.person:
            raise ValidationError(_("A key acts as its user: make one for yourself."))
        return user
