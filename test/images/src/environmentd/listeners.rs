//! The listeners file, in both of its schemas.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

/// How a listener tells who connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum AuthenticatorKind {
    /// Materialize's cloud; not imitated, everybody is let in.
    Frontegg,
    /// A password.
    Password,
    /// A password, over SCRAM.
    Sasl,
    /// A token, or the password of `mz_system`; only the latter is imitated.
    Oidc,
    /// Not imitated, everybody is let in.
    Talos,
    /// Everybody is let in.
    None,
}

impl AuthenticatorKind {
    /// Whether `mz_system` must give its password.
    pub(crate) fn asks_for_password(self) -> bool {
        matches!(self, Self::Password | Self::Sasl | Self::Oidc)
    }
}

/// Which users a listener or a group of routes lets in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum AllowedRoles {
    /// Ordinary users.
    Normal,
    /// `mz_system` and its like.
    Internal,
    /// Both.
    NormalAndInternal,
}

impl AllowedRoles {
    /// Whether `mz_system` is let in.
    pub(crate) fn internal(self) -> bool {
        self != Self::Normal
    }
}

/// A group of routes on an HTTP port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "the names are Materialize's, most are not imitated"
)]
pub enum Route {
    Base,
    Webhook,
    Internal,
    Metrics,
    Profiling,
    Mcp,
    McpAgent,
    McpDeveloper,
    ConsoleConfig,
    EndpointApi,
}

/// The groups that a file must speak about.
const REQUIRED_ROUTES: [Route; 5] = [
    Route::Base,
    Route::Webhook,
    Route::Internal,
    Route::Metrics,
    Route::Profiling,
];

/// A port for SQL.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlListener {
    /// Where it listens.
    pub addr: SocketAddr,
    /// How it tells who connects.
    pub authenticator_kind: AuthenticatorKind,
    /// Whom it lets in.
    pub allowed_roles: AllowedRoles,
    /// Whether it speaks TLS.
    pub enable_tls: bool,
}

/// A port for HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpListener {
    /// Where it listens.
    pub addr: SocketAddr,
    /// How it tells who connects.
    pub authenticator_kind: AuthenticatorKind,
    /// Whether it speaks TLS.
    pub enable_tls: bool,
    /// The groups that answer, and to whom.
    pub routes: BTreeMap<Route, AllowedRoles>,
}

/// Every port but persist's, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listeners {
    /// Ports for SQL.
    pub sql: BTreeMap<String, SqlListener>,
    /// Ports for HTTP.
    pub http: BTreeMap<String, HttpListener>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<H> {
    #[serde(rename = "version")]
    _version: Option<String>,
    sql: BTreeMap<String, SqlListener>,
    http: BTreeMap<String, H>,
}

/// An HTTP listener of the schema `0.147.0`: one set of roles for all groups.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpWithRoles {
    addr: SocketAddr,
    authenticator_kind: AuthenticatorKind,
    allowed_roles: AllowedRoles,
    enable_tls: bool,
    routes: BTreeMap<Route, bool>,
}

/// An HTTP listener of the schema `26.32.0`: roles for each group.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HttpWithGroups {
    addr: SocketAddr,
    authenticator_kind: AuthenticatorKind,
    enable_tls: bool,
    routes: BTreeMap<Route, Group>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    enabled: bool,
    allowed_roles: Option<AllowedRoles>,
}

impl Listeners {
    /// Reads the text of a listeners file; `newest` allows the schema `26.32.0`.
    pub(crate) fn parse(text: &str, newest: bool) -> Result<Self> {
        let value: Value = serde_json::from_str(text).context("not JSON")?;
        let listeners = match value.get("version").and_then(Value::as_str) {
            None | Some("0.147.0") => Self::from_file(value, HttpWithRoles::normalize)?,
            Some("26.32.0") if newest => Self::from_file(value, HttpWithGroups::normalize)?,
            Some(other) => bail!("this image does not know the schema version {other:?}"),
        };
        for (name, listener) in &listeners.http {
            if matches!(
                listener.authenticator_kind,
                AuthenticatorKind::Sasl | AuthenticatorKind::Talos
            ) {
                bail!(
                    "http.{name}.authenticator_kind: {:?} is not possible over HTTP",
                    listener.authenticator_kind
                );
            }
        }
        Ok(listeners)
    }

