"""Peers that aren't what they should be: one that hangs with its connections open, one that tells nonsense."""

import datetime
import http.server
import itertools
import signal
import threading
import time

from rig.cases import DOCUMENTED_ADDRESSES, DOCUMENTED_NAME, case
from rig.objects import scaled_object
from rig.tiers import REQUESTS_PER_REPLICA, cluster_access, serving, watched

from .outages import COUNT, loaded

LEASE = "keda-vllm-scaler"
# An address that neither a pod nor a server of the suite gets.
STRANGER = ("10.244.249.1", 8080)


@case("frozen", seconds=110, needs=["fleet", "kubernetes"])
def frozen(c):
    """One of two servers hangs with its connections open: nothing is lowered; let go, both answer alike again."""
    c.take_documented_addresses()
    tier = watched(c, "chat", hold=10)
    servers = [c.scaler([tier], name=f"frozen-{n}", address=address, **cluster_access(c)) for n, address in enumerate(DOCUMENTED_ADDRESSES)]
    c.deploy("chat", replicas=COUNT, drain="20s")
    serving(c, "chat", COUNT)
    c.fleet.load(c.namespace, "chat", 0.7 * COUNT * REQUESTS_PER_REPLICA)
    c.api.apply(scaled_object(c.namespace, "chat", DOCUMENTED_NAME))
    c.wait(lambda: (c.asked("chat") or {}).get("status") == "True", 40, "the HPA has an answer")
    time.sleep(5)
    servers[0].program.signal(signal.SIGSTOP)
    try:
        c.never_below("chat", COUNT, 20, "one of two hangs: nothing is lowered")
        c.check("the other one's answer meanwhile", f"at least {COUNT}", servers[1].answer(c.namespace, "chat"),
                (servers[1].answer(c.namespace, "chat") or 0) >= COUNT)
    finally:
        servers[0].program.signal(signal.SIGCONT)
    c.wait(servers[0].ready, 20, "it goes on")
    c.fleet.load(c.namespace, "chat", 2 * COUNT * REQUESTS_PER_REPLICA)
    c.wait(lambda: c.spec_of("chat") > COUNT, 60, "more load is more replicas")
    time.sleep(15)
    answers = [server.answer(c.namespace, "chat") for server in servers]
    c.check("answers of the two, 15 s later", "at most 1 apart", answers, None not in answers and abs(answers[0] - answers[1]) <= 1)
    c.fleet.load(c.namespace, "chat", 0)


class Nonsense(http.server.BaseHTTPRequestHandler):
    """Answers what no scaler has learned, each time something else."""

    asked = itertools.count()
    said = 0

    def do_GET(self):
        kind = next(self.asked) % 4
        Nonsense.said += 1
        if kind == 3:
            time.sleep(8)
        bodies = [
            b"<html>It works!</html>", b'{"tiers":' + b"[" * 100_000,
            b'{"tiers":[{"tier":{"namespace":"NS","name":"chat"},"learned":{"fit":{"rows":1e300}}}]}',
            b"",
        ]
        body = bodies[kind].replace(b"NS", self.server.namespace.encode())
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass

    def log_message(self, *_):
        pass


@case("stranger", seconds=110, needs=["fleet", "kubernetes"])
def stranger(c):
    """Somebody takes the Lease and tells nonsense as what it has learned: answers stay, and the Lease comes back."""
    scaler = loaded(c, "chat")
    holder = lambda: (c.api.find("Lease", c.namespace, LEASE) or {}).get("spec", {}).get("holderIdentity")
    c.wait(lambda: holder() == scaler.name, 20, "the server holds the Lease")
    nonsense = http.server.ThreadingHTTPServer(STRANGER, Nonsense)
    nonsense.namespace = c.namespace
    threading.Thread(target=nonsense.serve_forever, daemon=True).start()
    answers, begun = set(), time.monotonic()
    try:
        while time.monotonic() - begun < 40:
            now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            c.api.patch("Lease", c.namespace, LEASE, {
                "metadata": {"annotations": {"keda-vllm-scaler/http-address": "%s:%d" % STRANGER}},
                "spec": {"holderIdentity": "somebody-else", "renewTime": now, "leaseDurationSeconds": 15},
            })
            answers.add(scaler.answer(c.namespace, "chat"))
            time.sleep(1)
    finally:
        nonsense.shutdown()
        nonsense.server_close()
    c.check("times that the stranger was asked what it has learned", "some", Nonsense.said, Nonsense.said > 0, since=begun)
    c.check("answers while a stranger holds the Lease", f"at least {COUNT}, never none", answers,
            None not in answers and min(answers) >= COUNT, since=begun)
    failed = scaler.metric("vllm_scaler_peer_readings_total", result="failed") or 0
    c.check("readings that were refused", "some", int(failed), failed > 0)
    c.wait(lambda: holder() == scaler.name, 40, "the Lease is the server's again")
    c.fleet.load(c.namespace, "chat", 2 * COUNT * REQUESTS_PER_REPLICA)
    c.wait(lambda: c.spec_of("chat") > COUNT, 60, "more load is more replicas")
    c.check("twice the load, after all that", f"above {COUNT}", c.spec_of("chat"), c.spec_of("chat") > COUNT)
    c.fleet.load(c.namespace, "chat", 0)
