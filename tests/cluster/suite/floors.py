"""Floors: capacity is ready *at* the start, and two windows that meet leave no gap."""

import datetime
import time

from rig.cases import case
from rig.tiers import serving, watched, cluster_access

LEAD = 24
COLD_START = 20
# UTC+3 all the year: the floor's clock isn't this machine's.
ZONE, OFFSET = "Etc/GMT-3", datetime.timedelta(hours=3)


def cron(at):
    local = at + OFFSET
    return f"{local.minute} {local.hour} * * *"


def next_start(at_least):
    """A whole minute, at least so many seconds from now."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return (now + datetime.timedelta(seconds=at_least + 60)).replace(second=0, microsecond=0)


def until(at):
    return (at - datetime.datetime.now(datetime.timezone.utc)).total_seconds()


def watch_the_start(c, name, start, meets, ends, floor):
    """From well before the start to after the end: the rows that say whether the promise was kept."""
    ordered = ready_at = None
    lowest = floor
    while until(ends) > 0:
        spec = c.spec_of(name)
        if ordered is None and spec >= floor:
            ordered = until(start)
        serves = c.fleet.counters(c.namespace, name)["ready"]
        if ready_at is None and serves >= floor:
            ready_at = until(start)
        if until(start) < 0:
            lowest = min(lowest, serves)
        time.sleep(0.1)
    shown = None if ordered is None else round(ordered, 1)
    c.check(f"{name}: seconds before the start at which it is ordered", f"{LEAD} or up to 6 less", shown,
            ordered is not None and LEAD - 6 <= ordered <= LEAD + 1)
    shown = None if ready_at is None else round(ready_at, 1)
    c.check(f"{name}: seconds before the start at which all {floor} serve", "0 or more", shown, ready_at is not None and ready_at >= 0)
    c.check(f"{name}: fewest that serve from the start over the meeting of two windows to the end", floor, lowest)


def windows(start, meets, ends, floor):
    return [
        {"timezone": ZONE, "start": cron(start), "end": cron(meets), "desiredReplicas": floor},
        {"timezone": ZONE, "start": cron(meets), "end": cron(ends), "desiredReplicas": floor},
    ]


@case("floor", seconds=240, ci=True, needs=["fleet"])
def floor_in_metadata(c):
    """A floor in metadata is ordered one lead early and ready at its start; two windows that meet leave no gap."""
    scaler = c.scaler(allowMetadataTiers=True)
    c.deploy("night", replicas=1, image="2s", load=f"{COLD_START - 6}s")
    serving(c, "night", 1)
    start = next_start(LEAD + 15)
    meets, ends = start + datetime.timedelta(minutes=1), start + datetime.timedelta(minutes=2)
    metadata = {
        "minReplicas": "1", "maxReplicas": "20", "coldStart": f"{COLD_START}s", "controlDelay": f"{LEAD - COLD_START}s",
        "drain": "2s", "hold": "6s", "maxStep": "100%", "tolerance": "0",
    }
    for number, window in enumerate(windows(start, meets, ends, 4)):
        suffix = "" if number == 0 else str(number + 1)
        metadata |= {f"{key}{suffix}": str(value) for key, value in window.items()}
    c.scale_by(scaler, "night", metadata=metadata)
    watch_the_start(c, "night", start, meets, ends, 4)
    c.reaches("night", 1, 30, "night goes back after the end")


@case("floor-learned", seconds=260, needs=["fleet", "kubernetes"])
def floor_with_a_learned_cold_start(c):
    """The file says 2 s, the pods take 20: once five starts are seen, the floor opens by what was learned."""
    start = next_start(LEAD + 70)
    meets, ends = start + datetime.timedelta(minutes=1), start + datetime.timedelta(minutes=2)
    day = watched(c, "day", cold_start=2, floors=windows(start, meets, ends, 4))
    scaler = c.scaler([day], **cluster_access(c))
    c.deploy("day", replicas=5, image="2s", load=f"{COLD_START - 6}s")
    serving(c, "day", 5)
    c.scale_by(scaler, "day")
    c.reaches("day", 1, 40, "day is quiet")
    c.wait(lambda: c.fleet.counters(c.namespace, "day")["ready"] == 1, 20, "the other four are gone")
    watch_the_start(c, "day", start, meets, ends, 4)