    fn from_file<H: serde::de::DeserializeOwned>(
        value: Value,
        normalize: fn(H, &str) -> Result<HttpListener>,
    ) -> Result<Self> {
        let file: File<H> = serde_json::from_value(value)?;
        let http = file.http.into_iter().map(|(name, listener)| {
            let listener = normalize(listener, &name)?;
            Ok((name, listener))
        });
        Ok(Self {
            sql: file.sql,
            http: http.collect::<Result<_>>()?,
        })
    }

    /// The ports of images that take listen addresses as arguments.
    pub(crate) fn from_addresses(
        sql: SocketAddr,
        http: SocketAddr,
        internal_sql: SocketAddr,
        internal_http: SocketAddr,
        enable_tls: bool,
    ) -> Self {
        use AllowedRoles::{Normal, NormalAndInternal};
        let http_listener = |addr, enable_tls, routes: &[Route], roles| HttpListener {
            addr,
            authenticator_kind: AuthenticatorKind::None,
            enable_tls,
            routes: routes.iter().map(|route| (*route, roles)).collect(),
        };
        let sql_listener = |addr, enable_tls, allowed_roles| SqlListener {
            addr,
            authenticator_kind: AuthenticatorKind::None,
            allowed_roles,
            enable_tls,
        };
        let (external, internal) = ("external".to_owned(), "internal".to_owned());
        Self {
            sql: BTreeMap::from([
                (external.clone(), sql_listener(sql, enable_tls, Normal)),
                (
                    internal.clone(),
                    sql_listener(internal_sql, false, NormalAndInternal),
                ),
            ]),
            http: BTreeMap::from([
                (
                    external,
                    http_listener(http, enable_tls, &[Route::Base, Route::Webhook], Normal),
                ),
                (
                    internal,
                    http_listener(internal_http, false, &REQUIRED_ROUTES, NormalAndInternal),
                ),
            ]),
        }
    }

    /// One free port of each sort on the loopback interface, with every group of routes, for
    /// tests in process.
    pub fn loopback(kind: AuthenticatorKind) -> Self {
        let addr = SocketAddr::from(([127, 0, 0, 1], 0));
        let allowed_roles = AllowedRoles::NormalAndInternal;
        let over_http = match kind {
            AuthenticatorKind::Sasl => AuthenticatorKind::Password,
            other => other,
        };
        let sql = SqlListener {
            addr,
            authenticator_kind: kind,
            allowed_roles,
            enable_tls: false,
        };
        let http = HttpListener {
            addr,
            authenticator_kind: over_http,
            enable_tls: false,
            routes: REQUIRED_ROUTES.map(|route| (route, allowed_roles)).into(),
        };
        Self {
            sql: BTreeMap::from([("external".into(), sql)]),
            http: BTreeMap::from([("external".into(), http)]),
        }
    }
}

impl HttpWithRoles {
    fn normalize(self, name: &str) -> Result<HttpListener> {
        require_routes(name, &self.routes)?;
        Ok(HttpListener {
            addr: self.addr,
            authenticator_kind: self.authenticator_kind,
            enable_tls: self.enable_tls,
            routes: self
                .routes
                .into_iter()
                .filter(|(_, enabled)| *enabled)
                .map(|(route, _)| (route, self.allowed_roles))
                .collect(),
        })
    }
}

impl HttpWithGroups {
    fn normalize(self, name: &str) -> Result<HttpListener> {
        require_routes(name, &self.routes)?;
        let mut routes = BTreeMap::new();
        for (route, group) in self.routes {
            match (group.enabled, group.allowed_roles) {
                (true, Some(roles)) => {
                    routes.insert(route, roles);
                }
                (false, None) => {}
                (true, None) => {
                    bail!("http.{name}.routes: {route:?} is enabled without allowed_roles")
                }
                (false, Some(_)) => {
                    bail!("http.{name}.routes: {route:?} is disabled, yet has allowed_roles")
                }
            }
        }
        Ok(HttpListener {
            addr: self.addr,
            authenticator_kind: self.authenticator_kind,
            enable_tls: self.enable_tls,
            routes,
        })
    }
}

