"""Targets that aren't Deployments."""

import time

from rig.cases import case
from rig.objects import TOLERANT, leader_worker_set, scaled_object, stateful_set
from rig.tiers import REQUESTS_PER_REPLICA, cluster_access, serving, watched


@case("stateful-set", seconds=100, ci=True, needs=["fleet", "kubernetes"])
def ordered(c):
    """A StatefulSet that starts one pod after the other: the count is right from the first decision to the last pod."""
    scaler = c.scaler([watched(c, "chat", "StatefulSet", least=5, cold_start=4)], **cluster_access(c))
    c.api.apply(stateful_set(c.namespace, "chat", replicas=1, load="3s"))
    serving(c, "chat", 1)
    c.scale_by(scaler, "chat", kind="StatefulSet")
    c.reaches("chat", 5, 30, "the spec gets to 5", kind="StatefulSet")
    begun, seen = time.monotonic(), set()
    while c.fleet.counters(c.namespace, "chat")["ready"] < 5 and time.monotonic() - begun < 60:
        seen.add(c.spec_of("chat", "StatefulSet"))
        time.sleep(0.2)
    c.check("specs while the pods come one by one", {5}, seen, since=begun)
    c.check("replicas that serve", 5, c.fleet.counters(c.namespace, "chat")["ready"])


@case("leader-worker", seconds=120, ci=True, needs=["fleet", "lws", "kubernetes"])
def leader_worker(c):
    """A LeaderWorkerSet's group of two pods is one replica, ready as a whole; its leader alone is asked for its page."""
    scaler = c.scaler([watched(c, "big", "LeaderWorkerSet", cold_start=6)], **cluster_access(c))
    c.api.apply(leader_worker_set(c.namespace, "big", replicas=1, load="3s"))
    serving(c, "big", 1)
    c.scale_by(scaler, "big", kind="LeaderWorkerSet")
    c.wait(lambda: scaler.answer(c.namespace, "big") == 1, 30, "one group is enough")
    known = lambda: scaler.metric("vllm_scaler_known_replicas", tier="big")
    c.wait(lambda: known() == 1, 20, "the leader's page is read")
    c.check("expected replicas: groups, not pods", 1, int(scaler.metric("vllm_scaler_expected_replicas", tier="big")))
    c.fleet.load(c.namespace, "big", 2.2 * REQUESTS_PER_REPLICA)
    c.wait(lambda: c.spec_of("big", "LeaderWorkerSet") >= 3, 60, "the load needs three groups")
    serving(c, "big", 3)
    # The count may still go up between two looks at it.
    counts = lambda: (c.spec_of("big", "LeaderWorkerSet"), len(c.api.list("Pod", c.namespace)))
    c.wait(lambda: counts()[1] == 2 * counts()[0], 15, "each group has its two pods")
    c.check("groups and pods", "2 each", counts(), counts()[1] == 2 * counts()[0])
    c.check("requests lost", 0, c.fleet.counters(c.namespace, "big")["lost"])
    c.fleet.load(c.namespace, "big", 0)
