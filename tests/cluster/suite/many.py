"""Two hundred ScaledObjects at once; a tier of four hundred replicas."""

import time

from rig.cases import case
from rig.objects import EXACT, deployment, scaled_object
from rig.tiers import cluster_access, serving, watched

COUNT = 200
REPLICAS = 400


def at(c, number):
    """How many targets have this count."""
    return sum(1 for target in c.api.list("Deployment", c.namespace) if target["spec"]["replicas"] == number)


@case("many", seconds=170, alone=True, needs=["kubernetes"])
def many(c):
    """200 ScaledObjects at Kubernetes' and KEDA's own pace: all made at once, then all asked for one more; no call fails."""
    with c.cluster.syncing_every("15s"):
        up_twice(c)


def up_twice(c):
    tier = lambda n, least: watched(c, f"t{n:03}", least=least, scrape={"interval": "5s"})
    scaler = c.scaler([tier(n, 2) for n in range(COUNT)], **cluster_access(c))
    for n in range(COUNT):
        c.api.apply(deployment(c.namespace, f"t{n:03}", replicas=1, idle=True))
    # A target that isn't there yet is looked for every ten seconds, and is an error until then.
    c.wait(lambda: sum(1 for _ in scaler.samples("vllm_scaler_required_replicas")) == COUNT, 30, "all 200 are known")
    begun = time.monotonic()
    for n in range(COUNT):
        c.api.apply(scaled_object(c.namespace, f"t{n:03}", scaler.grpc, behavior=EXACT, polling=30))
    made = time.monotonic()
    c.wait(lambda: at(c, 2) == COUNT, 180, "all 200 have 2", every=1)
    c.check("all 200 get from 1 to 2, seconds from the last one made", "at most 120", f"{time.monotonic() - made:.0f}",
            time.monotonic() - made <= 120, since=begun)

    scaler.tiers = [tier(n, 3) for n in range(COUNT)]
    changed = time.monotonic()
    scaler.reload()
    c.wait(lambda: at(c, 3) == COUNT, 150, "all 200 have 3", every=0.5)
    taken = time.monotonic() - changed
    c.check("all 200 get from 2 to 3, seconds from the reload", "at most 80", f"{taken:.0f}", taken <= 80, since=changed)

    handled = list(scaler.samples("vllm_scaler_grpc_handled_total"))
    calls = sum(value for labels, value in handled)
    bad = {(labels["method"], labels["code"]): value for labels, value in handled if labels["code"] not in ("OK", "Canceled")}
    c.check("calls by KEDA that failed", {}, bad)
    c.check("calls by KEDA that were answered", "at least 1000", int(calls), calls >= 1000)
    below = scaler.metric("vllm_scaler_grpc_handling_seconds_bucket", method="GetMetrics", le="0.025")
    asked = scaler.metric("vllm_scaler_grpc_handling_seconds_count", method="GetMetrics")
    share = (below or 0) / asked if asked else 0
    c.check("GetMetrics answered within 25 ms, beside a busy cluster", "at least 99 %", f"{share:.2%}", share >= 0.99)


@case("large", seconds=150, alone=True, needs=["fleet", "kubernetes"])
def large(c):
    """A tier of 400 replicas: every page is read, the HPA gets the number, and the server stays small."""
    # The rig's own nodes have 64 GPUs in all.
    for n in range(REPLICAS // 64 + 1):
        c.cluster.add_node(f"large-{n}", "shared", 64)
    scrape = {"interval": "5s", "timeout": "2s", "staleAfter": "20s", "rateWindow": "20s"}
    scaler = c.scaler([watched(c, "chat", least=REPLICAS, most=1000, scrape=scrape)], **cluster_access(c))
    c.deploy("chat", replicas=REPLICAS, load="1s")
    serving(c, "chat", REPLICAS, seconds=240)
    c.scale_by(scaler, "chat", maximum=1000)
    c.wait(lambda: (c.asked("chat") or {}).get("status") == "True", 60, "the HPA has the answer")
    known = lambda: int(scaler.metric("vllm_scaler_known_replicas", tier="chat") or 0)
    begun = time.monotonic()
    while known() < REPLICAS and time.monotonic() - begun < 60:
        time.sleep(1)
    c.check("replicas whose load is known", REPLICAS, known(), since=begun)
    c.check("the count", REPLICAS, c.spec_of("chat"))
    with open(f"/proc/{scaler.program.process.pid}/status") as status:
        resident = next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))
    c.check("resident memory, MiB", "at most 200", resident, resident <= 200)
