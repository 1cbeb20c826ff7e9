"""The models and their migrations agree."""

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_no_migration_is_missing(capsys):
    call_command("makemigrations", "--check", "--dry-run")


@pytest.mark.django_db
def test_system_checks_pass():
    call_command("check", "--fail-level", "WARNING")
