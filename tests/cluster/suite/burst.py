"""Load that outgrows what is there."""

import time

from rig.cases import case
from rig.tiers import CALM, REQUESTS_PER_REPLICA, cluster_access, serving, watched


# A jump whose need at 80 % (3.5) is far from a whole number.
JUMP_REPLICAS = 2.8
# How long the jump needs to be seen whole: the window of rates, a round, and a sync of the HPA.
SEEN_WHOLE_SECONDS = 14
# A quarter of the usual tokens: four times the requests, whose ten-second mean strays by half as much. With the usual ones
# chance alone asks for more than 4 once in a minute.
SMALL = 4


@case("burst", seconds=100, ci=True, needs=["fleet", "kubernetes"])
def burst(c):
    """A jump of the load is one decision, not two: what starts is counted on while the backlog grows that it will serve."""
    # A backlog that must be gone in 8 s asks for more and more replicas while it grows, if nobody counts on those that start.
    signals = {"latency": {"weight": 1, "queueTimeP95": "1s"}, "waiting": {"weight": 1, "drain": "8s"}}
    chat = watched(c, "chat", cold_start=25, hold=30, scrape=CALM, signals=signals)
    scaler = c.scaler([chat], **cluster_access(c))
    c.deploy("chat", replicas=1, image="2s", load="20s")
    c.scale_by(scaler, "chat")
    serving(c, "chat", 1)
    c.wait(lambda: scaler.answer(c.namespace, "chat") == 1, 20, "the quiet tier needs 1")
    c.fleet.load(c.namespace, "chat", SMALL * JUMP_REPLICAS * REQUESTS_PER_REPLICA, 600 // SMALL, 150 // SMALL)
    jumped = time.monotonic()
    steps = []
    while c.fleet.counters(c.namespace, "chat")["ready"] == 1 and time.monotonic() - jumped < 60:
        steps.append((time.monotonic() - jumped, c.spec_of("chat")))
        time.sleep(0.1)
    ordered = max(count for after, count in steps if after <= SEEN_WHOLE_SECONDS)
    highest = max(count for _, count in steps)
    c.check("ordered once the jump is seen whole (2.8 replicas' work at 80 %)", "4 or 5", ordered, ordered in (4, 5), since=jumped)
    c.check("highest count until the first of them serves", ordered, highest, since=jumped)
    time.sleep(10)
    c.check("10 s later", f"at most {ordered}", c.spec_of("chat"), c.spec_of("chat") <= ordered)
    c.check("requests lost", 0, c.fleet.counters(c.namespace, "chat")["lost"])
    c.fleet.load(c.namespace, "chat", 0)


@case("two-tiers", seconds=90, ci=True, needs=["fleet", "kubernetes"])
def two_tiers(c):
    """90 % on one tier and 30 % on another is not 60 %: one goes up, the other down."""
    tiers = [watched(c, name, hold=8) for name in ("busy", "idle")]
    scaler = c.scaler(tiers, **cluster_access(c))
    for name in ("busy", "idle"):
        c.deploy(name, replicas=4, drain="20s")
        c.fleet.load(c.namespace, name, (0.9 if name == "busy" else 0.3) * 4 * REQUESTS_PER_REPLICA)
    for name in ("busy", "idle"):
        serving(c, name, 4)
    time.sleep(5)
    for name in ("busy", "idle"):
        c.scale_by(scaler, name)
    time.sleep(45)
    busy, idle = c.spec_of("busy"), c.spec_of("idle")
    c.check("4 replicas at 90 %", "5 or 6", busy, busy in (5, 6))
    c.check("4 replicas at 30 %", "2", idle, idle == 2)
    c.check("requests lost", [0, 0], [c.fleet.counters(c.namespace, name)["lost"] for name in ("busy", "idle")])
    for name in ("busy", "idle"):
        c.fleet.load(c.namespace, name, 0)
