//! Where what Kubernetes says of the scale target contradicts the policy, or holds the answer back.

use crate::decision::policy::Policy;
use crate::supply::ScaleFacts;

/// KEDA's own `maxReplicaCount` where a ScaledObject gives none (`defaultHPAMaxReplicas` in its scaled object controller).
const KEDA_DEFAULT_MAX: u32 = 100;

/// `--horizontal-pod-autoscaler-tolerance` of kube-controller-manager unless set.
const CLUSTER_TOLERANCE: f64 = 0.1;

/// Notes of one sort: the page is read at night.
const MOST_NOTES: usize = 10;

pub(super) fn of(policy: &Policy, scale: &ScaleFacts) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(paused) = &scale.paused {
        notes.push(format!("the ScaledObject is paused ({paused}): KEDA scales nothing"));
    }
    bounds(&mut notes, policy, scale);
    if scale.hpa_sets_no_tolerance && policy.dead_band.tolerance < CLUSTER_TOLERANCE {
        notes.push(format!(
            "the HPA sets no tolerance, and hpa.tolerance is {}: unless kube-controller-manager's own was set so, changes below \
             {:.0} % are swallowed, floors among them",
            policy.dead_band.tolerance,
            CLUSTER_TOLERANCE * 100.0
        ));
    }
    notes.extend(scale.warnings.iter().take(MOST_NOTES).cloned());
    notes
}

fn bounds(notes: &mut Vec<String>, policy: &Policy, scale: &ScaleFacts) {
    let default = scale.scaled_object.as_ref().map(|_| KEDA_DEFAULT_MAX);
    if let Some(max) = scale.max_replicas.or(default) {
        let by_default = if scale.max_replicas.is_none() { " by default" } else { "" };
        if max < policy.max {
            notes.push(format!(
                "the ScaledObject caps at {max}{by_default} (maxReplicaCount), below max {}",
                policy.max
            ));
        }
        let above = policy.floors.iter().filter(|floor| floor.replicas.min(policy.max) > max);
        for floor in above.take(MOST_NOTES) {
            notes.push(format!(
                "floor {} promises {}, and the ScaledObject caps at {max}{by_default} (maxReplicaCount)",
                floor.name, floor.replicas
            ));
        }
    }
    let Some(min) = scale.min_replicas else { return };
    if min > policy.max {
        notes.push(format!(
            "the ScaledObject keeps at least {min} (minReplicaCount), above max {}",
            policy.max
        ));
    } else if min > policy.min {
        notes.push(format!(
            "the ScaledObject keeps at least {min} (minReplicaCount), above min {}",
            policy.min
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::fixtures::{floor, policy};

    fn told(policy: &Policy, scale: &ScaleFacts) -> String {
        of(policy, scale).join("; ")
    }

    #[test]
    fn a_scaled_object_that_caps_lower_is_named_with_the_floors_that_it_breaks() {
        let policy = Policy {
            floors: vec![floor("0 8 * * *", "0 9 * * *", 4), floor("0 9 * * *", "0 18 * * *", 8)],
            max: 20,
            ..policy()
        };
        let scale = ScaleFacts { max_replicas: Some(5), ..ScaleFacts::default() };
        assert_eq!(
            told(&policy, &scale),
            "the ScaledObject caps at 5 (maxReplicaCount), below max 20; floor 0 9 * * *-0 18 * * * promises 8, and the \
             ScaledObject caps at 5 (maxReplicaCount)"
        );
        let unset = ScaleFacts { scaled_object: Some("chat".into()), ..ScaleFacts::default() };
        assert_eq!(told(&policy, &unset), "");
        let large = Policy { max: 150, ..policy };
        assert_eq!(
            told(&large, &unset),
            "the ScaledObject caps at 100 by default (maxReplicaCount), below max 150"
        );
        assert_eq!(told(&large, &ScaleFacts::default()), "", "nobody knows of a ScaledObject");
    }

    #[test]
    fn a_scaled_object_that_keeps_more_is_named() {
        let keeps = |min| ScaleFacts { min_replicas: Some(min), ..ScaleFacts::default() };
        assert_eq!(told(&policy(), &keeps(1)), "");
        assert_eq!(
            told(&policy(), &keeps(3)),
            "the ScaledObject keeps at least 3 (minReplicaCount), above min 1"
        );
        assert_eq!(
            told(&policy(), &keeps(50)),
            "the ScaledObject keeps at least 50 (minReplicaCount), above max 40"
        );
    }

    #[test]
    fn a_tolerance_that_only_the_file_knows_of_is_told() {
        let mut policy = policy();
        policy.dead_band.tolerance = 0.0;
        let unset = ScaleFacts { hpa_sets_no_tolerance: true, ..ScaleFacts::default() };
        let note = told(&policy, &unset);
        assert!(note.starts_with("the HPA sets no tolerance, and hpa.tolerance is 0:"), "{note}");
        assert_eq!(told(&policy, &ScaleFacts::default()), "", "nobody has read the HPA");
        policy.dead_band.tolerance = 0.1;
        assert_eq!(told(&policy, &unset), "");
    }

    #[test]
    fn a_pause_and_warnings_are_told() {
        let scale = ScaleFacts {
            paused: Some("autoscaling.keda.sh/paused: \"true\"".into()),
            warnings: vec!["no right to read events in serving".into()],
            ..ScaleFacts::default()
        };
        assert_eq!(
            told(&policy(), &scale),
            "the ScaledObject is paused (autoscaling.keda.sh/paused: \"true\"): KEDA scales nothing; no right to read \
             events in serving"
        );
    }
}
