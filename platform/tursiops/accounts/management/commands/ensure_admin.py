"""Makes the first admin, if there is none. `manage.py up` calls it and shows the password once."""

import json
import secrets
from typing import Any

from django.core.management.base import BaseCommand, CommandParser

from tursiops.accounts import services
from tursiops.accounts.models import User


class Command(BaseCommand):
    help = "Make an admin with a generated password if there is no admin; prints JSON {created, username, password}"

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--username", default="admin")

    def handle(self, *args: Any, username: str, **options: Any) -> None:
        existing = User.objects.filter(is_superuser=True, is_active=True).order_by("date_joined").first()
        if existing is not None:
            self._say(created=False, username=existing.username, password=None)
            return
        password = secrets.token_urlsafe(15)
        user = services.create_admin(username=username, password=password)
        self._say(created=True, username=user.username, password=password)

    def _say(self, **answer: Any) -> None:
        self.stdout.write(json.dumps(answer))
