from django.contrib import admin

from tursiops.registry.models import Model, Version


@admin.register(Model)
class ModelAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # not generic at run time
    list_display = ["name", "team", "created_at"]


@admin.register(Version)
class VersionAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # not generic at run time
    list_display = ["__str__", "state", "format", "architecture", "created_at"]
    list_filter = ["state", "format"]
