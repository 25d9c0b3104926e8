//! Metric families that are filled in any order and written each in one piece, as OpenMetrics wants it.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::decision::TierId;

type Labels = Vec<(&'static str, String)>;

/// Families in the order of their first sample.
#[derive(Debug, Default)]
pub(super) struct Page {
    families: Vec<Family>,
}

#[derive(Debug)]
struct Family {
    name: &'static str,
    help: &'static str,
    samples: Vec<(Labels, Sample)>,
}

#[derive(Clone, Copy, Debug)]
enum Sample {
    Gauge(f64),
    Counter(u64),
}

impl Page {
    fn add(&mut self, name: &'static str, help: &'static str, labels: Labels, sample: Sample) {
        match self.families.iter_mut().find(|family| family.name == name) {
            Some(family) => family.samples.push((labels, sample)),
            None => self.families.push(Family { name, help, samples: vec![(labels, sample)] }),
        }
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str, labels: Labels, value: f64) {
        // Not a number and infinite are ways of not knowing.
        if value.is_finite() {
            self.add(name, help, labels, Sample::Gauge(value));
        }
    }

    pub(super) fn plain(&mut self, name: &'static str, help: &'static str, value: f64) {
        self.gauge(name, help, Vec::new(), value);
    }

    pub(super) fn maybe(
        &mut self,
        name: &'static str,
        help: &'static str,
        labels: Labels,
        value: Option<f64>,
    ) {
        if let Some(value) = value {
            self.gauge(name, help, labels, value);
        }
    }

    pub(super) fn counter(&mut self, name: &'static str, help: &'static str, labels: Labels, count: u64) {
        self.add(name, help, labels, Sample::Counter(count));
    }
}

impl Collector for Page {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for family in &self.families {
            let Some((_, first)) = family.samples.first() else { continue };
            let kind = match first {
                Sample::Gauge(_) => MetricType::Gauge,
                Sample::Counter(_) => MetricType::Counter,
            };
            let mut metric = encoder.encode_descriptor(family.name, family.help, None, kind)?;
            for (labels, sample) in &family.samples {
                let one = metric.encode_family(labels)?;
                match sample {
                    Sample::Gauge(value) => ConstGauge::new(*value).encode(one)?,
                    Sample::Counter(count) => ConstCounter::new(*count).encode(one)?,
                }
            }
        }
        Ok(())
    }
}

/// The page, seen from one tier.
pub(super) struct TierSeries<'a> {
    pub(super) page: &'a mut Page,
    pub(super) tier: &'a TierId,
}

impl TierSeries<'_> {
    fn labels(&self) -> Labels {
        vec![("namespace", self.tier.namespace.clone()), ("tier", self.tier.name.clone())]
    }

    pub(super) fn gauge(&mut self, name: &'static str, help: &'static str, value: Option<f64>) {
        let labels = self.labels();
        self.page.maybe(name, help, labels, value);
    }

    pub(super) fn labelled(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: &'static str,
        is: &'static str,
        value: Option<f64>,
    ) {
        self.with_labels(name, help, &[(label, is)], value);
    }

    pub(super) fn with_labels(
        &mut self,
        name: &'static str,
        help: &'static str,
        more: &[(&'static str, &'static str)],
        value: Option<f64>,
    ) {
        let mut labels = self.labels();
        labels.extend(more.iter().map(|(label, is)| (*label, (*is).to_owned())));
        self.page.maybe(name, help, labels, value);
    }

    pub(super) fn counter(
        &mut self,
        name: &'static str,
        help: &'static str,
        label: Option<(&'static str, &'static str)>,
        count: u64,
    ) {
        let mut labels = self.labels();
        labels.extend(label.map(|(label, is)| (label, is.to_owned())));
        self.page.counter(name, help, labels, count);
    }
}
