//! A recording decided again: the same policy, memory, observations and times through the same `learn`, `decide` and
//! `record`, and every decision compared with the recorded one, byte for byte. Pure: it takes bytes.
//!
//! A file replays by itself. What can't be replayed - a line that is broken or missing, a tier without a state - is told
//! and never passed over in silence; it ends what can be said of the tiers until their next state.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, ErrorKind, Read as _};

use chrono::{DateTime, Utc};
use flate2::bufread::MultiGzDecoder;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::decision::{Memory, Policy, TierId, decide};
use crate::record::line::{Begin, Decided, EndReason, FORMAT, Head, Line};

/// A line is one observation: ten thousand replicas take ten megabytes. A longer one is no recording, and is not kept in
/// memory.
const LONGEST_LINE: u64 = 128 << 20;

/// Faults that are listed; the rest is counted.
const MOST_FAULTS: usize = 20;

/// What a replay came to.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    /// Files read.
    pub files: u64,
    /// Tiers in them.
    pub tiers: BTreeSet<String>,
    /// Versions of the scaler that recorded.
    pub versions: BTreeSet<String>,
    /// The version that replays.
    pub replayed_by: String,
    /// The first and the last decision.
    pub from: Option<DateTime<Utc>>,
    /// See `from`.
    pub to: Option<DateTime<Utc>>,
    /// Decisions made again.
    pub decisions: u64,
    /// Of them, those that are not the recorded ones, byte for byte.
    pub differences: u64,
    /// The first of those.
    pub first_difference: Option<Difference>,
    /// Decisions in the files that could not be made again, because the state before them is not known.
    pub skipped: u64,
    /// Decisions that the scaler could not record.
    pub lost: u64,
    /// Files without a last line: their process was killed, or still writes.
    pub unfinished: Vec<String>,
    /// What is wrong with the files: the first of them.
    pub faults: Vec<String>,
    /// All of them.
    pub fault_count: u64,
}

/// A decision that came out otherwise.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Where.
    pub file: String,
    /// Counted from 1.
    pub line: u64,
    /// Whose.
    pub tier: TierId,
    /// Of what time.
    pub at: DateTime<Utc>,
    /// The parts of the decision that differ.
    pub parts: Vec<String>,
    /// As it was recorded.
    pub recorded: Box<RawValue>,
    /// As it is decided now.
    pub replayed: Box<RawValue>,
}

impl Replayed {
    /// Is every recorded decision reproduced, and nothing broken or missing in the files? What the scaler itself could
    /// not record is told, and is no difference; neither is a last line that was cut when its process was killed.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.decisions > 0 && self.differences == 0 && self.fault_count == 0 && self.skipped == 0
    }

    fn fault(&mut self, what: String) {
        self.fault_count += 1;
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(what);
        }
    }
}

/// A replay under way.
#[derive(Debug)]
pub struct Replay {
    done: Replayed,
}

impl Default for Replay {
    fn default() -> Self {
        let replayed_by = env!("CARGO_PKG_VERSION").to_owned();
        Self { done: Replayed { replayed_by, ..Replayed::default() } }
    }
}

impl Replay {
    /// Replays a file, plain or gzip.
    ///
    /// # Errors
    /// When the file can't be read. What is wrong inside it is in the result.
    pub fn file(&mut self, name: &str, mut source: impl BufRead) -> std::io::Result<()> {
        self.done.files += 1;
        let is_gzip = source.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        if is_gzip {
            return self.lines(name, BufReader::new(MultiGzDecoder::new(source)));
        }
        self.lines(name, source)
    }

    /// All that was found.
    #[must_use]
    pub fn finish(self) -> Replayed {
        self.done
    }

    fn lines(&mut self, name: &str, mut source: impl BufRead) -> std::io::Result<()> {
        let mut playing = Playing { done: &mut self.done, file: name, line: 0, tiers: BTreeMap::new() };
        let mut text = Vec::new();
        loop {
            text.clear();
            let ended = match source.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut text) {
                Ok(_) => text.last() != Some(&b'\n'),
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => true,
                Err(error) if is_broken(error.kind()) => {
                    playing.fault(&format!("broken gzip data: {error}"));
                    return Ok(());
                }
                Err(error) => return Err(error),
            };
            if text.len() as u64 >= LONGEST_LINE {
                playing.fault(&format!("longer than {LONGEST_LINE} bytes: no line of a recording"));
                return Ok(());
            }
            if ended {
                // A whole line ends with its break: what is left was cut when the process was killed.
                playing.cut();
                return Ok(());
            }
            playing.line += 1;
            if playing.take(&text) == Next::Stop {
                return Ok(());
            }
        }
    }
}

fn is_broken(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::InvalidData | ErrorKind::InvalidInput)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Line,
    Stop,
}

/// One file on its way.
struct Playing<'a> {
    done: &'a mut Replayed,
    file: &'a str,
    /// Lines taken so far.
    line: u64,
    tiers: BTreeMap<TierId, (Policy, Memory)>,
}

