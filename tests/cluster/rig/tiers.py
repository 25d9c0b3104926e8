"""Tiers of the server's file, with the spans of the rig: everything in seconds, nothing else changed."""

from .objects import KNOWS_TOLERANCE

# What a simulated replica (an RTX 4090 with an 8B model) can do, beside nothing else.
CAPACITY = {"inputTokensPerSecond": 10800, "outputTokensPerSecond": 1500, "learn": False}
# With requests of 600 tokens in and 150 out, half to one and a half of each.
REQUESTS_PER_REPLICA = 1 / (600 / CAPACITY["inputTokensPerSecond"] + 150 / CAPACITY["outputTokensPerSecond"])
SCRAPE = {"interval": "1s", "timeout": "500ms", "staleAfter": "5s", "rateWindow": "5s"}
# Where the exact count matters: rates over a window that arrivals at random don't shake.
CALM = {**SCRAPE, "rateWindow": "10s"}


def tier(namespace, name, source, least=1, most=50, cold_start=5, hold=6, tolerance=0 if KNOWS_TOLERANCE else 0.1, **more):
    """`cold_start` and `hold` in seconds."""
    return {
        "name": name, "namespace": namespace, "source": source, "replicas": {"min": least, "max": most},
        "coldStart": f"{cold_start}s", "drain": "2s", "controlDelay": "4s", "scrape": SCRAPE, "capacity": CAPACITY,
        "scaleDown": {"hold": f"{hold}s", "maxStep": "100%"}, "holdUnknown": "10s", "hpa": {"tolerance": tolerance}, **more,
    }


def pods_of(kind, name):
    """The source `kubernetes` with a named target; the port is the one that the container calls `http`."""
    target = {"kind": kind, "name": name}
    target["apiVersion"] = "leaderworkerset.x-k8s.io/v1" if kind == "LeaderWorkerSet" else "apps/v1"
    return {"kubernetes": {"target": target, "nodeWait": "10s"}}


def watched(c, name, kind="Deployment", namespace=None, **more):
    """A tier whose pods are watched."""
    return tier(namespace or c.namespace, name, pods_of(kind, name), **more)


def cluster_access(c):
    """The server's way to the API server: what a tier of `watched` needs in the file."""
    return {"kubernetes": {"kubeconfig": c.api.kubeconfig}}


def serving(c, name, count, namespace=None, seconds=60):
    """Waits until so many simulated replicas serve."""
    return c.wait(
        lambda: (c.fleet.counters(namespace or c.namespace, name) or {}).get("ready", 0) >= count, seconds,
        f"{count} replicas of {name} serve",
    )
