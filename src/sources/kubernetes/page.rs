//! Where a pod's metrics page is: from the tier's settings, the pod's annotations, its ports by name. Pure.

use std::net::IpAddr;

use super::pod::{Container, PATH_ANNOTATION, PORT_ANNOTATION, PodRecord};
use crate::config::{PodPort, PodSettings};

/// vLLM's own port, where nothing says another.
const VLLM_PORT: u16 = 8000;

/// Names under which a pod's port of the page goes, best first.
const PORT_NAMES: [&str; 2] = ["metrics", "http"];

/// A pod's page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageAddress {
    port: Option<u16>,
    path: String,
    scheme: &'static str,
    /// Why there is no port.
    pub(super) problem: Option<String>,
}

impl PageAddress {
    pub(super) fn of(pod: &PodRecord, settings: &PodSettings) -> Self {
        let (port, problem) = match &settings.port {
            PodPort::Number(port) => (Some(*port), None),
            PodPort::Name(name) => match named(pod, name) {
                Some(port) => (Some(port), None),
                None => (None, Some(format!("no container of pod {} has a port named {name}", pod.name))),
            },
            PodPort::Auto => (Some(found(pod)), None),
        };
        let annotated = pod.annotations.get(PATH_ANNOTATION).filter(|path| path.starts_with('/'));
        let path = settings.path.as_ref().or(annotated).map_or("/metrics", String::as_str);
        Self { port, path: path.to_owned(), scheme: settings.scheme.as_str(), problem }
    }

    /// The container that serves it: the one that declares the port, else the first.
    pub(super) fn container<'a>(&self, pod: &'a PodRecord) -> Option<&'a Container> {
        let declares =
            |container: &&Container| container.ports.iter().any(|(_, port)| Some(*port) == self.port);
        pod.containers.iter().find(declares).or(pod.containers.first())
    }

    /// None while the pod has no address.
    pub(super) fn url(&self, pod: &PodRecord) -> Option<String> {
        let ip: IpAddr = pod.ip.as_ref()?.parse().ok()?;
        let (scheme, port, path) = (self.scheme, self.port?, &self.path);
        Some(match ip {
            IpAddr::V4(ip) => format!("{scheme}://{ip}:{port}{path}"),
            IpAddr::V6(ip) => format!("{scheme}://[{ip}]:{port}{path}"),
        })
    }
}

fn named(pod: &PodRecord, name: &str) -> Option<u16> {
    let ports = pod.containers.iter().flat_map(|container| &container.ports);
    ports.filter(|(called, _)| called.as_deref() == Some(name)).map(|(_, port)| *port).next()
}

fn found(pod: &PodRecord) -> u16 {
    let annotated = pod.annotations.get(PORT_ANNOTATION).and_then(|port| port.parse().ok());
    let by_name = || PORT_NAMES.iter().find_map(|name| named(pod, name));
    let only = || match pod.containers.first()?.ports.as_slice() {
        [(_, port)] => Some(*port),
        _ => None,
    };
    annotated.or_else(by_name).or_else(only).unwrap_or(VLLM_PORT)
}

#[cfg(test)]
mod tests {
    use super::super::pod::fixtures::{container, pod};
    use super::*;
    use crate::config::Scheme;

    fn settings(port: PodPort) -> PodSettings {
        PodSettings { port, ..PodSettings::default() }
    }

    fn url(pod: &PodRecord, settings: &PodSettings) -> Option<String> {
        PageAddress::of(pod, settings).url(pod)
    }

    #[test]
    fn the_settings_come_before_the_annotation_before_the_names_before_the_only_port() {
        let mut pod = pod("a");
        pod.containers = vec![container("vllm", &[(None, 9001)])];
        assert_eq!(url(&pod, &settings(PodPort::Auto)).unwrap(), "http://10.244.0.9:9001/metrics");
        pod.containers[0].ports.push((Some("http".into()), 9002));
        assert_eq!(url(&pod, &settings(PodPort::Auto)).unwrap(), "http://10.244.0.9:9002/metrics");
        pod.containers.push(container("exporter", &[(Some("metrics"), 9003)]));
        assert_eq!(url(&pod, &settings(PodPort::Auto)).unwrap(), "http://10.244.0.9:9003/metrics");
        pod.annotations =
            [(PORT_ANNOTATION.to_owned(), "9004".to_owned()), (PATH_ANNOTATION.to_owned(), "/m".to_owned())]
                .into();
        assert_eq!(url(&pod, &settings(PodPort::Auto)).unwrap(), "http://10.244.0.9:9004/m");
        assert_eq!(url(&pod, &settings(PodPort::Number(9005))).unwrap(), "http://10.244.0.9:9005/m");
        let all = PodSettings {
            path: Some("/x".into()),
            scheme: Scheme::Https,
            ..settings(PodPort::Name("http".into()))
        };
        assert_eq!(url(&pod, &all).unwrap(), "https://10.244.0.9:9002/x");
    }

    #[test]
    fn a_pod_that_says_nothing_is_asked_on_vllms_own_port() {
        assert_eq!(url(&pod("a"), &settings(PodPort::Auto)).unwrap(), "http://10.244.0.9:8000/metrics");
    }

    #[test]
    fn an_ipv6_address_stands_in_brackets_and_no_address_is_no_page() {
        let mut pod = pod("a");
        pod.ip = Some("fd00::9".into());
        assert_eq!(url(&pod, &settings(PodPort::Auto)).unwrap(), "http://[fd00::9]:8000/metrics");
        pod.ip = None;
        assert_eq!(url(&pod, &settings(PodPort::Auto)), None);
    }

    #[test]
    fn a_port_name_that_no_container_has_is_named() {
        let page = PageAddress::of(&pod("chat-1"), &settings(PodPort::Name("metrics".into())));
        assert_eq!(page.problem.as_deref(), Some("no container of pod chat-1 has a port named metrics"));
    }
}
