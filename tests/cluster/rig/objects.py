"""The Kubernetes objects that cases make, as dictionaries."""

import os

# Set where it isn't the KEDA of modules/keda. ScaledObjects of KEDA before 2.18 know no `tolerance`: it is left out, and the
# server's file has Kubernetes' own (see tiers.py), as docs/kubernetes.md says.
OLDER_KEDA = os.environ.get("RIG_KEDA_VERSION", "")
KNOWS_TOLERANCE = not OLDER_KEDA or tuple(map(int, OLDER_KEDA.split(".")[:2])) >= (2, 18)


def pod_template(tier, image="1s", load="2s", drain="1s", gpus=1, pool="shared", idle=False, labels=None, **annotations):
    """A pod of a tier. `idle` pods are for nobody's scheduler: they are counted, and cost nothing."""
    spec = {
        "containers": [{
            "name": "vllm", "image": "vllm/vllm-openai", "ports": [{"containerPort": 8000, "name": "http"}],
            "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {},
        }],
        "terminationGracePeriodSeconds": 30,
        "nodeSelector": {"pool": pool},
    }
    if idle:
        spec["schedulerName"] = "nobody"
        spec["containers"][0]["resources"] = {}
    annotations = {key.replace("_", "/"): value for key, value in annotations.items()}
    return {
        "metadata": {
            "labels": {"tier": tier, "engine": "simulated", **(labels or {})},
            "annotations": {"stage/image": image, "stage/load": load, "stage/drain": drain, **annotations},
        },
        "spec": spec,
    }


def deployment(namespace, name, replicas=1, template=None, **pod):
    """`replicas=None` leaves the count to others, as an applied manifest beside an HPA should."""
    spec = {
        "selector": {"matchLabels": {"tier": name}},
        "template": template or pod_template(name, **pod),
        "progressDeadlineSeconds": 3600,
    }
    if replicas is not None:
        spec["replicas"] = replicas
    return {"kind": "Deployment", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def stateful_set(namespace, name, replicas=1, policy="OrderedReady", **pod):
    return {
        "kind": "StatefulSet", "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas, "serviceName": name, "podManagementPolicy": policy,
            "selector": {"matchLabels": {"tier": name}}, "template": pod_template(name, **pod),
        },
    }


def leader_worker_set(namespace, name, replicas=1, size=2, **pod):
    return {
        "kind": "LeaderWorkerSet", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": pod_template(name, **pod)}},
    }


# Up in one step and down at once, exactly: what the documentation recommends, but for a short window.
EXACT = {
    "scaleUp": {
        "stabilizationWindowSeconds": 0, "tolerance": "0", "policies": [{"type": "Pods", "value": 1000, "periodSeconds": 15}],
    },
    "scaleDown": {
        "stabilizationWindowSeconds": 4, "tolerance": "0", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    },
}
# The same with Kubernetes' own tolerance of 10 %.
TOLERANT = {
    "scaleUp": {"stabilizationWindowSeconds": 0, "policies": [{"type": "Pods", "value": 1000, "periodSeconds": 15}]},
    "scaleDown": {"stabilizationWindowSeconds": 4, "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]},
}


def scaled_object(
    namespace, name, address, target=None, kind="Deployment", minimum=1, maximum=200, behavior=EXACT, metadata=None,
    trigger="external-push", metric_type=None, polling=2, cooldown=10, triggers=(), **spec,
):
    """`target` is a name, or None for the object's own. `behavior=None` leaves the HPA's own defaults."""
    reference = {"name": target or name}
    if kind != "Deployment":
        reference["kind"] = kind
        reference["apiVersion"] = "leaderworkerset.x-k8s.io/v1" if kind == "LeaderWorkerSet" else "apps/v1"
    ours = {"type": trigger, "metadata": {"scalerAddress": address, **(metadata or {})}}
    if metric_type:
        ours["metricType"] = metric_type
    whole = {
        "scaleTargetRef": reference, "minReplicaCount": minimum, "maxReplicaCount": maximum,
        "pollingInterval": polling, "cooldownPeriod": cooldown, "triggers": [ours, *triggers], **spec,
    }
    if behavior is not None and not KNOWS_TOLERANCE:
        behavior = {way: {key: rule for key, rule in rules.items() if key != "tolerance"} for way, rules in behavior.items()}
    if behavior is not None:
        whole["advanced"] = {"horizontalPodAutoscalerConfig": {"behavior": behavior}}
    return {"kind": "ScaledObject", "metadata": {"name": name, "namespace": namespace}, "spec": whole}
