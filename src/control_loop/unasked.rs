//! Should somebody ask about a tier, and nobody does? A ScaledObject that can't reach the scaler is known by that alone:
//! everything on the scaler's side looks healthy. Pure.
//!
//! A tier that no ScaledObject asks for is a dry run, and as it should be.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::decision::Observation;
use crate::supply::ScaleFacts;
use crate::telemetry::{Asked, AskedBy, Rpc};
use crate::units::{format_span, later, since};

/// Silence of this long is told: twenty syncs of the HPA (15 s, `--horizontal-pod-autoscaler-sync-period` of
/// kube-controller-manager), ten of KEDA's polls (30 s, `pollingInterval`), longer than either takes to be restarted.
const SILENT_FOR: Duration = Duration::from_mins(5);

/// Where the poll is what asks, this many of them may fail to come.
const POLLS: u32 = 3;

/// Where nobody can see ScaledObjects, the end of the asks may be the end of the ScaledObject: it is told for so long.
const TOLD_FOR: Duration = Duration::from_hours(1);

/// Who should ask, and since when.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected {
    asker: Option<(Asker, DateTime<Utc>)>,
}

/// A ScaledObject that should ask.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asker {
    scaled_object: String,
    /// With replicas there is an HPA that asks `GetMetrics`. Without, KEDA's poll or its stream asks, one call or another.
    by_hpa: bool,
    /// Nobody sees the ScaledObject: it has asked before.
    guessed: bool,
    silent_for: Duration,
}

impl Expected {
    /// What an operator should know where a ScaledObject should have asked and hasn't.
    pub(super) fn unasked(
        &mut self,
        asked: &Asked,
        observation: &Observation,
        now: DateTime<Utc>,
    ) -> Option<String> {
        match (&observation.scale, &self.asker) {
            // Nobody sees ScaledObjects for now: who should have asked still should.
            (None, Some((asker, _))) if !asker.guessed => {}
            (None, _) => self.expect(guess(asked, now), now),
            (Some(scale), _) => self.expect(seen(scale, observation.current), now),
        }
        let (asker, expected_since) = self.asker.as_ref()?;
        let of_hpa = asked.last(Rpc::GetMetrics);
        let any = Rpc::ALL.iter().filter_map(|rpc| asked.last(*rpc)).max();
        let last = if asker.by_hpa { of_hpa } else { any };
        let silent = since(now, last.unwrap_or(*expected_since).max(*expected_since));
        if silent < asker.silent_for {
            return None;
        }
        let name = &asker.scaled_object;
        let called = if asker.by_hpa { "GetMetrics" } else { "anything" };
        let silent = format_span(Duration::from_secs(silent.as_secs() / 60 * 60));
        let others = any.is_some_and(|any| since(now, any) < asker.silent_for);
        let why = if asker.by_hpa && others {
            format!(
                "KEDA asks other calls, so it reaches the scaler: is there an HPA? (kubectl describe scaledobject {name})"
            )
        } else {
            format!(
                "KEDA doesn't reach this scaler (scalerAddress, TLS, network policy; kubectl describe scaledobject {name}), or \
                 asks another replica of it"
            )
        };
        Some(format!("ScaledObject {name} has not asked {called} for {silent}: {why}"))
    }

    fn expect(&mut self, asker: Option<Asker>, now: DateTime<Utc>) {
        let known_since = match (&self.asker, &asker) {
            (Some((before, since)), Some(asker)) if before == asker => *since,
            _ => now,
        };
        self.asker = asker.map(|asker| (asker, known_since));
    }
}

/// The ScaledObject that Kubernetes tells of.
fn seen(scale: &ScaleFacts, current: Option<u32>) -> Option<Asker> {
    let scaled_object = scale.scaled_object.clone()?;
    if scale.paused.is_some() {
        return None;
    }
    let none = scale.ordered == Some(0) || current == Some(0);
    let polls = scale.polling_interval.map_or(Duration::ZERO, |interval| interval.saturating_mul(POLLS));
    Some(Asker { scaled_object, by_hpa: !none, guessed: false, silent_for: SILENT_FOR.max(polls) })
}

