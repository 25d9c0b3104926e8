"""Objects that go and come back, and several that share."""

import time

from rig.cases import case
from rig.tiers import cluster_access, pods_of, serving, tier, watched


@case("recreate", seconds=120, ci=True, needs=["fleet", "kubernetes"])
def recreate(c):
    """Target, ScaledObject and namespace deleted and made again: each time the answer gets through again."""
    scaler = c.scaler([watched(c, "chat", least=3)], **cluster_access(c))
    c.deploy("chat", replicas=1)
    c.scale_by(scaler, "chat")
    c.reaches("chat", 3, 40, "at first")

    c.api.delete("Deployment", c.namespace, "chat")
    c.wait(lambda: not c.api.list("Pod", c.namespace), 40, "its pods are gone")
    c.deploy("chat", replicas=1)
    c.reaches("chat", 3, 60, "the target made again")

    c.api.delete("ScaledObject", c.namespace, "chat")
    c.wait(lambda: c.hpa("chat") is None, 40, "its HPA is gone")
    c.api.patch("Deployment", c.namespace, "chat", {"spec": {"replicas": 1}})
    c.scale_by(scaler, "chat")
    c.reaches("chat", 3, 40, "the ScaledObject made again")

    c.api.delete("Namespace", None, c.namespace)
    c.wait(lambda: c.api.find("Namespace", None, c.namespace) is None, 90, "the namespace is gone")
    c.make_namespace()
    c.deploy("chat", replicas=1)
    c.scale_by(scaler, "chat")
    c.reaches("chat", 3, 60, "the namespace made again")
    serving(c, "chat", 3)


@case("rename", seconds=50, needs=["fleet", "kubernetes"])
def rename(c):
    """A tier gets another name in file and ScaledObject: nothing is lowered on the way."""
    chat = watched(c, "chat", least=3)
    scaler = c.scaler([chat], **cluster_access(c))
    c.deploy("chat", replicas=1)
    c.scale_by(scaler, "chat", metadata={"tier": "chat"})
    c.reaches("chat", 3, 40, "under the first name")
    scaler.tiers = [{**chat, "name": "talk"}]
    scaler.reload()
    c.stays("chat", 3, 8, "the file has the new name, the ScaledObject the old: an error, which holds")
    c.scale_by(scaler, "chat", metadata={"tier": "talk"})
    scaler.tiers = [{**chat, "name": "talk", "replicas": {"min": 4, "max": 50}}]
    scaler.reload()
    c.reaches("chat", 4, 40, "under the second name")


@case("shared", seconds=60, ci=True, needs=["fleet", "kubernetes"])
def shared(c):
    """Two ScaledObjects ask for one tier, and one ScaledObject for two: each gets its own, the HPA takes the larger."""
    tiers = [
        tier(c.namespace, name, pods_of("Deployment", target), least=least)
        for name, target, least in [("small", "first", 2), ("large", "both", 5)]
    ]
    scaler = c.scaler(tiers, **cluster_access(c))
    for name in ("first", "second", "both"):
        c.deploy(name, replicas=1)
    serving(c, "first", 1)
    serving(c, "both", 1)
    for name in ("first", "second"):
        c.scale_by(scaler, name, metadata={"tier": "small"})
    another = {"type": "external", "metadata": {"scalerAddress": scaler.grpc, "tier": "large"}}
    c.scale_by(scaler, "both", metadata={"tier": "small"}, triggers=[another])
    for name, expected in [("first", 2), ("second", 2), ("both", 5)]:
        c.reaches(name, expected, 40, f"{name} gets to {expected}")
    scaler.tiers = tiers[:1]
    scaler.reload()
    c.stays("both", 5, 10, "one of two triggers errs: nothing is lowered")


@case("metric-type", seconds=40, needs=["fleet", "kubernetes"])
def metric_type(c):
    """A trigger of metricType Value would multiply the count: it gets an error by name, and the count stays."""
    scaler = c.scaler([watched(c, "chat", least=3)], **cluster_access(c))
    c.deploy("chat", replicas=2)
    serving(c, "chat", 2)
    c.scale_by(scaler, "chat", metric_type="Value")
    c.wait(lambda: (c.asked("chat") or {}).get("status") == "False", 40, "the HPA gets an error")
    c.stays("chat", 2, 8, "the count stays")
    told = lambda: any("metricType" in (event.get("message") or event.get("note") or "") for event in c.api.list("Event", c.namespace))
    c.wait(told, 20, "an Event names metricType")
    c.check("an Event names metricType", True, told())


@case("compensated", seconds=50, ci=True, needs=["fleet", "kubernetes"])
def compensated(c):
    """With the HPA's default tolerance the answer is the smallest number that moves it: 23 where 21 are needed at 20."""
    from rig.objects import TOLERANT

    wanted = [(9, 10, 10), (10, 11, 12), (20, 21, 23), (20, 22, 23), (20, 23, 23), (20, 19, 20), (20, 17, 17)]
    tiers = [watched(c, f"from-{at}-to-{need}", least=need, tolerance=0.1, hold=3) for at, need, _ in wanted]
    scaler = c.scaler(tiers, **cluster_access(c))
    for at, need, _ in wanted:
        c.deploy(f"from-{at}-to-{need}", replicas=at, gpus=0)
    for at, need, _ in wanted:
        serving(c, f"from-{at}-to-{need}", at)
    for at, need, _ in wanted:
        c.scale_by(scaler, f"from-{at}-to-{need}", behavior=TOLERANT)
    for at, need, _ in wanted:
        c.wait(lambda: (c.asked(f"from-{at}-to-{need}") or {}).get("status") == "True", 40, f"the HPA has an answer at {at}")
    time.sleep(15)
    for at, need, expected in wanted:
        c.check(f"{need} needed at {at}, compensated", expected, c.spec_of(f"from-{at}-to-{need}"))
