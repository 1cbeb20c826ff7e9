from django.contrib import admin
from django.contrib.auth.admin import UserAdmin

from tursiops.accounts.models import Membership, Team, User


class MembershipInline(admin.TabularInline):  # type: ignore[type-arg] # not generic at run time
    model = Membership
    extra = 0


@admin.register(Team)
class TeamAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # not generic at run time
    inlines = [MembershipInline]


admin.site.register(User, UserAdmin)
