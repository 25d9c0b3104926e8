//! What of a tier's new status is worth an Event. Pure.

use crate::decision::{Answer, Decision, ReplicaState};
use crate::snapshot::{TierStatus, Unreadable};

/// Something that happened to a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Needs a look.
    pub warning: bool,
    /// What happened: one of a fixed set.
    pub reason: &'static str,
    /// Tells one piece of news of a reason from another: they are not counted together.
    pub detail: String,
    /// For people.
    pub note: String,
}

/// What changed since the status before; nothing for the first, which may be a restart.
#[must_use]
pub fn news(before: &TierStatus, after: &TierStatus) -> Vec<News> {
    let mut all = Vec::new();
    let (old, new) = (&before.decision, &after.decision);
    match (&old.answer, &new.answer) {
        (Answer::Required(from), Answer::Required(to)) if from != to => all.push(News {
            warning: false,
            reason: "RequiredReplicasChanged",
            detail: to.to_string(),
            note: format!("required replicas {from} -> {to}: {}", new.binding().because),
        }),
        (Answer::Required(_), Answer::Unknown { why }) => all.push(News {
            warning: true,
            reason: "RequiredReplicasUnknown",
            detail: String::new(),
            note: format!("the HPA holds what it has: {why}"),
        }),
        (Answer::Unknown { .. }, Answer::Required(to)) => all.push(News {
            warning: false,
            reason: "RequiredReplicasKnown",
            detail: to.to_string(),
            note: format!("required replicas {to}: {}", new.binding().because),
        }),
        _ => {}
    }
    if let Some(held) = &new.held
        && old.held.as_ref().is_none_or(|before| before.kind != held.kind)
        && new.required() == old.required()
    {
        all.push(News {
            warning: false,
            reason: "ScaleDownHeld",
            detail: held.kind.name().to_owned(),
            note: format!("{} needed, {} held: {}", needed(new), shown(new), held.because),
        });
    }
    begins(&mut all, blocked(before), blocked(after), "CapacityBlocked");
    let unreadable = |status: &TierStatus| Unreadable::of(&status.observation).map(|it| it.sentence());
    begins(&mut all, unreadable(before), unreadable(after), "PagesUnreadable");
    begins(&mut all, floor_above_max(before), floor_above_max(after), "FloorAboveMaximum");
    begins(&mut all, max_binds(before), max_binds(after), "MaximumBinds");
    all
}

/// A warning that begins, or whose cause is another.
fn begins(all: &mut Vec<News>, before: Option<String>, after: Option<String>, reason: &'static str) {
    let Some(note) = after else { return };
    // Numbers in it may change each round; a cause is told apart by its words.
    let words = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
    if before.is_none_or(|before| words(&before) != words(&note)) {
        all.push(News { warning: true, reason, detail: String::new(), note });
    }
}

fn blocked(status: &TierStatus) -> Option<String> {
    let observation = &status.observation;
    let refused = observation.scale.as_ref().and_then(|scale| scale.create_refused.as_ref());
    if let Some(refused) = refused {
        return Some(format!("pods can't be created: {refused}"));
    }
    let blocked = |replica: &&crate::decision::ReplicaObservation| replica.state == ReplicaState::Blocked;
    let first = observation.replicas.iter().find(blocked)?;
    let why = first.start.as_ref().and_then(|start| start.blocked.as_deref()).unwrap_or("it can't start");
    Some(format!("{} blocked: {why}", observation.count(ReplicaState::Blocked)))
}

fn floor_above_max(status: &TierStatus) -> Option<String> {
    let cap = status.observation.scale.as_ref()?.max_replicas?.min(status.policy.max);
    let floor =
        status.floors_ahead.iter().filter(|floor| floor.replicas > cap).max_by_key(|floor| floor.replicas)?;
    Some(format!("floor {} promises {} replicas, and the maximum is {cap}", floor.name, floor.replicas))
}

fn max_binds(status: &TierStatus) -> Option<String> {
    let decision = &status.decision;
    (decision.winner.kind == crate::decision::BoundKind::Max).then(|| decision.winner.because.clone())
}

fn needed(decision: &Decision) -> String {
    decision.demand.map_or_else(|| "an unknown number".to_owned(), |demand| format!("{demand:.2}"))
}

fn shown(decision: &Decision) -> String {
    decision.required().map_or_else(|| "what is there".to_owned(), |n| n.to_string())
}
