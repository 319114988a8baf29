//! `status`: what runs.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use mzcompose::client::connect;
use mzcompose::cluster;
use serde::Serialize;

use crate::cli::Name;
use crate::environment;
use crate::kubernetes::{lease_holder, ready_operator_pods};
use crate::output::say;

/// A cluster that is half up may never answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Status {
    clusters: Vec<ClusterStatus>,
}

#[derive(Serialize)]
struct ClusterStatus {
    #[serde(flatten)]
    machines: cluster::Status,
    operator: Option<OperatorStatus>,
}

#[derive(Serialize)]
struct OperatorStatus {
    ready_pods: Vec<String>,
    leader: Option<String>,
    /// Type, status and reason of the environment's first condition.
    environment: Option<[String; 3]>,
}

/// Prints the state of each cluster of this machine.
pub async fn status(json: bool) -> Result<()> {
    let mut clusters = Vec::new();
    for name in Name::ALL {
        let machines = cluster::status(&name.instance()?)?;
        let operator = if machines.exists {
            operator(&machines.kubeconfig).await.ok()
        } else {
            None
        };
        clusters.push(ClusterStatus { machines, operator });
    }
    if json {
        return say(serde_json::to_string_pretty(&Status { clusters })?);
    }
    let clusters: Vec<_> = clusters.iter().map(ToString::to_string).collect();
    say(clusters.concat().trim_end())
}

async fn operator(kubeconfig: &Path) -> Result<OperatorStatus> {
    let look = async {
        let client = connect(kubeconfig).await?;
        Ok(OperatorStatus {
            ready_pods: ready_operator_pods(&client).await?,
            leader: lease_holder(&client).await?,
            environment: environment::rollout(&client)
                .await
                .ok()
                .map(|rollout| rollout.condition),
        })
    };
    tokio::time::timeout(ANSWER_LIMIT, look)
        .await
        .context("no answer in time")?
}

impl std::fmt::Display for ClusterStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.machines)?;
        let Some(operator) = &self.operator else {
            return Ok(());
        };
        let leader = operator.leader.as_deref().unwrap_or("nobody");
        writeln!(
            f,
            "  operator: ready {}; leader {leader}",
            operator.ready_pods.join(", ")
        )?;
        match &operator.environment {
            Some([kind, status, reason]) => {
                writeln!(f, "  environment: {kind}={status} ({reason})")
            }
            None => writeln!(f, "  environment: none"),
        }
    }
}
