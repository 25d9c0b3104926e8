"""The cluster: control plane, KWOK, KEDA and the LeaderWorkerSet controller, each with the flags that make it work as a
plain process, and the traps that were met."""

import base64
import contextlib
import os
import time

from . import certificates
from .kubernetes import Api, ApiError

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Short, so that a case takes seconds. The HPA's own is 15 s; what it computes in a sync is the same.
HPA_SYNC = "2s"
# How long the API server may take from its start.
API_SECONDS = 60
CONTROLLERS = [
    "horizontal-pod-autoscaler-controller", "deployment-controller", "replicaset-controller", "statefulset-controller",
    "endpointslice-controller", "garbage-collector-controller", "namespace-controller", "disruption-controller",
    # Without it KWOK's nodes keep the not-ready taint and nothing is scheduled.
    "node-lifecycle-controller",
    "serviceaccount-controller", "serviceaccount-token-controller", "root-ca-certificate-publisher-controller",
    "resourcequota-controller",
]
NODES = 8
GPUS_PER_NODE = 8


class Cluster:
    def __init__(self, programs, state):
        self.programs, self.state = programs, state
        self.pki = certificates.make(os.path.join(state, "pki"))
        self.kube = os.environ["RIG_KUBE"]
        self.api = Api(self.pki, os.path.join(self.kube, "kubectl"))

    def pki_file(self, name):
        return os.path.join(self.pki, name)

    def start(self):
        self.start_etcd()
        self.start_apiserver()
        self.wait_for_api()
        self.start_controllers()
        self.add_nodes()

    def start_etcd(self):
        self.programs.start("etcd", [
            os.path.join(os.environ["RIG_ETCD"], "etcd"), "--data-dir", os.path.join(self.state, "etcd"),
            "--listen-client-urls", "http://127.0.0.1:2379", "--advertise-client-urls", "http://127.0.0.1:2379",
            "--listen-peer-urls", "http://127.0.0.1:2380", "--unsafe-no-fsync", "--log-level", "warn",
        ])

    def start_apiserver(self):
        pki = self.pki_file
        self.programs.start("apiserver", [
            os.path.join(self.kube, "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379", "--secure-port=6443",
            "--bind-address=127.0.0.1",
            # There is no default route to find an address by; it takes one of the pods'.
            "--advertise-address=10.244.255.1", "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/16",
            # No service account is needed to run a pod that KWOK plays.
            "--disable-admission-plugins=ServiceAccount", "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={pki('sa.pub')}",
            f"--service-account-signing-key-file={pki('sa.key')}", f"--client-ca-file={pki('ca.crt')}",
            f"--tls-cert-file={pki('apiserver.crt')}", f"--tls-private-key-file={pki('apiserver.key')}",
            f"--requestheader-client-ca-file={pki('ca.crt')}", "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={pki('frontproxy.crt')}", f"--proxy-client-key-file={pki('frontproxy.key')}",
        ])

    def wait_for_api(self):
        deadline = time.monotonic() + API_SECONDS
        while not self.api.ready():
            if time.monotonic() > deadline or not self.programs["apiserver"].alive():
                raise RuntimeError(f"the API server is not ready:\n{self.programs['apiserver'].tail()}")
            time.sleep(0.1)

    def start_controllers(self):
        self.start_controller_manager(HPA_SYNC)
        pki = self.pki_file
        admin = pki("admin.kubeconfig")
        scheduler = pki("scheduler.kubeconfig")
        self.programs.start("scheduler", [
            os.path.join(self.kube, "kube-scheduler"), f"--kubeconfig={scheduler}",
            f"--authentication-kubeconfig={scheduler}", f"--authorization-kubeconfig={scheduler}",
            "--bind-address=127.0.0.1", "--leader-elect=false",
        ])
        self.programs.start("kwok", [
            os.path.join(os.environ["RIG_KWOK"], "kwok"), "--kubeconfig", admin, "--manage-all-nodes",
            "--cidr", "10.244.0.1/16", "--node-ip", "10.244.255.2", "-c", os.path.join(HERE, "kwok.yaml"),
            "--server-address", "127.0.0.1:10247",
            # As a kubelet does. Without leases all nodes, and so all pods, are not ready for 5 s every minute.
            "--node-lease-duration-seconds=40",
        ])

    def start_controller_manager(self, hpa_sync):
        pki = self.pki_file
        admin = pki("admin.kubeconfig")
        # The administrator's certificate: as system:kube-controller-manager it may not create ReplicaSets.
        self.programs.start("controller-manager", [
            os.path.join(self.kube, "kube-controller-manager"), f"--kubeconfig={admin}",
            f"--authentication-kubeconfig={admin}", f"--authorization-kubeconfig={admin}", "--bind-address=127.0.0.1",
            "--leader-elect=false", "--kube-api-qps=400", "--kube-api-burst=600", f"--controllers={','.join(CONTROLLERS)}",
            f"--horizontal-pod-autoscaler-sync-period={hpa_sync}", "--concurrent-horizontal-pod-autoscaler-syncs=5",
            "--horizontal-pod-autoscaler-downscale-stabilization=5m",
            f"--service-account-private-key-file={pki('sa.key')}", f"--root-ca-file={pki('ca.crt')}",
        ])

    @contextlib.contextmanager
    def syncing_every(self, hpa_sync):
        """Another pace of the HPA, for a case that runs alone."""
        self.programs["controller-manager"].stop()
        self.start_controller_manager(hpa_sync)
        try:
            yield
        finally:
            self.programs["controller-manager"].stop()
            self.start_controller_manager(HPA_SYNC)

    def add_nodes(self):
        for number in range(NODES):
            self.add_node(f"node-{number}", "shared", GPUS_PER_NODE)

    def add_node(self, name, pool, gpus):
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "250", "nvidia.com/gpu": str(gpus)}
        node = {
            "kind": "Node",
            "metadata": {"name": name, "labels": {"pool": pool}, "annotations": {"kwok.x-k8s.io/node": "fake"}},
        }
        self.api.apply(node)
        self.api.patch("Node", None, name, {"status": {"allocatable": amounts, "capacity": amounts}}, "status")

    def start_keda(self):
        pki = self.pki_file
        keda = os.environ["RIG_KEDA"]
        # The operator retries without its custom resources, noisily: they come first.
        self.api.kubectl("apply", "--server-side", "-f", os.path.join(keda, "crd"))
        self.wait_until_known("ScaledObject")
        self.api.apply({"kind": "Namespace", "metadata": {"name": "keda"}})
        environment = {
            "KUBECONFIG": pki("admin.kubeconfig"), "WATCH_NAMESPACE": "", "POD_NAMESPACE": "keda",
            "KEDA_CLUSTER_OBJECT_NAMESPACE": "keda", "POD_NAME": "keda-operator-0",
        }
        self.programs.start("keda-operator", [
            os.path.join(keda, "operator"), "--leader-elect=false", "--metrics-bind-address=127.0.0.1:18080",
            "--health-probe-bind-address=127.0.0.1:18081", "--metrics-service-bind-address=127.0.0.1:9666",
            f"--cert-dir={pki('keda')}", "--enable-cert-rotation=false", "--kube-api-qps=400", "--kube-api-burst=600",
        ], environment)
        admin = pki("admin.kubeconfig")
        self.programs.start("keda-adapter", [
            os.path.join(keda, "adapter"), "--secure-port=6444", "--bind-address=127.0.0.1", f"--cert-dir={pki('keda')}",
            f"--tls-cert-file={pki('keda/tls.crt')}", f"--tls-private-key-file={pki('keda/tls.key')}",
            f"--client-ca-file={pki('ca.crt')}", "--metrics-service-address=127.0.0.1:9666",
            f"--authentication-kubeconfig={admin}", f"--authorization-kubeconfig={admin}",
            f"--lister-kubeconfig={admin}", "--port=18082",
        ], environment)
        self.api.apply(
            {
                "kind": "Service", "metadata": {"name": "keda-metrics-apiserver", "namespace": "keda"},
                "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": 6444, "name": "https"}]},
            },
            {
                "kind": "APIService", "metadata": {"name": "v1beta1.external.metrics.k8s.io"},
                "spec": {
                    "group": "external.metrics.k8s.io", "version": "v1beta1",
                    "service": {"name": "keda-metrics-apiserver", "namespace": "keda", "port": 6444},
                    "insecureSkipTLSVerify": True, "groupPriorityMinimum": 100, "versionPriority": 100,
                },
            },
        )
        deadline = time.monotonic() + 120
        while not self.keda_serves():
            if time.monotonic() > deadline:
                raise RuntimeError(f"KEDA's metrics are not served:\n{self.programs['keda-adapter'].tail()}")
            time.sleep(0.2)

    def wait_until_known(self, kind):
        """A custom resource is served some time after its definition is taken: first its paths are not found, then its
        store is "initializing" (429)."""
        deadline = time.monotonic() + API_SECONDS
        while True:
            try:
                self.api.list(kind)
                return
            except ApiError as error:
                if error.status not in (404, 429) or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def keda_serves(self):
        service = self.api.find("APIService", None, "v1beta1.external.metrics.k8s.io")
        conditions = service.get("status", {}).get("conditions", [])
        return any(c["type"] == "Available" and c["status"] == "True" for c in conditions)

    def start_lws(self):
        pki, lws = self.pki_file, os.environ["RIG_LWS"]
        self.api.kubectl("apply", "--server-side", "-f", os.path.join(lws, "crd"))
        self.wait_until_known("LeaderWorkerSet")
        settings = os.path.join(self.state, "lws.yaml")
        with open(settings, "w") as out:
            out.write(
                "apiVersion: config.lws.x-k8s.io/v1alpha1\nkind: Configuration\nleaderElection: {leaderElect: false}\n"
                'health: {healthProbeBindAddress: "127.0.0.1:18091"}\nmetrics: {bindAddress: "127.0.0.1:18090"}\n'
                f"webhook: {{port: 9443, host: 127.0.0.1, certDir: {pki('keda')}}}\n"
                "internalCertManagement: {enable: false}\n"
            )
        self.programs.start("lws", [os.path.join(lws, "lws"), "--config", settings, "--kubeconfig", pki("admin.kubeconfig")])
        with open(pki("ca.crt"), "rb") as authority:
            bundle = base64.b64encode(authority.read()).decode()
        deadline = time.monotonic() + 60
        while not serves("127.0.0.1", 9443):
            if time.monotonic() > deadline:
                raise RuntimeError(f"the LeaderWorkerSet controller doesn't serve:\n{self.programs['lws'].tail()}")
            time.sleep(0.2)
        group = "leaderworkerset.x-k8s.io"
        for kind, name, path, group, resource, operations in [
            ("Mutating", "default-sets", f"/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset", group, "leaderworkersets", ["CREATE", "UPDATE"]),
            ("Mutating", "default-pods", "/mutate--v1-pod", "", "pods", ["CREATE"]),
            ("Validating", "check-sets", "/validate-leaderworkerset-x-k8s-io-v1-leaderworkerset", group, "leaderworkersets", ["CREATE", "UPDATE"]),
        ]:
            hook = {
                "name": f"{name}.lws.rig", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
                "clientConfig": {"url": f"https://127.0.0.1:9443{path}", "caBundle": bundle},
                "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": operations}],
            }
            if resource == "pods":
                # Only this controller's pods: everybody else's shall not wait for it.
                hook["objectSelector"] = {"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}
            self.api.request(
                "PATCH",
                f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}webhookconfigurations/lws-{name}?fieldManager=rig&force=true",
                {
                    "apiVersion": "admissionregistration.k8s.io/v1", "kind": f"{kind}WebhookConfiguration",
                    "metadata": {"name": f"lws-{name}"}, "webhooks": [hook],
                },
                "application/apply-patch+yaml",
            )


def serves(host, port):
    import socket

    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex((host, port)) == 0
