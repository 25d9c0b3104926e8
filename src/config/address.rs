//! Names, hosts, URLs and socket addresses. Every refusal says what to write.

use std::net::SocketAddr;

use reqwest::Url;

use super::quantity::quoted;
use super::settings::DnsPort;

/// What Kubernetes allows for the name of an object (RFC 1123 subdomain).
const MAX_OBJECT_NAME: usize = 253;
/// What Kubernetes allows for the name of a namespace (RFC 1123 label).
const MAX_LABEL: usize = 63;
/// Longer URLs are refused: they come from people, not from programs.
const MAX_URL: usize = 2_000;

/// `0.0.0.0:6000` or `[::]:6000`.
pub(super) fn socket(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        format!("{} is no address to listen on: write an IP address and a port, such as 0.0.0.0:6000 or [::]:6000", quoted(text))
    })
}

/// The name of a tier: that of its ScaledObject unless the ScaledObject says `tier:`.
pub(super) fn object_name(text: &str) -> Result<String, String> {
    let good = text.len() <= MAX_OBJECT_NAME && text.split('.').all(is_label_of_any_length);
    good.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "{} is no Kubernetes name: write lower-case letters, digits, `-` and `.`, such as chat-h100",
            quoted(text)
        )
    })
}

/// The name of a namespace.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    let good = text.len() <= MAX_LABEL && is_label_of_any_length(text);
    good.then(|| text.to_owned()).ok_or_else(|| {
        format!(
            "{} is no namespace: write at most 63 lower-case letters, digits and `-`, such as serving",
            quoted(text)
        )
    })
}

fn is_label_of_any_length(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// A DNS name; an address belongs to a fixed list.
pub(super) fn host(text: &str) -> Result<String, String> {
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Err(format!("{text} is an address, which DNS doesn't resolve: list it under `fixed`"));
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=MAX_LABEL).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    if name.len() <= MAX_OBJECT_NAME && name.split('.').all(label) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{} is no host name: write a name without scheme, port or path, such as chat.serving.svc.cluster.local",
        quoted(text)
    ))
}

/// A port number, or the name of a container's port (`IANA_SVC_NAME`: at most 15 characters, one of them a letter).
pub(super) fn pod_port(text: &str) -> Result<String, String> {
    let number = text.parse::<u16>().is_ok_and(|port| port > 0);
    let name = (1..=15).contains(&text.len())
        && is_label_of_any_length(text)
        && !text.contains("--")
        && text.bytes().any(|b| b.is_ascii_lowercase());
    if number || name {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{} is no port of a pod: write a number from 1 to 65535, or the name of a container port such as metrics",
        quoted(text)
    ))
}

/// A port number, or `srv`: the ports come with SRV records.
pub(super) fn port(text: &str) -> Result<DnsPort, String> {
    if text == "srv" {
        return Ok(DnsPort::Srv);
    }
    match text.parse::<u16>() {
        Ok(port) if port > 0 => Ok(DnsPort::Number(port)),
        _ => Err(format!("{} is no port: write a number from 1 to 65535, or srv", quoted(text))),
    }
}

/// The path of a page.
pub(super) fn url_path(text: &str) -> Result<String, String> {
    let good = text.starts_with('/')
        && text.len() <= MAX_URL
        && text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'#' | b'"' | b'<' | b'>' | b'\\'));
    good.then(|| text.to_owned())
        .ok_or_else(|| format!("{} is no path: write one such as /metrics", quoted(text)))
}

/// An absolute http or https URL without credentials.
pub(super) fn url(text: &str) -> Result<String, String> {
    let example = "http://10.0.0.1:8000/metrics";
    if text.len() > MAX_URL {
        return Err(format!("longer than {MAX_URL} characters"));
    }
    // The text isn't shown before it is known to hold no password.
    let url =
        Url::parse(text).map_err(|error| format!("not a URL ({error}): write one such as {example}"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("credentials don't belong in a URL: use `bearerTokenFile`".to_owned());
    }
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("scheme `{}` is not spoken: write http or https, as in {example}", url.scheme()));
    }
    if url.host_str().is_none_or(str::is_empty) || url.port() == Some(0) {
        return Err(format!("{} names no host and port: write one such as {example}", quoted(text)));
    }
    if url.fragment().is_some() {
        return Err(format!("{} has a `#` part, which is never sent: remove it", quoted(text)));
    }
    Ok(url.into())
}

