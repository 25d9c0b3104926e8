"""The whole loop with real vLLM on the CPU: one process, load, a second one that starts because the HPA made its pod."""

import os
import time

from rig import timeline
from rig.cases import case
from rig.tiers import cluster_access, watched
from rig.vllm import Clients, Engines, SLOTS

# A real start on two cores, under load.
START_SECONDS = 400
HOLD = 20


def look(c, scaler, clients):
    tier = scaler.tier(c.namespace, "tiny") or {}
    loads = [r["load"] for r in tier.get("observation", {}).get("replicas", []) if r.get("load")]
    return {
        "kv": max([load.get("kvUsage") or 0 for load in loads], default=None),
        "waiting": sum(load.get("waiting") or 0 for load in loads) if loads else None,
        "running": sum(load.get("running") or 0 for load in loads) if loads else None,
        "required": tier.get("decision", {}).get("answer", {}).get("required"),
        "spec": c.spec_of("tiny"), "ready": len(clients.look()), "clients": clients.wanted,
    }


@case("real-vllm", seconds=900, needs=["kubernetes", "vllm"])
def real_vllm(c):
    """Load, KV and queue rise, 2 required, the HPA, a pod, a real start, load spreads; quiet, a hold, one leaves."""
    engines = Engines(c.programs, c.api, c.namespace, c.cluster.state)
    clients = Clients(c.api, c.namespace)
    tier = watched(
        c, "tiny", most=2, cold_start=60, hold=HOLD,
        capacity={"inputTokensPerSecond": 20000, "outputTokensPerSecond": 1000, "learn": False},
        scrape={"interval": "2s", "timeout": "1900ms", "staleAfter": "12s", "rateWindow": "10s"},
    )
    tier["holdUnknown"] = "60s"
    scaler = c.scaler([tier], **cluster_access(c))
    c.deploy("tiny", replicas=1, labels={"engine": "real", "stage/probe": "real"}, drain="5s", gpus=0)
    c.scale_by(scaler, "tiny", maximum=2)
    line = timeline.Timeline(lambda: look(c, scaler, clients))
    try:
        c.wait(lambda: len(engines.ready_after) == 1, START_SECONDS, "the first vLLM is ready", every=1)
        first = next(iter(engines.ready_after.values()))
        c.check("the first real start, seconds", "a start", f"{first:.0f}", first > 1)
        line.mark("first engine ready")
        c.wait(lambda: scaler.answer(c.namespace, "tiny") == 1, 60, "one is enough while nobody asks")
        line.mark("load")
        clients.set(4 * SLOTS)
        loaded = time.monotonic()
        c.wait(lambda: scaler.answer(c.namespace, "tiny") == 2, 120, "2 are required")
        c.reaches("tiny", 2, 30, "the HPA makes it 2")
        line.mark("second pod")
        c.wait(lambda: len(engines.ready_after) == 2, START_SECONDS, "the second vLLM is ready", every=1)
        line.mark("second engine ready")
        peak = lambda what: max(row[what] or 0 for row in line.rows)
        c.check("peak of the KV cache in use, of the queue, while one served", "above 0, above 0", (peak("kv"), peak("waiting")),
                peak("kv") > 0 and peak("waiting") > 0)
        second = max(engines.ready_after.values())
        c.check("the second real start, seconds, under load", "a start", f"{second:.0f}", second > 1)
        c.wait(lambda: len(clients.look()) == 2 and all(clients.busy.get(a, 0) >= SLOTS for a in clients.addresses), 60, "the load spreads")
        c.check("requests at each", f"at least {SLOTS} each", sorted(clients.busy.get(a, 0) for a in clients.addresses),
                all(clients.busy.get(a, 0) >= SLOTS for a in clients.addresses), since=loaded)
        learned = scaler.metric("vllm_scaler_cold_start_seconds", tier="tiny", quantile="0.5", stage="total")
        c.check("the cold start is learned, seconds", "between the two seen", learned, learned is not None)
        time.sleep(20)
        line.mark("quiet")
        clients.set(0)
        quiet = time.monotonic()
        c.wait(lambda: sum(clients.busy.values()) == 0, 120, "the last answers are out")
        c.wait(lambda: c.spec_of("tiny") == 1, 240, "one leaves")
        taken = time.monotonic() - quiet
        c.check("seconds from the end of the load to the smaller count", f"at least the hold of {HOLD}", f"{taken:.0f}", taken >= HOLD)
        line.mark("one leaves")
        c.check("requests done, lost", "some, 0", (clients.done, clients.lost), clients.done > 0 and clients.lost == 0)
        time.sleep(10)
    finally:
        clients.set(0)
        timeline.keep(c, line, "Real vLLM 0.32 on two CPU cores, real KEDA and HPA", [
            ("requests", {"clients": "#888", "running": "#27a", "waiting": "#c33"}),
            ("KV cache in use, the fullest replica", {"kv": "#a5a"}),
            ("replicas", {"required": "#e80", "spec": "#27a", "ready": "#292"}),
        ])
        engines.stop()
