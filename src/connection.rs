//! Which cluster this process works on, and in which namespace it lives.

use std::path::Path;
use std::time::Duration;

use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::cli::Args;

/// Where Kubernetes mounts the namespace of a pod's service account.
const SERVICE_ACCOUNT_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Server-side bound of every watch: the longest that kube allows, because each is opened again by
/// every replica, whether it leads or not.
pub const WATCH_TIMEOUT: Duration = Duration::from_secs(294);

/// The API server sends a bookmark every minute or two to a watch that shows nothing else, so an
/// open connection that is silent for longer is broken. A peer that is gone is noticed sooner.
const READ_TIMEOUT: Duration = Duration::from_secs(200);

/// The cluster, as this process reaches it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// How clients are built.
    pub config: Config,
    /// Namespace of the operator: of its own pod, where it is one.
    pub namespace: String,
    /// Namespace of the Lease.
    pub lease_namespace: String,
    /// Whether this process is a pod of that cluster.
    pub in_cluster: bool,
}

/// Why there is no cluster to work on.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The kubeconfig or the context in it is missing or unreadable.
    #[error(
        "cannot use the kubeconfig ($KUBECONFIG or ~/.kube/config) with --kubernetes-context {context}: {source}"
    )]
    Kubeconfig {
        /// The context asked for.
        context: String,
        /// What is wrong with it.
        source: kube::config::KubeconfigError,
    },
    /// The service account of this pod is not usable.
    #[error("cannot use this pod's service account (is automountServiceAccountToken off?): {0}")]
    InCluster(#[from] kube::config::InClusterError),
    /// Nothing says in which namespace the Lease is.
    #[error(
        "no namespace to be found for the Lease: give --leader-election-namespace, or set a namespace in the kubeconfig context {context}"
    )]
    NoNamespace {
        /// The context asked for.
        context: String,
    },
}

impl Connection {
    /// Uses the pod's service account where there is one, else the kubeconfig.
    ///
    /// # Errors
    /// [`ConnectionError`], one line that names the flag and the way out.
    pub async fn open(args: &Args) -> Result<Self, ConnectionError> {
        let in_cluster = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
            && Path::new(SERVICE_ACCOUNT_NAMESPACE).exists();
        let (mut config, account, context) = if in_cluster {
            let config = Config::incluster()?;
            let namespace = config.default_namespace.clone();
            (config, Some(namespace), None)
        } else {
            let (config, namespace) = from_kubeconfig(&args.process.kubernetes_context).await?;
            (config, None, namespace)
        };
        config.connect_timeout = Some(Duration::from_secs(5));
        config.read_timeout = Some(READ_TIMEOUT);
        let flag = args.election.leader_election_namespace.clone();
        let (namespace, lease_namespace) =
            namespaces(flag, account, context).ok_or_else(|| ConnectionError::NoNamespace {
                context: args.process.kubernetes_context.clone(),
            })?;
        Ok(Self {
            config,
            namespace,
            lease_namespace,
            in_cluster,
        })
    }
}

/// The operator's namespace and the Lease's, of what the flag, the service account and the
/// kubeconfig's context name. The flag speaks of the Lease alone, unless nothing else is known.
fn namespaces(
    flag: Option<String>,
    account: Option<String>,
    context: Option<String>,
) -> Option<(String, String)> {
    let own = account.or(context).or_else(|| flag.clone())?;
    let of_lease = flag.unwrap_or_else(|| own.clone());
    Some((own, of_lease))
}

/// The configuration of a context, and the namespace that it names, if it does.
async fn from_kubeconfig(context: &str) -> Result<(Config, Option<String>), ConnectionError> {
    let failed = |source| ConnectionError::Kubeconfig {
        context: context.to_owned(),
        source,
    };
    let kubeconfig = Kubeconfig::read().map_err(failed)?;
    let namespace = kubeconfig
        .contexts
        .iter()
        .find(|named| named.name == context)
        .and_then(|named| named.context.as_ref()?.namespace.clone());
    let options = KubeConfigOptions {
        context: Some(context.to_owned()),
        ..KubeConfigOptions::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .map_err(failed)?;
    Ok((config, namespace))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::all(Some("flag"), Some("account"), Some("context"), Some(("account", "flag")))]
    #[case::no_flag(None, Some("account"), Some("context"), Some(("account", "account")))]
    #[case::a_context(None, None, Some("context"), Some(("context", "context")))]
    #[case::flag_and_context(Some("flag"), None, Some("context"), Some(("context", "flag")))]
    #[case::a_flag(Some("flag"), None, None, Some(("flag", "flag")))]
    #[case::nothing(None, None, None, None)]
    fn the_namespace_is_the_flags_else_the_accounts_else_the_contexts(
        #[case] flag: Option<&str>,
        #[case] account: Option<&str>,
        #[case] context: Option<&str>,
        #[case] expected: Option<(&str, &str)>,
    ) {
        let [flag, account, context] = [flag, account, context].map(|name| name.map(str::to_owned));
        let chosen = namespaces(flag, account, context);
        let chosen = chosen.as_ref().map(|(own, lease)| (&**own, &**lease));
        assert_eq!(chosen, expected);
    }
}
