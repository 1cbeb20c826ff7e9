"""Cron in a time zone: what it means in words, when it comes, and that celery-beat comes at the same times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from django_celery_beat.tzcrontab import TzAwareCrontab
from tursiops.evaluations import cron

BERLIN = "Europe/Berlin"
NOON = datetime(2026, 3, 27, 12, tzinfo=UTC)  # two days before daylight saving begins there


@pytest.mark.parametrize(
    ("text", "english", "chinese"),
    [
        ("0 2 * * *", "Every day at 02:00", "每天 02:00"),
        ("30 3 * * 1-5", "Monday to Friday at 03:30", "每周一至周五 03:30"),
        ("*/15 * * * *", "Every day every 15 minutes", "每天 每 15 分钟"),
        ("0 6 * * 6,0", "Saturday and Sunday at 06:00", "每周六、周日 06:00"),
        ("0 3 13 * 5", "Day 13 of the month, if it is Friday at 03:00", "每月 13 日且为周五 03:00"),
        ("0 0 1 1,7 *", "Day 1 of the month in January and July at 00:00", "每年1月、7月 1 日 00:00"),
        ("5 */6 * * *", "Every day at 00:05, 06:05, 12:05 and 18:05", "每天 00:05、06:05、12:05、18:05"),
        ("0 9-17 * * *", "Every day at minute 0 of hours 9–17", "每天 9–17 时的第 0 分钟"),
    ],
)
def test_words(text, english, chinese):
    read = cron.parse(text, BERLIN)
    assert cron.words(read, "en") == f"{english} ({BERLIN})"
    assert cron.words(read, "zh") == f"{chinese}({BERLIN})"


def test_next_times_are_local_and_skip_the_hour_that_is_not_there():
    night = cron.parse("30 2 * * *", BERLIN)
    times = [at.isoformat() for at in islice(cron.times(night, NOON), 3)]
    assert times == ["2026-03-28T02:30:00+01:00", "2026-03-30T02:30:00+02:00", "2026-03-31T02:30:00+02:00"]
    leap = cron.parse("0 0 29 2 *", "UTC")
    assert next(cron.times(leap, NOON)) == datetime(2028, 2, 29, tzinfo=UTC)


@pytest.mark.parametrize("text", ["0 2 * * *", "30 3 * * 1-5", "*/20 * * * *", "0 0 13 * 5", "15 4 1-7 6 *"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/St_Johns"])
def test_celery_beat_means_the_same_times(text, zone):
    """Its schedule, asked what is left from each of our times on, names the next of ours."""
    read = cron.parse(text, zone)
    times = list(islice(cron.times(read, NOON), 6))
    for before, after in pairwise(times):
        beat = TzAwareCrontab(**read.fields, tz=ZoneInfo(zone))
        beat.nowfun = lambda now=before: now  # the moment when it looks
        assert beat.remaining_estimate(before) == after.astimezone(UTC) - before.astimezone(UTC)


def test_between_gives_the_newest():
    read = cron.parse("0 * * * *", "UTC")
    found = cron.between(read, NOON, NOON + timedelta(hours=30), 3)
    assert [at - NOON for at in found] == [timedelta(hours=hours) for hours in (28, 29, 30)]
    assert cron.between(read, NOON, NOON + timedelta(minutes=59), 3) == []


@pytest.mark.parametrize(
    ("text", "zone", "field", "says"),
    [
        ("0 2 * *", "UTC", "cron", "has 4 fields; five are needed"),
        ("0 25 * * *", "UTC", "cron", "25 > 23"),
        ("0 2 30 2 *", "UTC", "cron", "never occurs"),
        ("", "UTC", "cron", "has 0 fields"),
        ("0 2 * * *", "Mars/Olympus", "timezone", "no time zone"),
        ("0 2 * * *", "../../etc/passwd", "timezone", "no time zone"),
    ],
)
def test_what_can_not_be_read_names_its_field(text, zone, field, says):
    with pytest.raises(cron.CronError, match=says) as caught:
        cron.parse(text, zone)
    assert caught.value.field == field
