//! Kubeconfig files, written as JSON, which is YAML too.

use k8s_openapi::ByteString;
use serde_json::json;

use crate::pki::Credential;

/// A kubeconfig that needs no other file.
pub(crate) fn render(server: &str, authority: &str, user: &str, credential: &Credential) -> String {
    let encoded = |pem: &str| json!(ByteString(pem.as_bytes().to_vec()));
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": "mzcompose",
            "cluster": {"server": server, "certificate-authority-data": encoded(authority)},
        }],
        "users": [{
            "name": user,
            "user": {
                "client-certificate-data": encoded(&credential.certificate),
                "client-key-data": encoded(&credential.key),
            },
        }],
        "contexts": [{"name": "mzcompose", "context": {"cluster": "mzcompose", "user": user}}],
        "current-context": "mzcompose",
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;

    use super::*;

    #[test]
    fn a_client_reads_server_user_and_authority() {
        let credential = Credential {
            certificate: "cert".into(),
            key: "key".into(),
        };
        let config = Kubeconfig::from_yaml(&render("https://h:1", "ca", "u", &credential)).unwrap();
        let cluster = config.clusters[0].cluster.clone().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://h:1"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Y2E="));
        let auth = config.auth_infos[0].auth_info.clone().unwrap();
        assert_eq!(auth.client_certificate_data.as_deref(), Some("Y2VydA=="));
        assert_eq!(config.current_context.as_deref(), Some("mzcompose"));
        assert_eq!(
            config.contexts[0].context.clone().unwrap().user.as_deref(),
            Some("u")
        );
    }
}
