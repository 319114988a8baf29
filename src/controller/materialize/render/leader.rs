//! Where the operator reaches environmentd's leader API.

use serde::Serialize;

use super::Environment;
use crate::api::console::HttpScheme;
use crate::controller::rendering::Generation;
use crate::controller::rendering::names::service_fqdn;

/// Address of one generation's leader API, and who may use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaderEndpoint {
    /// Scheme of the port.
    pub scheme: HttpScheme,
    /// Name of the generation's Service.
    pub service: String,
    /// Namespace of the Service.
    pub namespace: String,
    /// Port of the Service.
    pub port: u16,
    /// Secret whose key [`LOGIN_PASSWORD_KEY`] lets `mz_system` in; none if nobody needs to log in.
    pub login_secret_name: Option<String>,
}

/// Key of the backend Secret with the password of `mz_system`.
pub const LOGIN_PASSWORD_KEY: &str = "external_login_password_mz_system";

impl LeaderEndpoint {
    /// The URL of a path below the address; the path starts with `/`.
    pub fn url(&self, path: &str) -> String {
        let scheme = self.scheme.as_str();
        let host = service_fqdn(&self.service, &self.namespace);
        format!("{scheme}://{host}:{}{path}", self.port)
    }
}

pub(super) fn render(environment: &Environment<'_>, generation: Generation) -> LeaderEndpoint {
    let options = environment.inputs.environment;
    let password = environment.has_password_login();
    let tls = password && environment.internal_certificate().has_issuer();
    LeaderEndpoint {
        scheme: if tls {
            HttpScheme::Https
        } else {
            HttpScheme::Http
        },
        service: environment.owner.resource_id.environmentd(generation),
        namespace: environment.owner.namespace.clone(),
        port: if password {
            options.environmentd_http_port
        } else {
            options.environmentd_internal_http_port
        },
        login_secret_name: password.then(|| environment.spec.backend_secret_name.clone()),
    }
}
