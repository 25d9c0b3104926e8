"""Two servers behind one name, as a headless Service gives it: they agree, and either may die."""

import time

from rig.cases import DOCUMENTED_ADDRESSES, DOCUMENTED_NAME, case
from rig.objects import scaled_object
from rig.tiers import REQUESTS_PER_REPLICA, cluster_access, serving, watched


@case("pair", seconds=110, ci=True, needs=["fleet", "kubernetes"])
def pair(c):
    """Two servers answer alike from the same pods; one dies, then the other: calls go on, the count follows the load."""
    c.take_documented_addresses()
    tier = watched(c, "chat", hold=10)
    servers = [c.scaler([tier], name=f"pair-{n}", address=address, **cluster_access(c)) for n, address in enumerate(DOCUMENTED_ADDRESSES)]
    c.deploy("chat", replicas=3, drain="20s")
    serving(c, "chat", 3)
    # Only now: a backlog of the start would be a spike of a moment, which one of two servers may miss.
    c.fleet.load(c.namespace, "chat", 0.7 * 3 * REQUESTS_PER_REPLICA)
    c.api.apply(scaled_object(c.namespace, "chat", DOCUMENTED_NAME))
    c.wait(lambda: (c.asked("chat") or {}).get("status") == "True", 40, "the HPA has an answer")
    time.sleep(8)
    apart, begun = 0, time.monotonic()
    while time.monotonic() - begun < 15:
        answers = [server.answer(c.namespace, "chat") for server in servers]
        apart = max(apart, abs(answers[0] - answers[1]) if None not in answers else 99)
        time.sleep(0.5)
    c.check("largest difference of the two answers", "at most 1", apart, apart <= 1, since=begun)
    for server in servers:
        # Of a sync's two calls the client sends every other to each: one server may get all GetMetrics.
        asked = server.metric("vllm_scaler_grpc_handled_total", code="OK") or 0
        c.check(f"calls answered by {server.name}", "some", int(asked), asked > 0)
    taken = [server.metric("vllm_scaler_peer_readings_total", result="success") or 0 for server in servers]
    c.check("readings of what the Lease's holder has learned, by the two", "some by one of them", taken, sorted(taken)[0] == 0 < sorted(taken)[1])
    for number, rate in [(0, 2), (1, 3)]:
        servers[number].program.kill()
        c.fleet.load(c.namespace, "chat", rate * 3 * REQUESTS_PER_REPLICA)
        before = c.spec_of("chat")
        c.wait(lambda: c.spec_of("chat") > before, 40, f"{servers[number].name} is dead, more load is more replicas")
        c.check(f"{servers[number].name} is dead: the count follows the load", f"above {before}", c.spec_of("chat"), True)
        servers[number].program.start()
        c.wait(servers[number].ready, 20, f"{servers[number].name} is back")
        time.sleep(5)
    c.check("requests lost", 0, c.fleet.counters(c.namespace, "chat")["lost"])
    c.fleet.load(c.namespace, "chat", 0)
