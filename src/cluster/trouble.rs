//! What went wrong with the API server, in words that say what to do.

use std::fmt;

use crate::units::shortened;

/// Characters kept of a server's message: a proxy's may be a page.
const MAX_MESSAGE: usize = 240;

/// A failed request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A right is missing.
    Forbidden(MissingRight),
    /// The object doesn't exist.
    NotFound(String),
    /// The resource isn't served: a CRD that isn't installed.
    NotServed(String),
    /// Anything else: unreachable, overloaded, a version that doesn't fit.
    Failed {
        /// For people.
        why: String,
        /// The HTTP status; None where none came.
        code: Option<u16>,
    },
}

/// A right that a Role doesn't give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingRight {
    /// `list,watch on pods`.
    pub(crate) right: String,
    pub(crate) namespace: String,
    /// Who lacks it, where the server says so.
    pub(crate) user: Option<String>,
}

impl Trouble {
    /// `verbs` and `resource` are what the request needed, in the words of a Role; `object` what it asked for.
    pub(crate) fn of(error: &kube::Error, need: &Need<'_>) -> Self {
        let kube::Error::Api(status) = error else {
            return Self::Failed { why: format!("{need}: {}", root_cause(error)), code: None };
        };
        match status.code {
            403 => Self::Forbidden(MissingRight {
                right: need.right(),
                namespace: need.namespace.to_owned(),
                user: user_of(&status.message),
            }),
            404 if need.name.is_some()
                && !status.message.contains("could not find the requested resource") =>
            {
                Self::NotFound(format!("{} doesn't exist", need.what()))
            }
            404 => Self::NotServed(format!("{} is not served by this cluster", need.resource)),
            code => Self::Failed {
                why: format!("{need}: {code} {}", shortened(&status.message, MAX_MESSAGE)),
                code: Some(code),
            },
        }
    }

    /// What sort it is, however it is worded.
    pub(crate) fn kind(&self) -> String {
        match self {
            Self::Forbidden(right) => right.right.clone(),
            Self::NotFound(what) | Self::NotServed(what) => what.clone(),
            // Told apart by words: digits of a kind don't count.
            Self::Failed { code, .. } => match code {
                None => "unreachable".to_owned(),
                Some(401) => "credentials".to_owned(),
                Some(409) => "conflict".to_owned(),
                Some(410) => "gone".to_owned(),
                Some(429) => "throttled".to_owned(),
                Some(400..=499) => "refused".to_owned(),
                Some(_) => "server error".to_owned(),
            },
        }
    }

    /// Somebody else was faster: the next look shows who.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::Failed { code: Some(409), .. })
    }

    /// It comes now and then where all is well: a version that has become too old, a connection that broke.
    pub(crate) fn is_usual_once(&self) -> bool {
        matches!(self, Self::Failed { code: None | Some(410), .. })
    }

    /// The server is away or not well, which passes; anything else is as somebody left it.
    pub(crate) fn is_outage(&self) -> bool {
        matches!(self, Self::Failed { code: None | Some(500..), .. })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forbidden(right) => f.write_str(&missing(std::slice::from_ref(right))),
            Self::NotFound(why) | Self::NotServed(why) | Self::Failed { why, .. } => f.write_str(why),
        }
    }
}

/// Rights as a Role would give them: `needs list,watch on pods, get on deployments.apps/scale in namespace serving (as
/// system:serviceaccount:a:b)`. All are of one namespace, as a tier's are.
pub(crate) fn missing(rights: &[MissingRight]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for right in rights {
        if !names.contains(&right.right.as_str()) {
            names.push(&right.right);
        }
    }
    let namespace = rights.first().map_or("", |right| right.namespace.as_str());
    let user = rights.iter().find_map(|right| right.user.as_deref());
    let user = user.map(|user| format!(" (as {user})")).unwrap_or_default();
    format!("needs {} in namespace {namespace}{user}", names.join(", "))
}

/// The user in the API server's own words: `pods is forbidden: User "x" cannot list ...`.
fn user_of(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("User \"")?;
    let (user, _) = rest.split_once('"')?;
    Some(shortened(user, MAX_MESSAGE))
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
    fn right(&self) -> String {
        format!("{} on {}", self.verbs, self.resource)
    }

    fn what(&self) -> String {
        format!("{} {}/{}", self.resource, self.namespace, self.name.unwrap_or_default())
    }
}

impl fmt::Display for Need<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in namespace {}", self.right(), self.namespace)
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
    fn missing_rights_are_named_once_each_as_a_role_would_give_them() {
        let forbidden = "pods is forbidden: User \"system:serviceaccount:a:b\" cannot list resource \"pods\"";
        let pods = Trouble::of(&refused(403, forbidden), &PODS);
        assert_eq!(
            pods.to_string(),
            "needs list,watch on pods in namespace serving (as system:serviceaccount:a:b)"
        );
        let scale = Need { verbs: "get", resource: "deployments.apps/scale", name: Some("chat"), ..PODS };
        let scale = Trouble::of(&refused(403, "no"), &scale);
        let (Trouble::Forbidden(pods), Trouble::Forbidden(scale)) = (pods, scale) else {
            panic!("forbidden")
        };
        assert_eq!(
            missing(&[pods.clone(), scale, pods]),
            "needs list,watch on pods, get on deployments.apps/scale in namespace serving (as system:serviceaccount:a:b)"
        );
    }

    #[test]
    fn credentials_that_are_not_accepted_are_no_missing_right() {
        let trouble = Trouble::of(&refused(401, "Unauthorized"), &PODS);
        assert_eq!(trouble.to_string(), "list,watch on pods in namespace serving: 401 Unauthorized");
        assert!(!trouble.is_outage(), "no waiting cures it");
    }

    #[test]
    fn a_failure_is_of_one_kind_however_it_is_worded() {
        let (one, other) =
            (Trouble::of(&refused(429, "slow down 1"), &PODS), Trouble::of(&refused(429, "later"), &PODS));
        assert_ne!(one, other);
        assert_eq!(one.kind(), other.kind());
        assert_ne!(one.kind(), Trouble::of(&refused(410, "slow down 1"), &PODS).kind());
        let page = Trouble::of(&refused(502, &"<html>".repeat(1_000)), &PODS);
        assert!(page.to_string().chars().count() < 350 && page.is_outage());
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
