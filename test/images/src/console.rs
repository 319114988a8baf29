//! The stand-in for the console: one page that says so.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail};
use axum::Router;
use axum::http::header;
use axum::response::Html;
use axum::routing::get;
use axum_server::tls_rustls::RustlsConfig;
use serde::Deserialize;
use tracing::info;

use crate::environmentd::AuthenticatorKind;
use crate::flags::{non_empty, require_file, url, variables};
use crate::http::{bind, serve};
use crate::process::{LogFormat, log, run};

/// Where the operator mounts the page's configuration.
const APP_CONFIG: &str = "/usr/share/nginx/html/app-config/app-config.json";

/// Runs the stand-in as a process.
pub fn main() -> ExitCode {
    run("console", async {
        if let Some(argument) = std::env::args().nth(1) {
            bail!("unexpected argument '{argument}' found");
        }
        let environment = Environment::read(variables()?)?;
        let text =
            std::fs::read_to_string(APP_CONFIG).with_context(|| format!("reading {APP_CONFIG}"))?;
        let config = AppConfig::parse(&text).with_context(|| APP_CONFIG.to_owned())?;
        log(LogFormat::Json);
        info!(
            "console (stand-in) {} in front of {}",
            config.version, environment.endpoint
        );
        let addr = SocketAddr::from(([0, 0, 0, 0], environment.listener.port));
        let tls = environment.listener.tls().await?;
        serve(bind("http", addr)?, router(&config, text), tls).await
    })
}

/// What the environment says.
#[derive(Debug, PartialEq, Eq)]
struct Environment {
    endpoint: String,
    listener: Listener,
}

/// The few nginx directives that the operator writes.
#[derive(Debug, PartialEq, Eq)]
struct Listener {
    port: u16,
    certificate: Option<(PathBuf, PathBuf)>,
}

impl Environment {
    fn read(variables: impl IntoIterator<Item = (String, String)>) -> Result<Self> {
        let mut variables: BTreeMap<_, _> = variables
            .into_iter()
            .filter(|(name, _)| name.starts_with("MZ_") && name != "MZ_STANDIN_VERSION")
            .collect();
        let mut take = |name: &str| {
            variables
                .remove(name)
                .ok_or_else(|| anyhow!("the environment lacks {name}"))
        };
        let endpoint = url(&take("MZ_ENDPOINT")?).map_err(|err| anyhow!("MZ_ENDPOINT {err}"))?;
        let listener = Listener::parse(&take("MZ_NGINX_LISTENER_CONFIG")?)
            .context("MZ_NGINX_LISTENER_CONFIG")?;
        match variables.keys().next() {
            Some(name) => bail!("unknown environment variable {name}"),
            None => Ok(Self { endpoint, listener }),
        }
    }
}

impl Listener {
    fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let directives = text
            .strip_suffix(';')
            .ok_or_else(|| anyhow!("a directive must end with ;"))?;
        let (mut port, mut ssl, mut certificate, mut key) = (None, false, None, None);
        for directive in directives.split(';') {
            match directive.split_whitespace().collect::<Vec<_>>().as_slice() {
                ["listen", number] => port = Some(number.parse::<u16>().context("listen")?),
                ["listen", number, "ssl"] => {
                    port = Some(number.parse::<u16>().context("listen")?);
                    ssl = true;
                }
                ["ssl_certificate", path] => certificate = Some(PathBuf::from(path)),
                ["ssl_certificate_key", path] => key = Some(PathBuf::from(path)),
                _ => bail!("unknown directive {:?}", directive.trim()),
            }
        }
        let port = port.ok_or_else(|| anyhow!("there is no listen directive"))?;
        match (ssl, certificate, key) {
            (false, None, None) => Ok(Self {
                port,
                certificate: None,
            }),
            (true, Some(certificate), Some(key)) => Ok(Self {
                port,
                certificate: Some((certificate, key)),
            }),
            _ => bail!("listen … ssl, ssl_certificate and ssl_certificate_key belong together"),
        }
    }

    async fn tls(&self) -> Result<Option<RustlsConfig>> {
        let Some((certificate, key)) = &self.certificate else {
            return Ok(None);
        };
        require_file("ssl_certificate", certificate)?;
        require_file("ssl_certificate_key", key)?;
        let config = RustlsConfig::from_pem_file(certificate, key).await;
        Ok(Some(
            config.context("ssl_certificate and ssl_certificate_key")?,
        ))
    }
}

