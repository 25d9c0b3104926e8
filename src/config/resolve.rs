//! From the file as written to a [`Config`]: the second pass, in which keys meet each other.
//!
//! The first pass ([`super::shape_check`]) has reported every key and value that is wrong by itself. Here a value is
//! good, absent, or reported; what is left is whether they fit together.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::time::Duration;

use super::problem::{Place, Problem, Problems, Read, Reported};
use super::quantity::quoted;
use super::section::Section;
use super::settings::{
    Config, FileReference, FloorReference, GrpcSettings, Listen, RecordSettings, SourceSettings, TierSettings,
};
use super::yaml::{Content, Node};
use super::{address, file, lint, shape_check};
use crate::decision::policy::{Hold, Policy};
use crate::units::format_span;

mod policy;
mod source;

pub(super) use policy::{Context, policy};
pub(super) use source::credentials;

/// What a resolver adds to besides its result.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) problems: Problems,
    pub(super) warnings: Problems,
    pub(super) files: Vec<FileReference>,
    pub(super) floors: Vec<FloorReference>,
}

/// Resolves a whole file.
pub(super) fn config(root: &Node, mut found: Findings) -> Result<Config, Problems> {
    let place = Place { path: String::new(), line: 1 };
    if !matches!(root.content, Content::Map(_)) {
        let what = root.content.kind();
        found.problems.push(&place, format!("the file holds {what}: write at least `tiers:`"));
        return Err(found.problems);
    }
    let root = Section::new(Some(root), place, file::ROOT);
    shape_check::check(&root, &mut found.problems);
    let config = resolve(&root, &mut found);
    if !found.problems.is_empty() {
        return Err(found.problems.sorted());
    }
    let Ok(mut config) = config else {
        // Whoever gives up has reported why; should one forget, a reload must not bring the server down.
        found.problems.push(
            root.place(),
            "a value could not be used, and nothing says which: this is a defect of keda-vllm-scaler",
        );
        return Err(found.problems);
    };
    config.files = found.files;
    config.floors = found.floors;
    config.warnings = found.warnings.into_sorted();
    Ok(config)
}

fn resolve(root: &Section<'_>, found: &mut Findings) -> Read<Config> {
    let listen = listen(&root.section("listen"), found);
    let grpc = root.section("grpc");
    let store = root.optional_section("store");
    let allow_metadata_tiers = root.get("allowMetadataTiers");
    let record = root.optional_section("record").map(|section| record(&section)).transpose();
    let kubernetes =
        root.optional_section("kubernetes").map(|section| source::cluster(&section, found)).transpose();
    let tiers = tiers(root, found);
    if allow_metadata_tiers == Ok(false) && root.sections("tiers").is_empty() {
        found.problems.push(
            &root.place_of("tiers"),
            "no tiers: write at least one, or allow ScaledObjects to declare theirs with allowMetadataTiers: true",
        );
    }
    if allow_metadata_tiers == Ok(true) {
        lint::metadata_tiers(&root.place_of("allowMetadataTiers"), &mut found.warnings);
    }
    if store.is_none() {
        lint::no_store(&root.place_of("store"), &mut found.warnings);
    }
    Ok(Config {
        listen: listen?,
        grpc: GrpcSettings {
            reflection: grpc.get("reflection")?,
            drain_deadline: grpc.get("drainDeadline")?,
        },
        store: store.as_ref().map(|store| store.get("path")).transpose()?,
        history_retention: root.section("store").get("retention")?,
        record: record?,
        kubernetes: kubernetes?,
        allow_metadata_tiers: allow_metadata_tiers?,
        tiers: tiers?,
        files: Vec::new(),
        floors: Vec::new(),
        warnings: Vec::new(),
    })
}

fn record(section: &Section<'_>) -> Read<RecordSettings> {
    Ok(RecordSettings { path: section.get("path")?, max_size: section.get::<usize>("maxSize")? as u64 })
}

fn listen(section: &Section<'_>, found: &mut Findings) -> Read<Listen> {
    let names = ["grpc", "http", "health"];
    let mut taken: Vec<(&str, SocketAddr)> = Vec::new();
    for name in names {
        let Ok(address) = section.get::<SocketAddr>(name) else { continue };
        if let Some((other, _)) = taken.iter().find(|(_, other)| collide(*other, address)) {
            found.problems.push(
                &section.place_of(name),
                format!("{address} is taken by `{other}`: give each listener a port of its own"),
            );
        }
        taken.push((name, address));
    }
    Ok(Listen { grpc: section.get("grpc")?, http: section.get("http")?, health: section.get("health")? })
}

/// Two listeners on one port of one address. Port 0 is a port of its own each time.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let overlap = a.ip() == b.ip() || a.ip().is_unspecified() || b.ip().is_unspecified();
    a.port() != 0 && a.port() == b.port() && overlap
}

fn tiers(root: &Section<'_>, found: &mut Findings) -> Read<Vec<TierSettings>> {
    let sections = root.sections("tiers");
    report_duplicates(&sections, found);
    // All are resolved before the first failure counts: every problem is told at once.
    let resolved: Vec<Read<TierSettings>> = sections.iter().map(|section| tier(section, found)).collect();
    resolved.into_iter().collect()
}