/// A replica's metrics page: a URL, or `host:port` for `http://host:port/metrics`.
pub(crate) fn page_url(text: &str) -> Result<String, String> {
    let with_scheme = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let mut page = Url::parse(&url(&with_scheme)?).map_err(|error| error.to_string())?;
    if page.path() == "/" {
        page.set_path("/metrics");
    }
    Ok(page.into())
}

/// A Prometheus metric's name.
pub(super) fn metric_name(text: &str) -> Result<String, String> {
    let good = !text.is_empty()
        && text.len() <= 200
        && !text.as_bytes()[0].is_ascii_digit()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':');
    good.then(|| text.to_owned()).ok_or_else(|| {
        format!("{} is no metric name: write it without labels, such as router_queue_length", quoted(text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_absolute_http_without_credentials() {
        assert_eq!(url("https://a.b:8443/metrics?x=1").unwrap(), "https://a.b:8443/metrics?x=1");
        for (text, part) in [
            ("ftp://a/metrics", "scheme `ftp` is not spoken"),
            ("file:///etc/passwd", "scheme `file` is not spoken"),
            ("a.b/metrics", "not a URL"),
            ("http://", "not a URL"),
            ("http://a:0/", "names no host and port"),
            ("http://a:99999/", "not a URL"),
            ("http://a/#top", "has a `#` part"),
        ] {
            let message = url(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }

    #[test]
    fn credentials_in_a_url_are_refused_and_not_repeated() {
        for text in ["http://user:hunter2@a/metrics", "http://hunter2@a/", "http://user:hunter2@a:99999/"] {
            let message = url(text).unwrap_err();
            assert!(!message.contains("hunter2"), "{message}");
        }
        assert!(url("http://user:hunter2@a/").unwrap_err().contains("use `bearerTokenFile`"));
    }

    #[test]
    fn a_page_may_be_given_by_host_and_port() {
        for text in ["10.0.0.1:8000", "http://10.0.0.1:8000", "http://10.0.0.1:8000/metrics"] {
            assert_eq!(page_url(text).unwrap(), "http://10.0.0.1:8000/metrics");
        }
        assert_eq!(page_url("[::1]:8000").unwrap(), "http://[::1]:8000/metrics");
        assert!(page_url("user:pw@host:1").unwrap_err().contains("credentials"));
        assert!(page_url("").is_err());
    }

    #[test]
    fn names_are_those_that_kubernetes_takes() {
        assert!(object_name("chat-h100.v2").is_ok());
        for text in ["", "Chat", "-chat", "chat-", "a..b", "a/b", "a b", &"x".repeat(254)] {
            assert!(object_name(text).is_err(), "{text}");
        }
        assert!(namespace("serving").is_ok());
        assert!(namespace("a.b").is_err());
        assert!(namespace(&"x".repeat(64)).is_err());
    }

    #[test]
    fn a_host_is_a_name_alone() {
        assert!(host("_http._tcp.chat.serving.svc").is_ok());
        assert!(host("chat.serving.svc.cluster.local.").is_ok());
        for text in ["", "http://chat", "chat:8000", "chat/metrics", "a..b"] {
            assert!(host(text).unwrap_err().contains("is no host name"), "{text}");
        }
        assert!(host("10.0.0.1").unwrap_err().contains("list it under `fixed`"));
    }

    #[test]
    fn ports_paths_sockets_and_metric_names() {
        assert_eq!(port("srv"), Ok(DnsPort::Srv));
        assert_eq!(port("8000"), Ok(DnsPort::Number(8000)));
        for text in ["0", "65536", "http", ""] {
            assert!(port(text).is_err(), "{text}");
        }
        assert!(url_path("/metrics").is_ok());
        assert!(url_path("metrics").is_err());
        assert!(url_path("/a b").is_err());
        assert!(socket("0.0.0.0:6000").is_ok());
        for text in ["6000", ":6000", "localhost:6000", "0.0.0.0"] {
            assert!(socket(text).unwrap_err().contains("write an IP address and a port"), "{text}");
        }
        assert!(metric_name("a:b_c").is_ok());
        for text in ["", "1a", "a{b=\"c\"}", "a b"] {
            assert!(metric_name(text).is_err(), "{text}");
        }
    }
}
