//! Where a tier's load comes from: the source, the reading of pages, the activator.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use super::Findings;
use crate::config::problem::{Place, Read, Reported};
use crate::config::section::Section;
use crate::config::settings::{
    ActivatorSettings, ClusterSettings, FileReference, PodPort, PodSettings, ScaleTarget, Scheme,
    ScrapeSettings, SourceSettings, TlsSettings,
};
use crate::config::{address, file};
use crate::units::format_span;

pub(super) fn source(section: &Section<'_>, found: &mut Findings) -> Read<SourceSettings> {
    let given = |name| section.optional_section(name);
    match (given("kubernetes"), given("dns"), given("fixed")) {
        (Some(pods), None, None) => pod_settings(&pods).map(SourceSettings::Kubernetes),
        (None, Some(dns), None) => Ok(SourceSettings::Dns {
            host: dns.get("host")?,
            port: dns.get("port")?,
            scheme: scheme(&dns)?,
            path: dns.get("path")?,
            resolve_every: dns.get("resolveEvery")?,
        }),
        (None, None, Some(fixed)) => fixed_list(&fixed, found),
        _ => Err(Reported),
    }
}

fn pod_settings(section: &Section<'_>) -> Read<PodSettings> {
    let target = section.optional_section("target").map(|target| {
        Ok(ScaleTarget {
            api_version: target.get("apiVersion")?,
            kind: target.get("kind")?,
            name: target.get("name")?,
        })
    });
    let port = section.optional::<String>("port")?;
    Ok(PodSettings {
        target: target.transpose()?,
        port: match port {
            None => PodPort::Auto,
            Some(text) => text.parse().map_or(PodPort::Name(text), PodPort::Number),
        },
        path: section.optional("path")?,
        scheme: scheme(section)?,
        node_wait: section.get("nodeWait")?,
    })
}

fn scheme(section: &Section<'_>) -> Read<Scheme> {
    Ok(if section.get::<String>("scheme")? == "https" { Scheme::Https } else { Scheme::Http })
}

/// The cluster of the file.
pub(super) fn cluster(section: &Section<'_>, found: &mut Findings) -> Read<ClusterSettings> {
    let kubeconfig: Option<PathBuf> = section.optional("kubeconfig")?;
    if let Some(file) = &kubeconfig {
        let place = section.place_of("kubeconfig");
        found.files.push(FileReference { path: place.path, line: place.line, file: file.clone() });
    }
    Ok(ClusterSettings {
        kubeconfig,
        context: section.optional("context")?,
        events: section.get("events")?,
        lease: section.get("lease")?,
    })
}

fn fixed_list(section: &Section<'_>, found: &mut Findings) -> Read<SourceSettings> {
    let mut lines: HashMap<String, usize> = HashMap::new();
    let read = |(place, text): (Place, &str)| -> Read<String> {
        let url = address::page_url(text);
        // One that is wrong is compared as it is written: mended, the two would still be one.
        let same = url.clone().unwrap_or_else(|_| text.to_owned());
        if let Some(line) = lines.insert(same, place.line) {
            // Counted twice, a replica would be seen as two. One that is wrong may hold a password: it isn't shown.
            let which = url.as_deref().unwrap_or("it");
            let message = format!("{which} is listed twice: remove this one or the one on line {line}");
            found.problems.push(&place, message);
        }
        url.map_err(|_| Reported)
    };
    // All are compared before the first bad one counts: every problem is told at once.
    let urls: Vec<Read<String>> = section.scalars("urls").into_iter().map(read).collect();
    let urls = urls.into_iter().collect::<Read<Vec<String>>>()?;
    if urls.is_empty() {
        return Err(Reported);
    }
    Ok(SourceSettings::Fixed { urls })
}

