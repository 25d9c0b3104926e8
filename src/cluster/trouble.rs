//! What went wrong with the API server, in words that say what to do.

use std::fmt;

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The rights are missing: exactly these.
    Forbidden(String),
    /// The object doesn't exist.
    NotFound(String),
    /// The resource isn't served: a CRD that isn't installed.
    NotServed(String),
    /// Anything else: unreachable, overloaded, a version that doesn't fit.
    Failed(String),
}

impl Trouble {
    /// `verbs` and `resource` are what the request needed, in the words of a Role; `object` what it asked for.
    pub(crate) fn of(error: &kube::Error, need: &Need<'_>) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Failed(format!("{need}: {}", root_cause(error)));
        };
        match status.code {
            401 | 403 => Self::Forbidden(format!("needs {need}: {}", status.message)),
            404 if need.name.is_some()
                && !status.message.contains("could not find the requested resource") =>
            {
                Self::NotFound(format!("{} doesn't exist", need.what()))
            }
            404 => Self::NotServed(format!("{} is not served by this cluster", need.resource)),
            code => Self::Failed(format!("{need}: {code} {}", status.message)),
        }
    }

    /// A watch or a list inside it.
    pub(crate) fn of_watch(error: &kube::runtime::watcher::Error, need: &Need<'_>) -> Self {
        use kube::runtime::watcher::Error;
        match error {
            Error::InitialListFailed(error) | Error::WatchStartFailed(error) | Error::WatchFailed(error) => {
                Self::of(error, need)
            }
            Error::WatchError(status) => Self::of(&kube::Error::Api(status.clone()), need),
            Error::NoResourceVersion => Self::Failed(format!("{need}: the answer has no resourceVersion")),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Forbidden(why) | Self::NotFound(why) | Self::NotServed(why) | Self::Failed(why)) = self;
        f.write_str(why)
    }
}

/// What a request needs, as a Role says it.
#[derive(Clone, Debug)]
pub(crate) struct Need<'a> {
    /// `list,watch`.
    pub(crate) verbs: &'static str,
    /// `pods`, `deployments.apps/scale`.
    pub(crate) resource: &'a str,
    pub(crate) namespace: &'a str,
    /// One object's name.
    pub(crate) name: Option<&'a str>,
}

impl Need<'_> {
    fn what(&self) -> String {
        format!("{} {}/{}", self.resource, self.namespace, self.name.unwrap_or_default())
    }
}

impl fmt::Display for Need<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {} in namespace {}", self.verbs, self.resource, self.namespace)
    }
}

/// The innermost cause: hyper's and tower's own words say little.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    const PODS: Need<'_> = Need { verbs: "list,watch", resource: "pods", namespace: "serving", name: None };

    fn refused(code: u16, message: &str) -> kube::Error {
        kube::Error::Api(Box::new(Status { code, message: message.to_owned(), ..Status::default() }))
    }

    #[test]
    fn a_missing_right_is_named_as_a_role_would_give_it() {
        let trouble = Trouble::of(&refused(403, "pods is forbidden: User \"x\" cannot list"), &PODS);
        assert!(matches!(trouble, Trouble::Forbidden(_)));
        assert!(
            trouble
                .to_string()
                .starts_with("needs list,watch on pods in namespace serving: pods is forbidden"),
            "{trouble}"
        );
    }

    #[test]
    fn an_absent_object_and_an_absent_kind_are_told_apart() {
        let need = Need {
            verbs: "get",
            resource: "deployments.apps/scale",
            namespace: "serving",
            name: Some("chat"),
        };
        assert_eq!(
            Trouble::of(&refused(404, "deployments.apps \"chat\" not found"), &need).to_string(),
            "deployments.apps/scale serving/chat doesn't exist"
        );
        assert!(matches!(
            Trouble::of(&refused(404, "the server could not find the requested resource"), &need),
            Trouble::NotServed(_)
        ));
    }
}
