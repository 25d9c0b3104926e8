"""A run to look at: one tier from zero over a ramp and a floor back to zero, with simulated engines."""

import datetime
import time

from rig import timeline
from rig.cases import case
from rig.fleet import Fleet
from rig.tiers import REQUESTS_PER_REPLICA, cluster_access, watched

from .floors import ZONE, cron, next_start, until

COLD_START = 20


@case("recorded", seconds=420, needs=["fleet", "kubernetes"])
def recorded(c):
    """From zero over a ramp and a floor back to zero; the timeline is kept as a picture."""
    start = next_start(200)
    ends = start + datetime.timedelta(minutes=1)
    tier = watched(
        c, "chat", least=0, most=20, cold_start=COLD_START, hold=25, activator=Fleet.activator(c.namespace, "chat"),
        floors=[{"timezone": ZONE, "start": cron(start), "end": cron(ends), "desiredReplicas": 6}],
    )
    scaler = c.scaler([tier], **cluster_access(c))
    c.deploy("chat", replicas=0, image="3s", load=f"{COLD_START - 6}s", drain="4s")
    c.fleet.load(c.namespace, "chat", 0)
    c.scale_by(scaler, "chat", minimum=0)
    rate = 0.0

    def look():
        counts = c.fleet.counters(c.namespace, "chat") or {}
        return {
            "requests/s": rate, "in flight": counts.get("in_flight"), "held": counts.get("held"),
            "required": scaler.answer(c.namespace, "chat"), "spec": c.spec_of("chat"), "ready": counts.get("ready"),
            "KV in use": counts.get("kv_share"),
        }

    line = timeline.Timeline(look)
    try:
        c.wait(lambda: scaler.answer(c.namespace, "chat") == 0, 30, "asleep")
        for label, replicas_worth, seconds in [("asleep", 0, 15), ("first request", 0.4, 50), ("ramp", 2, 40), ("peak", 4, 70), ("less", 1, 45)]:
            line.mark(label)
            rate = replicas_worth * REQUESTS_PER_REPLICA
            c.fleet.load(c.namespace, "chat", rate)
            time.sleep(seconds)
        line.mark("quiet")
        rate = 0.0
        c.fleet.load(c.namespace, "chat", 0)
        while until(start) > 0:
            time.sleep(0.2)
        line.mark("floor of 6 starts")
        c.check("serve at the floor's start", 6, c.fleet.counters(c.namespace, "chat")["ready"])
        while until(ends) > 0:
            time.sleep(0.2)
        line.mark("floor ends")
        c.reaches("chat", 0, 120, "asleep again")
        time.sleep(8)
        counts = c.fleet.counters(c.namespace, "chat")
        c.check("requests lost", 0, counts["lost"])
        c.check("requests done", counts["sent"], counts["done"])
    finally:
        timeline.keep(c, line, "Simulated engines, real KEDA and HPA: cold start 20 s", [
            ("load", {"requests/s": "#888", "held": "#c33"}),
            ("KV cache in use, mean", {"KV in use": "#a5a"}),
            ("replicas", {"required": "#e80", "spec": "#27a", "ready": "#292"}),
        ])