fn report_duplicates(sections: &[Section<'_>], found: &mut Findings) {
    let mut first: HashMap<(&str, &str), usize> = HashMap::new();
    for section in sections {
        // As written: two names that are the same and wrong are told together with what is wrong with them.
        let (Some(namespace), Some(name)) = (section.text("namespace"), section.text("name")) else {
            continue;
        };
        let place = section.place_of("name");
        let message = format!("tier {} is declared twice", shown(namespace, name));
        match first.entry((namespace, name)) {
            std::collections::hash_map::Entry::Occupied(other) => found
                .problems
                .push(&place, format!("{message}: rename this one or the one on line {}", other.get())),
            std::collections::hash_map::Entry::Vacant(free) => {
                free.insert(place.line);
            }
        }
    }
}

/// A tier's name as messages show it: one that is good stands for itself, any other is bounded and quoted.
fn shown(namespace: &str, name: &str) -> String {
    match (address::namespace(namespace), address::object_name(name)) {
        (Ok(namespace), Ok(name)) => format!("{namespace}/{name}"),
        _ => format!("{} of {}", quoted(name), quoted(namespace)),
    }
}

pub(super) fn tier(section: &Section<'_>, found: &mut Findings) -> Read<TierSettings> {
    let scrape = source::scrape(&section.section("scrape"), found);
    let activator = section
        .optional_section("activator")
        .map(|activator| source::activator(&activator, found))
        .transpose();
    let source = source::source(&section.section("source"), found);
    let tls_for_nothing = matches!(&source, Ok(source) if !is_https(source));
    if tls_for_nothing {
        lint::tls_without_https(&section.section("scrape"), &mut found.warnings);
    }
    let context = Context {
        tier: section
            .get("namespace")
            .and_then(|namespace: String| Ok(crate::decision::TierId::new(namespace, section.get::<String>("name")?))),
        scrape_interval: scrape.as_ref().map(|scrape| scrape.interval).map_err(|_| Reported),
        zero_needs: (section.optional_section("activator").is_none()
            && !matches!(source, Ok(SourceSettings::Kubernetes(_))))
        .then_some(
            "needs an `activator`: DNS or a fixed list can't tell idle from unreachable; write 1 or more, or add an activator",
        ),
        floors_only: false,
    };
    let policy = policy(section, context, &mut found.problems);
    let (mut policy, scrape) = (policy?, scrape?);
    hold_over_a_rate_window(section, &mut policy, scrape.rate_window, found);
    let tier = TierSettings {
        policy,
        source: source?,
        scrape,
        activator: activator?,
        model: section.optional("model")?,
    };
    lint::tier(section, &tier, &mut found.warnings);
    note_floors(section, &tier, found);
    Ok(tier)
}

/// What a replica served that has left is gone from the tier's rates with it, while the others' rates are still means over a
/// time when it took its share. Only after a whole window is the load seen whole again, and a shorter hold would give back
/// more for it.
fn hold_over_a_rate_window(
    section: &Section<'_>,
    policy: &mut Policy,
    rate_window: Duration,
    found: &mut Findings,
) {
    let Hold::Fixed(hold) = policy.scale_down.hold else { return };
    if hold >= rate_window {
        return;
    }
    policy.scale_down.hold = Hold::Fixed(rate_window);
    found.warnings.push(
        &section.section("scaleDown").place_of("hold"),
        format!(
            "{} is shorter than `scrape.rateWindow`: {} are held, until the load is seen whole after replicas have left",
            format_span(hold),
            format_span(rate_window)
        ),
    );
}

fn note_floors(section: &Section<'_>, tier: &TierSettings, found: &mut Findings) {
    for (written, floor) in section.sections("floors").iter().zip(&tier.policy.floors) {
        let Place { path, line } = written.place().clone();
        if found.floors.iter().all(|noted| noted.path != path) {
            found.floors.push(FloorReference { path, line, window: floor.window.clone() });
        }
    }
}

fn is_https(source: &SourceSettings) -> bool {
    match source {
        SourceSettings::Fixed { urls } => urls.iter().any(|url| url.starts_with("https:")),
        SourceSettings::Dns { scheme, .. } => *scheme == super::settings::Scheme::Https,
        SourceSettings::Kubernetes(pods) => pods.scheme == super::settings::Scheme::Https,
        SourceSettings::Injected => false,
    }
}

/// The files that don't exist, as problems. The only part that looks at the disk; `check` shows them as warnings,
/// because it may run on another machine than the server.
pub(super) fn missing_files(config: &Config) -> Vec<Problem> {
    let mut looked_at = HashSet::new();
    let mut missing = Vec::new();
    for reference in &config.files {
        if looked_at.insert((&reference.path, &reference.file)) && !reference.file.is_file() {
            missing.push(Problem {
                path: reference.path.clone(),
                line: reference.line,
                message: format!("{} is not there", reference.file.display()),
            });
        }
    }
    missing
}