/// The ScaledObject that asked last, where nobody can see it.
fn guess(asked: &Asked, now: DateTime<Utc>) -> Option<Asker> {
    let last = asked.list().into_iter().max_by_key(AskedBy::newest)?;
    if last.newest().is_none_or(|at| later(at, TOLD_FOR) < now) {
        return None;
    }
    let scaled_object = last.scaled_object;
    Some(Asker { scaled_object, by_hpa: false, guessed: true, silent_for: SILENT_FOR })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::decision::fixtures::at;

    fn observed(scale: Option<ScaleFacts>, current: Option<u32>) -> Observation {
        Observation { scale: scale.map(Arc::new), current, ..Observation::unknown("by hand") }
    }

    fn scaled_object() -> ScaleFacts {
        ScaleFacts { scaled_object: Some("chat".into()), ordered: Some(2), ..ScaleFacts::default() }
    }

    #[test]
    fn a_scaled_object_that_never_asks_is_told_of_after_five_minutes() {
        let (asked, mut expected) = (Asked::default(), Expected::default());
        let sight = observed(Some(scaled_object()), Some(2));
        assert_eq!(expected.unasked(&asked, &sight, at("10:00:00")), None);
        assert_eq!(expected.unasked(&asked, &sight, at("10:04:59")), None, "the scaler has just begun");
        let told = expected.unasked(&asked, &sight, at("10:05:10")).unwrap();
        assert!(
            told.starts_with("ScaledObject chat has not asked GetMetrics for 5m: KEDA doesn't reach"),
            "{told}"
        );
        asked.note(Rpc::GetMetrics, "chat", at("10:05:20"));
        assert_eq!(expected.unasked(&asked, &sight, at("10:05:25")), None);
        assert_eq!(expected.unasked(&asked, &sight, at("10:10:19")), None);
        assert!(expected.unasked(&asked, &sight, at("10:10:20")).is_some(), "it asks no more");
    }

    #[test]
    fn polls_without_an_hpa_are_told_apart_from_no_way_to_the_scaler() {
        let (asked, mut expected) = (Asked::default(), Expected::default());
        let sight = observed(Some(scaled_object()), Some(2));
        expected.unasked(&asked, &sight, at("10:00:00"));
        asked.note(Rpc::IsActive, "chat", at("10:05:00"));
        let told = expected.unasked(&asked, &sight, at("10:05:10")).unwrap();
        assert!(told.contains("so it reaches the scaler: is there an HPA?"), "{told}");
    }

    #[test]
    fn a_dry_run_and_a_paused_scaled_object_are_as_they_should_be() {
        let (asked, mut expected) = (Asked::default(), Expected::default());
        let paused =
            ScaleFacts { paused: Some("autoscaling.keda.sh/paused: \"true\"".into()), ..scaled_object() };
        for scale in [Some(ScaleFacts::default()), Some(paused.clone()), None] {
            for minute in 0..59 {
                let sight = observed(scale.clone(), Some(2));
                let now = at(&format!("10:{minute:02}:00"));
                assert_eq!(expected.unasked(&asked, &sight, now), None, "{scale:?}");
            }
        }
        // Unpaused, it is given its time.
        let sight = observed(Some(scaled_object()), Some(2));
        assert_eq!(expected.unasked(&asked, &sight, at("11:00:00")), None);
        assert_eq!(expected.unasked(&asked, &sight, at("11:04:00")), None);
        assert!(expected.unasked(&asked, &sight, at("11:05:00")).is_some());
    }

    #[test]
    fn at_zero_there_is_no_hpa_and_any_call_will_do() {
        let (asked, mut expected) = (Asked::default(), Expected::default());
        let zero = observed(Some(ScaleFacts { ordered: Some(0), ..scaled_object() }), Some(0));
        expected.unasked(&asked, &zero, at("10:00:00"));
        asked.note(Rpc::StreamIsActive, "chat", at("10:10:00"));
        assert_eq!(expected.unasked(&asked, &zero, at("10:10:10")), None);
        assert!(expected.unasked(&asked, &zero, at("10:15:00")).is_some());
        // A replica has come: the HPA is given its time.
        let one = observed(Some(ScaleFacts { ordered: Some(1), ..scaled_object() }), Some(1));
        assert_eq!(expected.unasked(&asked, &one, at("10:15:05")), None);

        let seldom = ScaleFacts {
            ordered: Some(0),
            polling_interval: Some(Duration::from_mins(10)),
            ..scaled_object()
        };
        let seldom = observed(Some(seldom), Some(0));
        assert_eq!(expected.unasked(&asked, &seldom, at("10:20:00")), None);
        assert_eq!(expected.unasked(&asked, &seldom, at("10:39:00")), None, "a poll each ten minutes");
        assert!(expected.unasked(&asked, &seldom, at("10:50:00")).is_some());
    }

    #[test]
    fn an_api_server_that_is_away_changes_nothing_of_who_should_ask() {
        let (asked, mut expected) = (Asked::default(), Expected::default());
        expected.unasked(&asked, &observed(Some(scaled_object()), Some(2)), at("10:00:00"));
        assert_eq!(expected.unasked(&asked, &observed(None, None), at("10:03:00")), None);
        assert!(expected.unasked(&asked, &observed(None, None), at("10:05:00")).is_some());
    }

    #[test]
    fn where_nobody_sees_scaled_objects_one_that_has_asked_should_go_on_for_an_hour() {
        let (asked, mut expected) = (Asked::default(), Expected::default());
        let sight = observed(None, None);
        asked.note(Rpc::GetMetrics, "chat", at("10:00:00"));
        assert_eq!(expected.unasked(&asked, &sight, at("10:01:00")), None);
        assert!(expected.unasked(&asked, &sight, at("10:06:00")).is_some());
        assert_eq!(expected.unasked(&asked, &sight, at("11:01:00")), None, "it may be gone for good");
    }
}
