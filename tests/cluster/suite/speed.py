"""How fast the HPA goes up, by its behavior."""

import threading
import time

from rig.cases import case
from rig.objects import deployment, scaled_object

UP = 100


def upwards(policy):
    return {"scaleUp": {"stabilizationWindowSeconds": 0, "tolerance": "0", "policies": [policy]}}


# Name, behavior, the counts on the way, and about how long it takes with a sync of 2 s.
SPEEDS = [
    ("none", None, [1, 4, 8, 16, 32, 64, 100], 15),
    ("defaults", {"scaleUp": {"tolerance": "0"}}, [1, 5, 10, 20, 40, 80, 100], 85),
    ("percent-900", upwards({"type": "Percent", "value": 900, "periodSeconds": 15}), [1, 10, 100], 20),
    ("pods-1000", upwards({"type": "Pods", "value": 1000, "periodSeconds": 15}), [1, 100], 5),
]


def watch(c, name, steps, seconds, done):
    """Notes every count that the target's spec takes."""
    begun, previous = time.monotonic(), None
    while time.monotonic() - begun < seconds:
        now = c.spec_of(name)
        if now != previous:
            steps.append((now, time.monotonic()))
            previous = now
        if now == UP:
            break
        time.sleep(0.1)
    done.append(name)


@case("speed", seconds=100, ci=True)
def speed(c):
    """1 to 100 by four behaviors: the counts on the way, and the seconds they take."""
    scaler = c.scaler(allowMetadataTiers=True)
    for name, _, _, _ in SPEEDS:
        c.api.apply(deployment(c.namespace, name, replicas=1, idle=True))
    watches = []
    for name, behavior, expected, about in SPEEDS:
        steps, done = [], []
        thread = threading.Thread(target=watch, args=(c, name, steps, 2 * about + 60, done))
        thread.start()
        watches.append((name, expected, about, steps, thread))
        c.api.apply(scaled_object(
            c.namespace, name, scaler.grpc, behavior=behavior, metadata={"minReplicas": str(UP), "maxReplicas": "200"},
        ))
    for name, expected, about, steps, thread in watches:
        thread.join()
        c.check(f"behavior {name}: counts on the way", expected, [count for count, _ in steps])
        # From the first step on: before it KEDA makes the HPA.
        taken = steps[-1][1] - steps[1][1] if len(steps) > 1 else float("inf")
        c.check(f"behavior {name}: seconds from the first step to the last", f"at most {about}", f"{taken:.0f}", taken <= about)