fn require_routes<T>(name: &str, given: &BTreeMap<Route, T>) -> Result<()> {
    match REQUIRED_ROUTES
        .iter()
        .find(|route| !given.contains_key(route))
    {
        None => Ok(()),
        Some(missing) => bail!("http.{name}.routes says nothing of {missing:?}"),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// What the operator writes for `None` in the schema `0.147.0`.
    fn old() -> Value {
        let sql = |port: u16, roles| json!({ "addr": format!("0.0.0.0:{port}"), "authenticator_kind": "None", "allowed_roles": roles, "enable_tls": false });
        let http = |port: u16, roles, internal: bool| {
            json!({
                "addr": format!("0.0.0.0:{port}"), "authenticator_kind": "None", "allowed_roles": roles, "enable_tls": false,
                "routes": {
                    "base": true, "webhook": true, "internal": internal, "metrics": internal, "profiling": internal,
                    "mcp_agent": true, "mcp_developer": true, "console_config": !internal,
                },
            })
        };
        json!({
            "sql": { "external": sql(6875, "Normal"), "internal": sql(6877, "NormalAndInternal") },
            "http": { "external": http(6876, "Normal", false), "internal": http(6878, "NormalAndInternal", true) },
        })
    }

    /// The same in the schema `26.32.0`.
    fn new() -> Value {
        let mut file = old();
        file["version"] = json!("26.32.0");
        for listener in file["http"].as_object_mut().unwrap().values_mut() {
            let listener = listener.as_object_mut().unwrap();
            let roles = listener.remove("allowed_roles").unwrap();
            for group in listener["routes"].as_object_mut().unwrap().values_mut() {
                *group = match group.as_bool() {
                    Some(true) => json!({ "enabled": true, "allowed_roles": roles }),
                    _ => json!({ "enabled": false }),
                };
            }
        }
        file
    }

    fn parse(file: &Value) -> Result<Listeners> {
        Listeners::parse(&file.to_string(), true)
    }

    #[test]
    fn both_schemas_say_the_same() {
        let listeners = parse(&old()).unwrap();
        assert_eq!(listeners, parse(&new()).unwrap());
        let mut named = old();
        named["version"] = json!("0.147.0");
        assert_eq!(listeners, parse(&named).unwrap());
        let internal = AllowedRoles::NormalAndInternal;
        assert_eq!(
            listeners.http["internal"].routes.get(&Route::Internal),
            Some(&internal)
        );
        assert_eq!(
            listeners.http["external"].routes.get(&Route::Internal),
            None
        );
        assert_eq!(listeners.sql["external"].addr.port(), 6875);
    }

    #[test]
    fn an_older_image_refuses_the_newer_schema() {
        let error = Listeners::parse(&new().to_string(), false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("26.32.0"), "{error}");
    }

    #[rstest]
    #[case("/http/external/routes/teleport", json!(true), "teleport")]
    #[case("/http/external/authenticator_kind", json!("Sasl"), "http.external.authenticator_kind")]
    #[case("/http/external/authenticator_kind", json!("Magic"), "Magic")]
    #[case("/sql/external/addr", json!("6875"), "socket address")]
    #[case("/sql/external/allowed_roles", json!("All"), "All")]
    #[case("/sql/external/color", json!("red"), "color")]
    #[case("/color", json!("red"), "color")]
    #[case("/version", json!("27.0.0"), "27.0.0")]
    fn names_what_is_wrong(#[case] path: &str, #[case] value: Value, #[case] named: &str) {
        let mut file = old();
        let (parent, key) = path.rsplit_once('/').unwrap();
        file.pointer_mut(parent).unwrap()[key] = value;
        let error = format!("{:#}", parse(&file).unwrap_err());
        assert!(error.contains(named), "{error}");
    }

    #[rstest]
    #[case(json!({ "enabled": true }), "without allowed_roles")]
    #[case(json!({ "enabled": false, "allowed_roles": "Normal" }), "is disabled")]
    #[case(json!(true), "invalid type")]
    fn a_group_is_whole(#[case] group: Value, #[case] named: &str) {
        let mut file = new();
        file["http"]["external"]["routes"]["base"] = group;
        let error = format!("{:#}", parse(&file).unwrap_err());
        assert!(error.contains(named), "{error}");
    }

    #[test]
    fn every_required_group_is_spoken_about() {
        let mut file = old();
        file["http"]["internal"]["routes"]
            .as_object_mut()
            .unwrap()
            .remove("internal");
        let error = parse(&file).unwrap_err().to_string();
        assert!(
            error.contains("http.internal.routes") && error.contains("Internal"),
            "{error}"
        );
    }
}
