"""What isn't known holds: silent pods, a dead server, a dead API server, a restarted etcd."""

import time

from rig.cases import case
from rig.tiers import REQUESTS_PER_REPLICA, cluster_access, serving, watched

COUNT = 3


def loaded(c, name, **more):
    """A tier at COUNT replicas because its load needs them."""
    scaler = c.scaler([watched(c, name, **more)], **cluster_access(c))
    c.deploy(name, replicas=COUNT)
    c.fleet.load(c.namespace, name, 0.7 * COUNT * REQUESTS_PER_REPLICA)
    serving(c, name, COUNT)
    c.scale_by(scaler, name)
    c.wait(lambda: scaler.answer(c.namespace, name) == COUNT, 40, f"{name} needs {COUNT}")
    c.wait(lambda: (c.asked(name) or {}).get("status") == "True", 40, "the HPA has the answer")
    return scaler


@case("silent", seconds=90, ci=True, needs=["fleet", "kubernetes"])
def silent(c):
    """All pods silent: the answer holds, then it is an error; the HPA keeps what it has; then life goes on."""
    scaler = loaded(c, "chat")
    c.fleet.silence(c.namespace, "chat", True)
    silenced = time.monotonic()
    c.wait(lambda: scaler.metric("vllm_scaler_answer_unknown", tier="chat") == 1, 40, "KEDA is answered an error")
    c.check("seconds until the answer is an error (5 stale, 10 hold)", "13 to 20", f"{time.monotonic() - silenced:.0f}",
            13 <= time.monotonic() - silenced <= 20, since=silenced)
    c.stays("chat", COUNT, 20, "all pods silent: the count stays")
    c.check("the HPA says why", "False", (c.asked("chat") or {}).get("status"))
    c.fleet.silence(c.namespace, "chat", False)
    c.fleet.load(c.namespace, "chat", 2 * COUNT * REQUESTS_PER_REPLICA)
    c.wait(lambda: c.spec_of("chat") > COUNT, 60, "heard again: more load is more replicas")
    c.check("heard again, twice the load", f"above {COUNT}", c.spec_of("chat"), c.spec_of("chat") > COUNT)
    c.fleet.load(c.namespace, "chat", 0)


@case("server-down", seconds=80, ci=True, needs=["fleet", "kubernetes"])
def server_down(c):
    """The server is killed: the HPA keeps what it has; the server comes back and nothing is lowered at once."""
    scaler = loaded(c, "chat", hold=15)
    scaler.program.kill()
    c.stays("chat", COUNT, 20, "no server: the count stays")
    scaler.program.start()
    c.wait(scaler.ready, 20, "the server is back")
    c.stays("chat", COUNT, 12, "the server is back: nothing is lowered before one hold was watched")
    c.fleet.load(c.namespace, "chat", 2 * COUNT * REQUESTS_PER_REPLICA)
    c.wait(lambda: c.spec_of("chat") > COUNT, 60, "more load is more replicas")
    c.fleet.load(c.namespace, "chat", 0)


@case("api-down", seconds=150, alone=True, needs=["fleet", "kubernetes"])
def api_down(c):
    """The API server is away for a minute, then etcd restarts: no pod is forgotten, nothing is lowered, life goes on."""
    scaler = loaded(c, "chat")
    c.programs["apiserver"].kill()
    away = time.monotonic()
    answers = set()
    while time.monotonic() - away < 60:
        answers.add(scaler.answer(c.namespace, "chat"))
        time.sleep(0.5)
    c.check("answers while the API server is away", {COUNT}, answers, since=away)
    c.programs["apiserver"].start()
    c.cluster.wait_for_api()
    c.stays("chat", COUNT, 10, "the API server is back: the count stays")
    c.programs["etcd"].stop()
    time.sleep(3)
    c.programs["etcd"].start()
    c.cluster.wait_for_api()
    c.stays("chat", COUNT, 10, "etcd restarted: the count stays")
    c.fleet.load(c.namespace, "chat", 2 * COUNT * REQUESTS_PER_REPLICA)
    c.wait(lambda: c.spec_of("chat") > COUNT, 90, "more load is more replicas")
    c.check("after both", f"above {COUNT}", c.spec_of("chat"), c.spec_of("chat") > COUNT)
    c.fleet.load(c.namespace, "chat", 0)
