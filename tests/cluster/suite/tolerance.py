"""What the HPA makes of a number beside the count it has: its tolerance of 10 %, and what becomes of it with "0".

Driven by tiers that ScaledObjects declare in metadata: their minimum is the answer, exactly. Their pods are counted and
never run."""

import time

from rig.cases import case
from rig.objects import EXACT, TOLERANT, deployment, scaled_object

# Current count, answer, where the HPA goes from Kubernetes 1.33 on (its check includes both ends of the band).
ROWS = [
    (9, 10, 10), (10, 11, 10), (10, 9, 10), (11, 12, 11), (20, 21, 20), (20, 22, 20), (20, 23, 23),
    (20, 19, 20), (20, 18, 20), (20, 17, 17), (100, 110, 100), (100, 111, 111), (100, 90, 100), (100, 89, 89),
]
# Syncs of the HPA (2 s each) and the downward window of 4 s, over which a swallowed change must stay swallowed.
WATCHED_SECONDS = 10


def drive(c, rows, behavior, label):
    """Targets at their counts, then the ScaledObjects that ask for the answers; one row of the table each."""
    scaler = c.scaler(allowMetadataTiers=True)
    for current, answer, _ in rows:
        c.api.apply(deployment(c.namespace, f"from-{current}-to-{answer}", replicas=current, idle=True))
    for current, answer, _ in rows:
        name = f"from-{current}-to-{answer}"
        c.wait(lambda: c.status_of(name) == current, 60, f"{name} has its {current} pods")
    for current, answer, _ in rows:
        c.api.apply(scaled_object(
            c.namespace, f"from-{current}-to-{answer}", scaler.grpc, behavior=behavior,
            metadata={"minReplicas": str(answer), "maxReplicas": "200"},
        ))
    begun = time.monotonic()
    for current, answer, _ in rows:
        name = f"from-{current}-to-{answer}"
        c.wait(lambda: (c.asked(name) or {}).get("status") == "True", 60, f"the HPA has an answer for {name}")
    time.sleep(WATCHED_SECONDS)
    for current, answer, expected in rows:
        name = f"from-{current}-to-{answer}"
        c.check(f"{label}: {answer} at {current}", expected, c.spec_of(name), since=begun)


@case("tolerance", seconds=30, ci=True)
def default_tolerance(c):
    """Kubernetes' default tolerance swallows a tenth."""
    drive(c, ROWS, TOLERANT, "default tolerance")


@case("tolerance-zero", seconds=25, ci=True, needs=["tolerance"])
def no_tolerance(c):
    """With tolerance "0" both ways the HPA goes where the answer says."""
    drive(c, [(current, answer, answer) for current, answer, _ in ROWS], EXACT, 'tolerance "0"')


def highest_spec(c, name, seconds):
    """The highest spec in that time. A drift may run against the edge of the band and fall back to the answer."""
    begun, highest = time.monotonic(), 0
    while time.monotonic() - begun <= seconds:
        highest = max(highest, c.spec_of(name))
        time.sleep(0.2)
    return highest


@case("surge", seconds=60, ci=True, needs=["tolerance"])
def surge(c):
    """Inside its tolerance the HPA proposes the created pods: a surge drifts the count, unless the tolerance is 0."""
    scaler = c.scaler(allowMetadataTiers=True)
    # A surge of 2 that lasts: the new pods never get ready, nothing else may go.
    # A number below the spec, within the band around the status: 22 created, 21 wanted.
    for name, behavior in [("tolerant", TOLERANT), ("exact", EXACT)]:
        target = deployment(c.namespace, name, replicas=20, idle=True)
        target["spec"]["strategy"] = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}
        c.api.apply(target)
    for name in ("tolerant", "exact"):
        c.wait(lambda: c.status_of(name) == 20, 60, f"{name} has its 20 pods")
        c.api.patch("Deployment", c.namespace, name, {"spec": {"template": {"metadata": {"annotations": {"turn": "2"}}}}})
    for name in ("tolerant", "exact"):
        c.wait(lambda: c.status_of(name) == 22, 30, f"{name} has 22 pods created")
    for name, behavior in [("tolerant", TOLERANT), ("exact", EXACT)]:
        c.api.apply(scaled_object(
            c.namespace, name, scaler.grpc, behavior=behavior, metadata={"minReplicas": "21", "maxReplicas": "200"},
        ))
    for name in ("tolerant", "exact"):
        c.wait(lambda: (c.asked(name) or {}).get("status") == "True", 60, f"the HPA has an answer for {name}")
    drifted = highest_spec(c, "tolerant", 2 * WATCHED_SECONDS)
    c.check("default tolerance: spec 20, surge to 22, answer 21: the spec drifts up", "above 21", drifted, drifted > 21)
    c.check('tolerance "0": spec 20, surge to 22, answer 21', 21, c.spec_of("exact"))
