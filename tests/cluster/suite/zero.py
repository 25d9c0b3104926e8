"""From nothing, and back to it."""

import time

from rig.cases import case
from rig.fleet import Fleet
from rig.tiers import cluster_access, serving, watched

COOLDOWN = 5


def sleeping(c, name, load):
    """A tier at zero with an activator before it."""
    tier = watched(c, name, least=0, cold_start=load + 2, hold=4, activator=Fleet.activator(c.namespace, name))
    scaler = c.scaler([tier], **cluster_access(c))
    c.deploy(name, replicas=0, load=f"{load}s")
    # The router shows a queue of 0 from here on.
    c.fleet.load(c.namespace, name, 0)
    c.scale_by(scaler, name, minimum=0, cooldown=COOLDOWN, polling=30)
    c.wait(lambda: scaler.answer(c.namespace, name) == 0, 20, f"{name} needs none")
    c.wait(lambda: scaler.metric("vllm_scaler_grpc_streams_open", method="StreamIsActive"), 20, "KEDA holds the push stream open")
    # The first poll is behind us, the next is half a minute away: what wakes the tier is the push.
    time.sleep(3)
    return scaler


@case("wake", seconds=40, ci=True, needs=["fleet", "kubernetes"])
def wake(c):
    """0 to 1 by push: the queue's growth is acted on within a second, and the request is served."""
    sleeping(c, "chat", 3)
    c.check("asleep", 0, c.spec_of("chat"))
    c.fleet.burst(c.namespace, "chat", 1)
    sent = time.monotonic()
    c.wait(lambda: c.spec_of("chat") == 1, 20, "the target is scaled to 1", every=0.02)
    taken = time.monotonic() - sent
    c.check("seconds from the queue's growth to the scaled target", "below 1", f"{taken:.2f}", taken < 1, since=sent)
    c.wait(lambda: c.api.list("Pod", c.namespace), 20, "there is a pod", every=0.02)
    taken = time.monotonic() - sent
    c.check("seconds from the queue's growth to the created pod", "below 2", f"{taken:.2f}", taken < 2, since=sent)
    c.wait(lambda: c.fleet.counters(c.namespace, "chat")["done"] == 1, 20, "the request is served")
    c.check("requests lost", 0, c.fleet.counters(c.namespace, "chat")["lost"])


@case("idle", seconds=90, ci=True, needs=["fleet", "kubernetes"])
def idle(c):
    """1 to 0 when idle alone: not while the engine loads, not while a request runs; then for good."""
    sleeping(c, "chat", 5 * COOLDOWN)
    # A long answer: its work outlasts the cooldown too.
    c.fleet.burst(c.namespace, "chat", 1, input_tokens=500, output_tokens=900)
    c.wait(lambda: c.spec_of("chat") == 1, 10, "the target is scaled to 1")
    begun, seen = time.monotonic(), set()
    while c.fleet.counters(c.namespace, "chat")["done"] == 0 and time.monotonic() - begun < 80:
        seen.add(c.spec_of("chat"))
        time.sleep(0.2)
    c.check("counts while it loads and works", {1}, seen, since=begun)
    c.check("done, lost", (1, 0), tuple(c.fleet.counters(c.namespace, "chat")[k] for k in ("done", "lost")))
    c.reaches("chat", 0, 60, "idle for the cooldown: back to 0")