pub(super) fn scrape(section: &Section<'_>, found: &mut Findings) -> Read<ScrapeSettings> {
    let interval = section.get::<Duration>("interval");
    let timeout = section.get::<Duration>("timeout");
    let connect_timeout = section
        .optional("connectTimeout")
        .and_then(|written| Ok(written.unwrap_or(Duration::from_secs(1).min(timeout?))));
    let stale_after = section
        .optional("staleAfter")
        .and_then(|written| Ok(written.unwrap_or((interval? * 3).max(Duration::from_secs(15)))));
    let rate_window = section
        .optional("rateWindow")
        .and_then(|written| Ok(written.unwrap_or((interval? * 6).max(Duration::from_secs(30)))));
    let max_body_bytes = section.get("maxBodyBytes");
    let max_expanded_bytes = section.get("maxExpandedBytes");

    if let (Ok(connect), Ok(total)) = (connect_timeout, timeout)
        && connect > total
    {
        let total = format_span(total);
        found.problems.push(
            &section.place_of("connectTimeout"),
            format!("longer than the whole `timeout` of {total}: write {total} or less"),
        );
    }
    if let (Ok(interval), Ok(timeout), Ok(stale)) = (interval, timeout, stale_after)
        && stale <= interval + timeout
    {
        let least = format_span(interval + timeout);
        found.problems.push(
            &section.place_of("staleAfter"),
            format!("a page would be stale before the next can be there: write more than `interval` + `timeout` = {least}"),
        );
    }
    if let (Ok(interval), Ok(window)) = (interval, rate_window)
        && window < interval * 2
    {
        found.problems.push(
            &section.place_of("rateWindow"),
            format!("holds fewer than two pages, so no rate: write {} or more", format_span(interval * 2)),
        );
    }
    if let (Ok(body), Ok(expanded)) = (max_body_bytes, max_expanded_bytes)
        && expanded < body
    {
        found.problems.push(
            &section.place_of("maxExpandedBytes"),
            "less than `maxBodyBytes`, which a page without compression may have: write as much or more",
        );
    }
    let credentials = credentials(section, found);
    let concurrency: u32 = section.get("concurrency")?;
    let (tls, bearer_token_file) = credentials?;
    Ok(ScrapeSettings {
        interval: interval?,
        timeout: timeout?,
        connect_timeout: connect_timeout?,
        stale_after: stale_after?,
        rate_window: rate_window?,
        concurrency: concurrency as usize,
        max_body_bytes: max_body_bytes?,
        max_expanded_bytes: max_expanded_bytes?,
        tls,
        bearer_token_file,
    })
}

pub(super) fn activator(section: &Section<'_>, found: &mut Findings) -> Read<ActivatorSettings> {
    let (tls, bearer_token_file) = credentials(section, found)?;
    let activator = ActivatorSettings {
        url: section.get("url")?,
        metric: section.get("metric")?,
        labels: section.labels("labels")?,
        interval: section.get("interval")?,
        timeout: section.get("timeout")?,
        tls,
        bearer_token_file,
    };
    if activator.url.starts_with("http:") {
        crate::config::lint::tls_without_https(section, &mut found.warnings);
    }
    Ok(activator)
}

/// The TLS files and the bearer token of a section; each file is noted down for whoever may look at the disk.
pub(in crate::config) fn credentials(
    section: &Section<'_>,
    found: &mut Findings,
) -> Read<(TlsSettings, Option<PathBuf>)> {
    let mut file = |name: &str| -> Read<Option<PathBuf>> {
        let file: Option<PathBuf> = section.optional(name)?;
        if let Some(file) = &file {
            let place = section.place_of(name);
            found.files.push(FileReference { path: place.path, line: place.line, file: file.clone() });
        }
        Ok(file)
    };
    let [ca, client_cert, client_key, bearer_token] =
        ["ca", "clientCert", "clientKey", "bearerTokenFile"].map(&mut file);
    for (given, missing, there, not_there) in [
        (&client_cert, &client_key, "clientCert", "clientKey"),
        (&client_key, &client_cert, "clientKey", "clientCert"),
    ] {
        if !matches!(given, Ok(None)) && matches!(missing, Ok(None)) {
            found.problems.push(
                &section.place_of(there),
                format!("`{not_there}` is missing: a client certificate and its key come together"),
            );
        }
    }
    let server_name = section.optional("serverName");
    if matches!(server_name, Ok(Some(_))) && matches!(ca, Ok(None)) {
        found.problems.push(
            &section.place_of("serverName"),
            "`ca` is missing: a name is checked against certificates of your own authority, not the system's",
        );
    }
    let tls = TlsSettings {
        ca_file: ca?,
        client_cert_file: client_cert?,
        client_key_file: client_key?,
        server_name: server_name?,
    };
    Ok((tls, bearer_token?))
}

impl Default for ScrapeSettings {
    fn default() -> Self {
        let place = crate::config::problem::Place { path: String::new(), line: 1 };
        let nothing_written = Section::new(None, place, file::SCRAPE);
        match scrape(&nothing_written, &mut Findings::default()) {
            Ok(settings) => settings,
            Err(Reported) => unreachable!("the table's own defaults are valid"),
        }
    }
}
