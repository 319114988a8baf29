//! What environmentd listens on: the file `listeners.json`, in both of its schemas.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::api::materialize::AuthenticatorKind;

/// Form of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schema {
    /// `0.147.0`, which older images know without a `version` member: one set of roles a listener.
    RolesPerListener,
    /// `26.32.0`: a set of roles for each group of routes.
    RolesPerRoute,
}

/// The ports of environmentd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// SQL for users.
    pub sql: u16,
    /// HTTP for users.
    pub http: u16,
    /// SQL inside the cluster.
    pub internal_sql: u16,
    /// HTTP inside the cluster.
    pub internal_http: u16,
}

/// Who may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Roles {
    Normal,
    NormalAndInternal,
}

/// Every group of routes of an HTTP listener.
const ROUTES: [&str; 8] = [
    "base",
    "webhook",
    "internal",
    "metrics",
    "profiling",
    "mcp_agent",
    "mcp_developer",
    "console_config",
];

/// Those that users need.
const USER_ROUTES: [&str; 5] = [
    "base",
    "webhook",
    "mcp_agent",
    "mcp_developer",
    "console_config",
];

/// The groups of a listener that serves both users and the inside.
const SHARED_ROUTES: [&str; 7] = [
    "base",
    "webhook",
    "internal",
    "profiling",
    "mcp_agent",
    "mcp_developer",
    "console_config",
];

/// The groups of the listener inside the cluster.
const INTERNAL_ROUTES: [&str; 7] = [
    "base",
    "webhook",
    "internal",
    "metrics",
    "profiling",
    "mcp_agent",
    "mcp_developer",
];

struct Listener {
    port: u16,
    kind: AuthenticatorKind,
    roles: Roles,
    tls: bool,
}

/// The listeners file. With passwords there is one door for all and it is guarded; without, a second, inner one.
pub fn config(schema: Schema, kind: AuthenticatorKind, tls: bool, ports: Ports) -> Value {
    let external = |port, kind| Listener {
        port,
        kind,
        roles: if kind.uses_password() {
            Roles::NormalAndInternal
        } else {
            Roles::Normal
        },
        tls,
    };
    let internal = |port| Listener {
        port,
        kind: AuthenticatorKind::None,
        roles: Roles::NormalAndInternal,
        tls: false,
    };
    let sql = external(ports.sql, kind).sql();
    let http = external(ports.http, over_http(kind));
    let listeners = if kind.uses_password() {
        json!({
            "sql": { "external": sql },
            "http": {
                "external": http.http(schema, &SHARED_ROUTES),
                "metrics": internal(ports.internal_http).http(schema, &["metrics"]),
            },
        })
    } else {
        json!({
            "sql": { "external": sql, "internal": internal(ports.internal_sql).sql() },
            "http": {
                "external": http.http(schema, &USER_ROUTES),
                "internal": internal(ports.internal_http).http(schema, &INTERNAL_ROUTES),
            },
        })
    };
    match (schema, listeners) {
        (Schema::RolesPerRoute, Value::Object(members)) => {
            let version = ("version".to_owned(), json!("26.32.0"));
            Value::Object([version].into_iter().chain(members).collect())
        }
        (_, listeners) => listeners,
    }
}

/// environmentd has no SASL over HTTP: the same password is asked for in the ordinary way.
fn over_http(kind: AuthenticatorKind) -> AuthenticatorKind {
    match kind {
        AuthenticatorKind::Sasl => AuthenticatorKind::Password,
        other => other,
    }
}

impl Listener {
    fn sql(self) -> Value {
        json!({
            "addr": self.addr(),
            "authenticator_kind": self.kind,
            "allowed_roles": self.roles,
            "enable_tls": self.tls,
        })
    }

    fn http(self, schema: Schema, enabled: &[&str]) -> Value {
        let routes: Map<String, Value> = ROUTES
            .iter()
            .map(|route| {
                let on = enabled.contains(route);
                let value = match (schema, on) {
                    (Schema::RolesPerListener, _) => json!(on),
                    (Schema::RolesPerRoute, false) => json!({ "enabled": false }),
                    (Schema::RolesPerRoute, true) => {
                        json!({ "enabled": true, "allowed_roles": self.roles })
                    }
                };
                ((*route).to_owned(), value)
            })
            .collect();
        match schema {
            Schema::RolesPerListener => json!({
                "addr": self.addr(),
                "authenticator_kind": self.kind,
                "allowed_roles": self.roles,
                "enable_tls": self.tls,
                "routes": routes,
            }),
            Schema::RolesPerRoute => json!({
                "addr": self.addr(),
                "authenticator_kind": self.kind,
                "enable_tls": self.tls,
                "routes": routes,
            }),
        }
    }

    fn addr(&self) -> String {
        format!("0.0.0.0:{}", self.port)
    }
}

#[cfg(test)]
mod tests {
    use insta::assert_yaml_snapshot;
    use rstest::rstest;

    use super::*;

    const PORTS: Ports = Ports {
        sql: 1,
        http: 2,
        internal_sql: 3,
        internal_http: 4,
    };

    #[rstest]
    fn listeners(
        #[values(Schema::RolesPerListener, Schema::RolesPerRoute)] schema: Schema,
        #[values(
            AuthenticatorKind::None,
            AuthenticatorKind::Frontegg,
            AuthenticatorKind::Password,
            AuthenticatorKind::Sasl,
            AuthenticatorKind::Oidc
        )]
        kind: AuthenticatorKind,
    ) {
        let name = format!("{schema:?}_{kind:?}");
        assert_yaml_snapshot!(name, config(schema, kind, true, PORTS));
    }

    #[rstest]
    fn without_an_issuer_nothing_is_encrypted(
        #[values(AuthenticatorKind::None, AuthenticatorKind::Password)] kind: AuthenticatorKind,
    ) {
        let text = config(Schema::RolesPerRoute, kind, false, PORTS).to_string();
        assert!(!text.contains(r#""enable_tls":true"#), "{text}");
        assert!(text.contains(r#""enable_tls":false"#), "{text}");
    }
}
