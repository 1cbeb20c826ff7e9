from django.contrib import admin
from django.http import HttpRequest

from tursiops.jobs.models import Job


@admin.register(Job)
class JobAdmin(admin.ModelAdmin):  # type: ignore[type-arg] # not generic at run time
    list_display = ["title", "kind", "state", "attempt", "node_name", "created_at"]
    list_filter = ["state", "kind"]
    readonly_fields = [field.name for field in Job._meta.fields]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # jobs are made by services