impl Playing<'_> {
    fn take(&mut self, text: &[u8]) -> Next {
        let line = match serde_json::from_slice::<Line<'_>>(text) {
            Ok(line) => line,
            Err(error) => {
                self.fault(&format!("not a line of a recording: {error}"));
                // Whose decision it was is not known, so nobody's state is.
                self.tiers.clear();
                return Next::Line;
            }
        };
        if (self.line == 1) != matches!(line, Line::Record(_)) {
            self.fault("the first line must be `record`, and no other one");
            return Next::Stop;
        }
        match line {
            Line::Record(head) => return self.head(head),
            Line::Begin(begin) => {
                self.number(begin.n);
                self.begin(&begin);
            }
            Line::Decided(decided) => {
                self.number(decided.n);
                self.decided(&decided);
            }
            Line::End(end) => {
                self.number(end.n);
                self.done.lost += end.lost;
                if end.why == EndReason::Lost && end.lost == 0 {
                    self.fault("the file was full before another could begin: decisions are missing");
                }
                return Next::Stop;
            }
        }
        Next::Line
    }

    fn head(&mut self, head: Head) -> Next {
        if head.format != FORMAT {
            self.fault(&format!("format {}: this version replays format {FORMAT}", head.format));
            return Next::Stop;
        }
        self.done.versions.insert(head.version);
        Next::Line
    }

    /// Lines are numbered, so that one that was taken out is missed.
    fn number(&mut self, n: u64) {
        let expected = self.line - 1;
        if n != expected {
            self.fault(&format!(
                "it is number {n} where {expected} was expected: lines are missing or doubled"
            ));
            self.tiers.clear();
            // The rest of the file is in order again.
            self.line = n + 1;
        }
    }

    fn begin(&mut self, begin: &Begin<'_>) {
        self.done.tiers.insert(begin.tier.to_string());
        match (usable(&begin.policy), Memory::from_bytes(begin.memory.get().as_bytes())) {
            (Err(why), _) => {
                self.fault(&format!("a policy that no configuration makes: {why}"));
                self.tiers.remove(&begin.tier);
            }
            (_, None) => {
                self.fault("a memory of another version, or none");
                self.tiers.remove(&begin.tier);
            }
            (Ok(()), Some(memory)) => {
                self.tiers.insert(begin.tier.clone(), ((*begin.policy).clone(), memory));
            }
        }
    }

    fn decided(&mut self, recorded: &Decided<'_>) {
        let Some((policy, memory)) = self.tiers.get_mut(&recorded.tier) else {
            self.done.skipped += 1;
            return;
        };
        memory.learn(policy, &recorded.observation, recorded.at);
        let decision = decide(policy, &recorded.observation, memory, recorded.at);
        memory.record(&decision);
        self.done.decisions += 1;
        self.done.from = Some(self.done.from.map_or(recorded.at, |from| from.min(recorded.at)));
        self.done.to = Some(self.done.to.map_or(recorded.at, |to| to.max(recorded.at)));
        // A decision can always be written: were that ever untrue, it would differ, and be told.
        let replayed = serde_json::to_string(&decision).unwrap_or_default();
        if replayed == recorded.decision.get() {
            return;
        }
        self.done.differences += 1;
        if self.done.first_difference.is_some() {
            return;
        }
        self.done.first_difference = Some(Difference {
            file: self.file.to_owned(),
            line: self.line,
            tier: recorded.tier.clone(),
            at: recorded.at,
            parts: differing(recorded.decision.get(), &replayed),
            recorded: recorded.decision.to_owned(),
            replayed: RawValue::from_string(replayed).unwrap_or_default(),
        });
    }

    fn cut(&mut self) {
        self.done.unfinished.push(self.file.to_owned());
    }

    fn fault(&mut self, what: &str) {
        let told = format!("{} line {}: {what}", self.file, self.line);
        self.done.fault(told);
    }
}

/// The names of the parts in which two decisions differ.
fn differing(recorded: &str, replayed: &str) -> Vec<String> {
    let parts = |text: &str| match serde_json::from_str(text) {
        Ok(serde_json::Value::Object(parts)) => parts,
        _ => serde_json::Map::new(),
    };
    let (recorded, replayed) = (parts(recorded), parts(replayed));
    let names: BTreeSet<&String> = recorded.keys().chain(replayed.keys()).collect();
    names.into_iter().filter(|name| recorded.get(*name) != replayed.get(*name)).cloned().collect()
}

/// Is this a policy as the configuration makes them? A decision rests on that, and a file may say anything.
fn usable(policy: &Policy) -> Result<(), &'static str> {
    let rates = policy.capacity.prior;
    let positive = |value: f64| value.is_finite() && value > 0.0;
    let targets = [policy.signals.kv_cache, policy.signals.tokens];
    if policy.min > policy.max {
        return Err("min is above max");
    }
    if !(positive(rates.input_tokens_per_second) && positive(rates.output_tokens_per_second)) {
        return Err("a rate of its capacity is not above 0");
    }
    if !targets.iter().all(|signal| positive(signal.target) && signal.target <= 1.0) {
        return Err("a target is not above 0 and at most 1");
    }
    if !(policy.dead_band.tolerance.is_finite() && policy.dead_band.tolerance >= 0.0) {
        return Err("the tolerance is negative");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(bytes: &[u8]) -> Replayed {
        let mut replay = Replay::default();
        replay.file("a.jsonl", bytes).unwrap();
        replay.finish()
    }

    #[test]
    fn nothing_is_no_success() {
        assert!(!replayed(b"").is_equal());
        let head =
            "{\"record\":{\"format\":1,\"version\":\"0.1.0\",\"at\":\"2026-03-02T00:00:00Z\",\"lost\":0}}\n";
        let only_head = replayed(head.as_bytes());
        assert!(!only_head.is_equal());
        assert_eq!(only_head.fault_count, 0);
        assert_eq!(only_head.unfinished, ["a.jsonl"]);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_replayed_or_a_fault(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300)) {
            let head = b"{\"record\":{\"format\":1,\"version\":\"\",\"at\":\"2026-03-02T00:00:00Z\",\"lost\":0}}\n";
            proptest::prop_assert!(!replayed(&bytes).is_equal());
            proptest::prop_assert!(!replayed(&[&head[..], &bytes].concat()).is_equal());
        }
    }
}
