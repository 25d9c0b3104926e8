"""What isn't known holds: silent pods, a dead server, a dead API server, a restarted etcd."""

import datetime
import time

from rig.cases import case
from rig.tiers import CALM, REQUESTS_PER_REPLICA, cluster_access, serving, watched

COUNT = 3


def loaded(c, name, load="2s", **more):
    """A tier at COUNT replicas because its load needs them. A start takes `load`."""
    scaler = c.scaler([watched(c, name, scrape=CALM, **more)], **cluster_access(c))
    c.deploy(name, replicas=COUNT, load=load)
    c.fleet.load(c.namespace, name, 0.65 * COUNT * REQUESTS_PER_REPLICA)
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
    c.never_below("chat", COUNT, 20, "all pods silent: nothing is lowered")
    c.check("the HPA says why", "False", (c.asked("chat") or {}).get("status"))
    c.fleet.silence(c.namespace, "chat", False)
    c.fleet.load(c.namespace, "chat", 2 * COUNT * REQUESTS_PER_REPLICA)
    c.wait(lambda: c.spec_of("chat") > COUNT, 60, "heard again: more load is more replicas")
    c.check("heard again, twice the load", f"above {COUNT}", c.spec_of("chat"), c.spec_of("chat") > COUNT)
    c.fleet.load(c.namespace, "chat", 0)


@case("cut-off", seconds=70, needs=["fleet", "kubernetes"])
def cut_off(c):
    """Kubernetes calls all pods not ready, as after an outage of its own: no traffic gets there, and none is given back."""
    scaler = loaded(c, "chat", load="20s")
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    for pod in c.api.list("Pod", c.namespace):
        # One that was made this moment has none yet.
        conditions = pod["status"].get("conditions", [])
        for condition in conditions:
            if condition["type"] in ("Ready", "ContainersReady"):
                condition |= {"status": "False", "reason": "NodeNotReady", "lastTransitionTime": now}
        c.api.patch("Pod", c.namespace, pod["metadata"]["name"], {"status": {"conditions": conditions}}, "status")
    c.wait(lambda: c.fleet.counters(c.namespace, "chat")["ready"] == 0, 10, "the router has nowhere to send to")
    c.never_below("chat", COUNT, 15, "three times the hold without load: nothing is lowered")
    c.wait(lambda: c.fleet.counters(c.namespace, "chat")["ready"] >= COUNT, 40, "they are ready again")
    c.check("an answer meanwhile and now", f"at least {COUNT}", scaler.answer(c.namespace, "chat"),
            (scaler.answer(c.namespace, "chat") or 0) >= COUNT)
    c.fleet.load(c.namespace, "chat", 0)


@case("server-down", seconds=80, ci=True, needs=["fleet", "kubernetes"])
def server_down(c):
    """The server is killed: the HPA keeps what it has; the server comes back and nothing is lowered at once."""
    scaler = loaded(c, "chat", hold=15)
    scaler.program.kill()
    c.never_below("chat", COUNT, 20, "no server: nothing is lowered")
    scaler.program.start()
    c.wait(scaler.ready, 20, "the server is back")
    c.never_below("chat", COUNT, 12, "the server is back: nothing is lowered before one hold was watched")
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
    c.check("answers while the API server is away", f"at least {COUNT}, never none", answers,
            None not in answers and min(answers) >= COUNT, since=away)
    c.programs["apiserver"].start()
    c.cluster.wait_for_api()
    c.never_below("chat", COUNT, 10, "the API server is back: nothing is lowered")
    c.programs["etcd"].stop()
    time.sleep(3)
    c.programs["etcd"].start()
    c.cluster.wait_for_api()
    c.never_below("chat", COUNT, 10, "etcd restarted: nothing is lowered")
    c.fleet.load(c.namespace, "chat", 2 * COUNT * REQUESTS_PER_REPLICA)
    c.wait(lambda: c.spec_of("chat") > COUNT, 90, "more load is more replicas")
    c.check("after both", f"above {COUNT}", c.spec_of("chat"), c.spec_of("chat") > COUNT)
    c.fleet.load(c.namespace, "chat", 0)
