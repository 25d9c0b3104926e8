"""Load that outgrows what is there."""

import time

from rig.cases import case
from rig.tiers import REQUESTS_PER_REPLICA, cluster_access, serving, watched


@case("burst", seconds=70, ci=True, needs=["fleet", "kubernetes"])
def burst(c):
    """A burst is one decision, not two: what starts is counted while it starts."""
    chat = watched(
        c, "chat", cold_start=20, hold=15,
        signals={"latency": {"weight": 1, "queueTimeP95": "1s"}},
    )
    scaler = c.scaler([chat], **cluster_access(c))
    c.deploy("chat", replicas=1, load="17s")
    c.scale_by(scaler, "chat")
    serving(c, "chat", 1)
    c.wait(lambda: scaler.answer(c.namespace, "chat") == 1, 20, "the quiet tier needs 1")
    c.fleet.burst(c.namespace, "chat", 300)
    sent = time.monotonic()
    steps = []
    while c.fleet.counters(c.namespace, "chat")["ready"] == 1 and time.monotonic() - sent < 40:
        count = c.spec_of("chat")
        if not steps or count != steps[-1]:
            steps.append(count)
        time.sleep(0.1)
    c.check("counts from the burst until its pods serve", "1 and one higher", steps, len(steps) == 2 and steps[0] == 1 < steps[1])
    c.wait(lambda: c.fleet.counters(c.namespace, "chat")["done"] >= 300, 60, "all requests are done")
    c.check("requests lost", 0, c.fleet.counters(c.namespace, "chat")["lost"])


@case("two-tiers", seconds=90, ci=True, needs=["fleet", "kubernetes"])
def two_tiers(c):
    """90 % on one tier and 30 % on another is not 60 %: one goes up, the other down."""
    tiers = [watched(c, name, hold=8) for name in ("busy", "idle")]
    scaler = c.scaler(tiers, **cluster_access(c))
    for name in ("busy", "idle"):
        c.deploy(name, replicas=4)
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
