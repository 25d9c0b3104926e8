"""Capacity that doesn't come is named."""

from rig.cases import case
from rig.tiers import cluster_access, serving, watched


def blocked(c, scaler, name):
    return scaler.metric("vllm_scaler_supply_replicas", tier=name, state="blocked") or 0


def told(c, scaler, name, word):
    """Does the API's view of the tier say this?"""
    return word.lower() in str(scaler.tier(c.namespace, name)).lower()


@case("blocked", seconds=90, ci=True, needs=["fleet", "kubernetes"])
def blocked_capacity(c):
    """Nodes full, images that can't be had, containers that crash, a quota: counted as blocked, with the reason."""
    c.cluster.add_node(f"{c.namespace}-node", c.namespace, 2)
    tiers = [watched(c, name, least=4, cold_start=3, most=10) for name in ("gpus", "image", "crash")]
    scaler = c.scaler(tiers, **cluster_access(c))
    c.deploy("gpus", replicas=1, pool=c.namespace)
    c.deploy("image", replicas=4, labels={"stage/stuck": "image"})
    c.deploy("crash", replicas=4, labels={"stage/stuck": "crash"})
    serving(c, "gpus", 1)
    c.scale_by(scaler, "gpus")
    serving(c, "gpus", 2)
    for name, count, word in [("gpus", 2, "nvidia.com/gpu"), ("image", 4, "image pull"), ("crash", 4, "crash loop")]:
        c.wait(lambda: blocked(c, scaler, name) == count, 60, f"{count} of {name} are blocked")
        c.check(f"{name}: blocked", count, int(blocked(c, scaler, name)))
        c.check(f"{name}: the reason", word, told(c, scaler, name, word), told(c, scaler, name, word))


@case("quota", seconds=60, needs=["fleet", "kubernetes"])
def quota(c):
    """Pods that a quota refuses are seen on the ReplicaSet."""
    c.api.apply({"kind": "ResourceQuota", "metadata": {"name": "two", "namespace": c.namespace}, "spec": {"hard": {"pods": "2"}}})
    scaler = c.scaler([watched(c, "chat", least=4, cold_start=3, most=10)], **cluster_access(c))
    c.deploy("chat", replicas=1)
    serving(c, "chat", 1)
    c.scale_by(scaler, "chat")
    serving(c, "chat", 2)
    refused = lambda: scaler.metric("vllm_scaler_capacity_blocked", tier="chat", reason="createRefused") or 0
    c.wait(lambda: refused() == 2, 60, "2 are refused")
    c.check("pods that the quota refuses", 2, int(refused()))
    c.check("the reason", "quota", told(c, scaler, "chat", "quota"), told(c, scaler, "chat", "quota"))
