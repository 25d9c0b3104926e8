"""What the documentation tells a newcomer to do, as it is printed, under the rights that its manifests give."""

import os
import time

from rig import certificates
from rig.cases import DOCUMENTED_ADDRESSES, case
from rig.objects import KNOWS_TOLERANCE, deployment
from rig.tiers import serving, watched

MANIFESTS = os.path.join(os.environ.get("RIG_ROOT", "."), "deploy", "kubernetes")
OURS, SERVING = "keda-vllm-scaler", "serving"


def with_token(c, account, namespace, name):
    """A kubeconfig of a service account."""
    token = c.api.kubectl("create", "token", account, "-n", namespace).strip()
    file = os.path.join(c.cluster.state, f"{name}.kubeconfig")
    certificates.kubeconfig(file, c.cluster.pki_file("ca.crt"), f"token: {token}")
    return file


def printed_scaled_object(c):
    """As printed; for a KEDA before 2.18 without the lines of the tolerance, as the page says."""
    printed = os.path.join(MANIFESTS, "scaledobject.yaml")
    if KNOWS_TOLERANCE:
        return printed
    shortened = os.path.join(c.cluster.state, "scaledobject.yaml")
    with open(printed) as whole, open(shortened, "w") as file:
        file.writelines(line for line in whole if "tolerance:" not in line)
    return shortened


@case("quick-start", seconds=90, ci=True, needs=["fleet", "kubernetes"])
def quick_start(c):
    """The quick start's manifests as printed, two servers under their own ServiceAccount: the count follows the load."""
    c.take_documented_addresses()
    c.make_namespace(SERVING)
    c.namespaces.append(OURS)
    c.deploy("chat", namespace=SERVING, replicas=1, fleet_engine="h100-8b")
    c.api.kubectl("apply", "--server-side", "-k", MANIFESTS)
    kubeconfig = with_token(c, OURS, OURS, "quick-start")
    tiers = c.api.request("GET", f"/api/v1/namespaces/{OURS}/configmaps/keda-vllm-scaler")["data"]["tiers.yaml"]
    servers = []
    for number, address in enumerate(DOCUMENTED_ADDRESSES):
        # What a pod gives a container, given to a process: its address, its token, its volume.
        listen = ", ".join(f"{kind}: {address}:{port}" for kind, port in [("grpc", 6000), ("http", 8080), ("health", 8081)])
        store = os.path.join(c.cluster.state, f"store-{number}")
        text = f"listen: {{{listen}}}\nkubernetes: {{kubeconfig: {kubeconfig}}}\n" + tiers.replace("/var/lib/keda-vllm-scaler", store)
        servers.append(c.scaler(name=f"quick-start-{number}", namespace=OURS, address=address, text=text))
    # `kubectl rollout status` on the page: the servers are ready before anybody asks.
    c.api.kubectl("apply", "--server-side", "-f", printed_scaled_object(c))
    serving(c, "chat", 1, namespace=SERVING)
    c.wait(lambda: servers[0].answer(SERVING, "chat"), 40, "there is an answer")
    # An older KEDA that failed to reach the documented name in an earlier case waits for up to two minutes (gRPC's own
    # wait) before it dials again.
    askers = lambda: [asker for server in servers for asker in (server.tier(SERVING, "chat") or {}).get("asked", [])]
    c.wait(lambda: any(asker["getMetrics"] for asker in askers()), 130, "the HPA asks")
    answer = servers[0].answer(SERVING, "chat")
    c.reaches("chat", answer, 40, "the count is the answer", namespace=SERVING)
    try:
        c.fleet.load(SERVING, "chat", 4 * 28)
        c.wait(lambda: c.spec_of("chat", namespace=SERVING) > answer, 60, "more load is more replicas")
        c.check("under load", f"above {answer}", c.spec_of("chat", namespace=SERVING), True)
    finally:
        c.fleet.load(SERVING, "chat", 0)

    holder = lambda: ((c.api.find("Lease", OURS, OURS) or {}).get("spec") or {}).get("holderIdentity")
    c.wait(holder, 20, "one of the two holds the Lease")
    c.check("the Lease is held by", "one of the two", holder(), any(server.name in holder() for server in servers))
    ours = lambda: [e for e in c.api.list("Event", SERVING) if OURS in str(e.get("reportingComponent") or e.get("source"))]
    c.wait(ours, 20, "an Event on the ScaledObject")
    c.check("an Event tells what was decided", "an Event", ours()[-1]["message"], True)
    c.check("who asks", {"chat"}, {asker["scaledObject"] for asker in askers()})
    healthy = [line.strip() for server in servers for line in open(server.program.log) if " WARN " in line or '"WARN"' in line]
    c.check("warnings of a healthy install", [], [line for line in healthy if "listed yet" in line or "409" in line][:2])
    refused = [line for server in servers for line in open(server.program.log) if "needs " in line or "forbidden" in line.lower()]
    c.check("rights that were missing", [], refused[:2])


@case("rights", seconds=40, ci=True, needs=["fleet", "kubernetes"])
def rights(c):
    """A server without rights names the one that it needs; its tier errs and the count stays."""
    c.api.apply({"kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": c.namespace}})
    kubeconfig = with_token(c, "nobody", c.namespace, "rights")
    scaler = c.scaler([watched(c, "chat", least=1)], kubernetes={"kubeconfig": kubeconfig})
    c.deploy("chat", replicas=2)
    serving(c, "chat", 2)
    c.scale_by(scaler, "chat")
    needs = f"needs list,watch on pods in namespace {c.namespace}"
    c.wait(lambda: needs in open(scaler.program.log).read(), 30, needs)
    c.check("the log names the right", needs, needs, True)
    why = lambda: str(((scaler.tier(c.namespace, "chat") or {}).get("decision") or {}).get("answer"))
    c.wait(lambda: "scale" in why() and "pods" in why(), 30, "the reason names the other rights too")
    c.check("each right is named once", 1, why().count("list,watch on pods"))
    c.wait(lambda: (c.asked("chat") or {}).get("status") == "False", 40, "the HPA gets an error")
    c.stays("chat", 2, 8, "the count stays")
