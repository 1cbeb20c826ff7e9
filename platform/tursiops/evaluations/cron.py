"""Five-field cron in a time zone: checked, told in words, and its next times. As celery-beat reads it: a time must
fit every field (day of month *and* day of week)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from celery.schedules import ParseException, crontab

FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_HORIZON_DAYS = 8 * 366 + 1  # the longest gap of a date: 29 February around 2100
_DAYS = {
    "en": ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"),
    "zh": ("周日", "周一", "周二", "周三", "周四", "周五", "周六"),
}
_MONTHS = [
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
]


class CronError(ValueError):
    """`field` is cron or timezone."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True)
class Cron:
    text: str  # the five fields
    zone: ZoneInfo
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 = Sunday

    @property
    def fields(self) -> dict[str, str]:
        """As django-celery-beat's CrontabSchedule holds them."""
        return dict(zip(FIELDS, self.text.split(), strict=True))


def parse(text: str, timezone: str) -> Cron:
    """Raises CronError naming the field."""
    parts = text.split()
    if len(parts) != len(FIELDS):
        raise CronError("cron", f"{text!r} has {len(parts)} fields; five are needed: {' '.join(FIELDS)}.")
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CronError("timezone", f"{timezone!r} is no time zone. Write one as Europe/Berlin or UTC.") from None
    try:
        read = crontab(**dict(zip(FIELDS, parts, strict=True)))
    except (ParseException, ValueError) as error:
        raise CronError("cron", f"{text!r} can't be read: {error}.") from None
    cron = Cron(
        " ".join(parts),
        zone,
        tuple(sorted(read.minute)),
        tuple(sorted(read.hour)),
        frozenset(read.day_of_month),
        frozenset(read.month_of_year),
        frozenset(read.day_of_week),
    )
    if next(times(cron, datetime.now(UTC)), None) is None:
        raise CronError("cron", f"{text!r} fits no day of the coming years.")
    return cron


def times(cron: Cron, after: datetime) -> Iterator[datetime]:
    """Its times after `after`, in order, in its zone. An hour that daylight saving leaves out is left out; of one that
    comes twice the first counts."""
    first = after.astimezone(cron.zone).date()
    for offset in range(_HORIZON_DAYS):
        day = first + timedelta(days=offset)
        if not (day.month in cron.months and day.day in cron.days and day.isoweekday() % 7 in cron.weekdays):
            continue
        for hour in cron.hours:
            for minute in cron.minutes:
                at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=cron.zone)
                exists = at.astimezone(UTC).astimezone(cron.zone).replace(fold=0) == at
                if exists and at > after:
                    yield at


def between(cron: Cron, after: datetime, until: datetime, most: int) -> list[datetime]:
    """Its times in (after, until], the newest `most` of them."""
    found: list[datetime] = []
    for at in times(cron, after):
        if at > until:
            break
        found = [*found, at][-most:]
    return found


def words(cron: Cron, language: str) -> str:
    """When it fires, in "en" or "zh"."""
    zone = cron.zone.key
    if language == "zh":
        return f"{_days_zh(cron)}{_clock_zh(cron)}({zone})"
    return f"{_days_en(cron)} {_clock_en(cron)} ({zone})"


def _step(values: tuple[int, ...], whole: int) -> int:
    """n where the values are every n-th from 0 on; else 0."""
    step = values[1] - values[0] if len(values) > 1 else 0
    return step if step and values == tuple(range(0, whole, step)) else 0


def _clocks(cron: Cron) -> list[str]:
    """Each time of day; empty where there are too many to read."""
    clocks = [f"{hour:02d}:{minute:02d}" for hour in cron.hours for minute in cron.minutes]
    return clocks if len(clocks) <= 6 else []


def _clock_en(cron: Cron) -> str:
    if clocks := _clocks(cron):
        return "at " + _and(clocks, "and")
    every = _step(cron.minutes, 60)
    minutes = (
        f"every {'minute' if every == 1 else f'{every} minutes'}"
        if every
        else "at minute " + _and([str(minute) for minute in cron.minutes], "and")
    )
    if len(cron.hours) == 24:
        return minutes if every else f"{minutes} of each hour"
    step = _step(cron.hours, 24)
    return f"{minutes} of " + (f"every {step} hours" if step else "hours " + _ranges(cron.hours, "–", ", "))


def _clock_zh(cron: Cron) -> str:
    if clocks := _clocks(cron):
        return "、".join(clocks)
    every = _step(cron.minutes, 60)
    minutes = f"每 {every} 分钟" if every else "第 " + "、".join(str(minute) for minute in cron.minutes) + " 分钟"
    if len(cron.hours) == 24:
        return minutes if every else f"每小时{minutes}"
    step = _step(cron.hours, 24)
    return (f"每 {step} 小时" if step else _ranges(cron.hours, "–", "、") + " 时") + "的" + minutes


def _days_en(cron: Cron) -> str:
    parts = []
    if len(cron.weekdays) < 7:
        parts.append(_weekdays(cron, "en"))
    if len(cron.days) < 31:
        parts.append("day " + _ranges(sorted(cron.days), "–", ", ") + " of the month")
    told = ", if it is ".join(reversed(parts)) if len(parts) == 2 else "".join(parts)
    months = [_MONTHS[month - 1] for month in sorted(cron.months)] if len(cron.months) < 12 else []
    if not told:
        told = "every day"
    told = told if not months else f"{told} in {_and(months, 'and')}"
    return told[:1].upper() + told[1:]


def _days_zh(cron: Cron) -> str:
    months = "、".join(f"{month}月" for month in sorted(cron.months)) if len(cron.months) < 12 else ""
    days = _ranges(sorted(cron.days), "–", "、") + " 日" if len(cron.days) < 31 else ""
    weekdays = _weekdays(cron, "zh") if len(cron.weekdays) < 7 else ""
    if days and weekdays:
        days = f"{days}且为{weekdays}"
    told = days or weekdays
    if not months:
        return f"每月 {told} " if days else f"每{told} " if weekdays else "每天 "
    return f"每年{months}{'' if not told else ' '}{told or '每天'} "


def _weekdays(cron: Cron, language: str) -> str:
    names = _DAYS[language]
    order = sorted(cron.weekdays, key=lambda day: (day - 1) % 7)  # Monday first
    places = [(day - 1) % 7 for day in order]
    if len(order) > 2 and places == list(range(places[0], places[0] + len(places))):
        first, last = names[order[0]], names[order[-1]]
        return f"{first} to {last}" if language == "en" else f"{first}至{last}"
    chosen = [names[day] for day in order]
    return _and(chosen, "and") if language == "en" else "、".join(chosen)


def _ranges(values: tuple[int, ...] | list[int], to: str, between: str) -> str:
    """1, 2, 3, 7 → 1–3, 7."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return between.join(f"{run[0]}{to}{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def _and(items: list[str], word: str) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} {word} {items[-1]}"