/// The page's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AppConfig {
    version: String,
    auth: Auth,
    #[serde(default, rename = "balancerd_dns_names")]
    _balancerd_dns_names: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Auth {
    mode: AuthenticatorKind,
}

impl AppConfig {
    fn parse(text: &str) -> Result<Self> {
        let config: Self = serde_json::from_str(text)?;
        non_empty(&config.version).map_err(|err| anyhow!("version {err}"))?;
        Ok(config)
    }
}

fn router(config: &AppConfig, text: String) -> Router {
    let page = format!(
        "<!doctype html>\n<title>console (stand-in)</title>\n\
         <p>This is a stand-in for the Materialize console {}, authentication {:?}.</p>\n",
        config.version, config.auth.mode,
    );
    let config = ([(header::CONTENT_TYPE, "application/json")], text);
    Router::new()
        .route("/", get(|| async { Html(page) }))
        .route("/app-config/app-config.json", get(|| async { config }))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn read(extra: &[(&str, &str)]) -> Result<Environment> {
        let base = [
            (
                "MZ_ENDPOINT",
                "http://mz1-balancerd.ns.svc.cluster.local:6876",
            ),
            ("PATH", "/bin"),
        ];
        Environment::read(
            base.iter()
                .chain(extra)
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
        )
    }

    #[test]
    fn plain_and_tls_listeners() {
        let plain = read(&[("MZ_NGINX_LISTENER_CONFIG", "listen 8080;")]).unwrap();
        assert_eq!(
            plain.listener,
            Listener {
                port: 8080,
                certificate: None
            }
        );
        let lines = "listen 8080 ssl;\nssl_certificate /nginx/tls/tls.crt;\nssl_certificate_key /nginx/tls/tls.key;";
        let tls = read(&[("MZ_NGINX_LISTENER_CONFIG", lines)]).unwrap();
        assert_eq!(
            tls.listener.certificate,
            Some(("/nginx/tls/tls.crt".into(), "/nginx/tls/tls.key".into()))
        );
    }

    #[rstest]
    #[case(&[], "lacks MZ_NGINX_LISTENER_CONFIG")]
    #[case(&[("MZ_NGINX_LISTENER_CONFIG", "listen 8080")], "end with ;")]
    #[case(&[("MZ_NGINX_LISTENER_CONFIG", "listen 8080 ssl;")], "belong together")]
    #[case(&[("MZ_NGINX_LISTENER_CONFIG", "gzip on;")], "gzip on")]
    #[case(&[("MZ_NGINX_LISTENER_CONFIG", "listen 8080;"), ("MZ_OTHER", "1")], "MZ_OTHER")]
    #[case(&[("MZ_NGINX_LISTENER_CONFIG", "listen 8080;"), ("MZ_ENDPOINT", "balancerd")], "MZ_ENDPOINT must be a URL")]
    fn names_what_is_wrong(#[case] extra: &[(&str, &str)], #[case] named: &str) {
        let error = format!("{:#}", read(extra).unwrap_err());
        assert!(error.contains(named), "{error}");
    }

    #[rstest]
    #[case(r#"{"version":"v26.40.0","auth":{"mode":"None"}}"#, true)]
    #[case(
        r#"{"version":"v26.40.0","auth":{"mode":"Sasl"},"balancerd_dns_names":["a.b"]}"#,
        true
    )]
    #[case(r#"{"version":"v26.40.0","auth":{}}"#, false)]
    #[case(r#"{"version":"","auth":{"mode":"None"}}"#, false)]
    #[case(r#"{"auth":{"mode":"None"}}"#, false)]
    #[case(r#"{"version":"v26.40.0","auth":{"mode":"none"}}"#, false)]
    fn app_configs(#[case] text: &str, #[case] good: bool) {
        assert_eq!(AppConfig::parse(text).is_ok(), good);
    }

    #[tokio::test]
    async fn serves_a_page_that_names_itself_a_stand_in() {
        let text = r#"{"version":"v26.40.0","auth":{"mode":"None"}}"#;
        let socket = bind("http", SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let url = format!("http://{}/", socket.local_addr().unwrap());
        let server = tokio::spawn(serve(
            socket,
            router(&AppConfig::parse(text).unwrap(), text.into()),
            None,
        ));
        let page = reqwest::get(&url)
            .await
            .unwrap()
            .error_for_status()
            .unwrap()
            .text()
            .await
            .unwrap();
        assert!(
            page.contains("stand-in") && page.contains("v26.40.0"),
            "{page}"
        );
        server.abort();
    }
}
