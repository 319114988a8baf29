//! `leader-failover`: the leader is deleted, replaced and robbed of its Lease, and nobody notices.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use mzcompose::progress::Progress;
use serde_json::json;
use uuid::Uuid;

use super::case::{Case, Watchers};
use super::report::{Failure, Run, StepResult};
use super::steps::STEPS;
use crate::environment::{self, Version};
use crate::install::Installation;
use crate::kubernetes::{
    LEASE, OPERATOR, OPERATOR_NAMESPACE, eventually, lease_holder, lease_transitions, leases,
    materializes, operator_metrics, operator_pods, parse_gauge, ready_operator_pods,
    restart_counts,
};

const LIST_LIMIT: Duration = Duration::from_secs(120);
const COMPANIONS_LIMIT: Duration = Duration::from_secs(300);
const REPLICAS_LIMIT: Duration = Duration::from_secs(120);
const LEADER_LIMIT: Duration = Duration::from_secs(120);
const GAUGE_LIMIT: Duration = Duration::from_secs(60);
const WEBHOOK_LIMIT: Duration = Duration::from_secs(60);
/// A leader that goes in good order leaves the Lease free for at most this.
const VACANCY_LIMIT: Duration = Duration::from_secs(1);
const FOREIGN_HOLDER: &str = "not-a-real-candidate";
const NONCE: &str = "LEADER_FAILOVER_TEST_NONCE";

/// Runs the workflow once on the cluster of `installation`; `digest` is that of the operator's image.
pub async fn run(installation: &Installation, digest: &str, progress: &Progress) -> Run {
    let mut recorder = Recorder {
        progress,
        run: Run::default(),
    };
    let scenario = Scenario {
        installation,
        client: &installation.client,
        digest,
    };
    match scenario.play(&mut recorder).await {
        Ok(()) => recorder.run.passed = true,
        Err(error) => {
            // What goes wrong between two steps is a failure too.
            let failure = || Failure {
                expected: "all steps pass, and no conversion fails",
                found: format!("{error:#}"),
            };
            recorder.run.failure.get_or_insert_with(failure);
        }
    }
    recorder.run
}

/// Takes the steps one after the other and keeps their outcomes.
struct Recorder<'a> {
    progress: &'a Progress,
    run: Run,
}

impl Recorder<'_> {
    /// Takes step `number` by doing `work`.
    async fn take<T>(&mut self, number: usize, work: impl Future<Output = Result<T>>) -> Result<T> {
        let step = number
            .checked_sub(1)
            .and_then(|index| STEPS.get(index))
            .with_context(|| format!("there is no step {number}"))?;
        let shown = self
            .progress
            .step(format!("{number:>2}/{} {}", STEPS.len(), step.title));
        let started = Instant::now();
        let outcome = work.await;
        let seconds = started.elapsed().as_secs_f64();
        self.run.steps.push(StepResult {
            number,
            title: step.title,
            passed: outcome.is_ok(),
            seconds,
        });
        match &outcome {
            Ok(_) => shown.done(),
            Err(error) => {
                self.run.failure = Some(Failure {
                    expected: step.expected,
                    found: format!("{error:#}"),
                })
            }
        }
        outcome
    }
}

/// What the steps are taken with.
struct Scenario<'a> {
    installation: &'a Installation,
    client: &'a Client,
    digest: &'a str,
}

impl Scenario<'_> {
    async fn play(&self, recorder: &mut Recorder<'_>) -> Result<()> {
        let replicas = recorder.take(1, self.default_replicas()).await?;
        recorder.take(2, self.fresh_environment()).await?;
        recorder.take(3, self.listed(LIST_LIMIT)).await?;
        recorder.take(4, self.companions_run()).await?;
        recorder.take(5, self.budget_exists()).await?;
        recorder.take(6, self.all_ready(replicas)).await?;
        let leader = recorder.take(7, self.leader(|_| true)).await?;
        recorder.take(8, self.one_gauge_is_set()).await?;
        let mut watchers = Watchers::start(self.client);
        self.holder_is_deleted(recorder, &mut watchers, &leader)
            .await?;
        self.deployment_is_restarted(recorder, &mut watchers)
            .await?;
        self.lease_is_stolen(recorder, &mut watchers).await
    }

    async fn holder_is_deleted(
        &self,
        recorder: &mut Recorder<'_>,
        watchers: &mut Watchers,
        old: &str,
    ) -> Result<()> {
        let mut case = Case::begin(1, "the holder's pod is deleted", watchers).await?;
        recorder.take(9, self.delete_pod(old)).await?;
        let new_leader = async {
            let leader = self.leader(|holder| holder != old).await?;
            within_vacancy_limit(case.taken_over(&leader, None, watchers).await?)
        };
        recorder.take(10, new_leader).await?;
        let converts = async {
            self.listed(WEBHOOK_LIMIT).await?;
            case.all_converted(watchers).await
        };
        recorder.take(11, converts).await?;
        recorder.take(12, self.new_rollout()).await?;
        self.conclude(recorder, &case, watchers).await
    }

    async fn deployment_is_restarted(
        &self,
        recorder: &mut Recorder<'_>,
        watchers: &mut Watchers,
    ) -> Result<()> {
        let mut case = Case::begin(2, "the Deployment is restarted", watchers).await?;
        recorder.take(13, self.installation.restart()).await?;
        let new_leader = async {
            let leader = self.leader(|_| true).await?;
            within_vacancy_limit(case.taken_over(&leader, None, watchers).await?)?;
            let transitions = lease_transitions(self.client).await? - case.transitions();
            ensure!(transitions == 1, "{transitions} transitions");
            Ok(())
        };
        recorder.take(14, new_leader).await?;
        let converts = async {
            self.listed(WEBHOOK_LIMIT).await?;
            self.new_rollout().await?;
            case.all_converted(watchers).await
        };
        recorder.take(15, converts).await?;
        self.conclude(recorder, &case, watchers).await
    }

    async fn lease_is_stolen(
        &self,
        recorder: &mut Recorder<'_>,
        watchers: &mut Watchers,
    ) -> Result<()> {
        let begin = async {
            let counts = restart_counts(&operator_pods(self.client).await?);
            Ok((
                counts,
                Case::begin(3, "a foreign holder is written into the Lease", watchers).await?,
            ))
        };
        let (counts, mut case) = recorder.take(16, begin).await?;
        recorder.take(17, self.write_foreign_holder()).await?;
        let takeover = async {
            let leader = self.leader(|holder| holder != FOREIGN_HOLDER).await?;
            case.taken_over(&leader, Some(FOREIGN_HOLDER), watchers)
                .await?;
            let (before, now) = (case.transitions(), lease_transitions(self.client).await?);
            ensure!(now > before, "leaseTransitions was {before} and is {now}");
            Ok(())
        };
        recorder.take(18, takeover).await?;
        let converts = async {
            self.listed(WEBHOOK_LIMIT).await?;
            case.all_converted(watchers).await
        };
        recorder.take(19, converts).await?;
        recorder.take(20, self.one_gauge_is_set()).await?;
        recorder.take(21, self.new_rollout()).await?;
        let same_counts = async {
            let now = restart_counts(&operator_pods(self.client).await?);
            ensure!(now == counts, "restarts were {counts:?} and are {now:?}");
            Ok(())
        };
        recorder.take(22, same_counts).await?;
        self.conclude(recorder, &case, watchers).await
    }

    async fn conclude(
        &self,
        recorder: &mut Recorder<'_>,
        case: &Case,
        watchers: &mut Watchers,
    ) -> Result<()> {
        let result = case.result(watchers).await?;
        recorder.progress.note(&format!("      {result}"));
        let failed = result.conversions.failed;
        recorder.run.cases.push(result);
        ensure!(failed == 0, "{failed} conversions failed");
        Ok(())
    }

    async fn default_replicas(&self) -> Result<usize> {
        let replicas = self.installation.default_replicas().await?;
        ensure!(replicas >= 2, "{replicas}");
        Ok(replicas)
    }

    /// The environment's namespace goes while an operator is there to convert, then the operator goes, then both come anew.
    async fn fresh_environment(&self) -> Result<()> {
        if environment::exists(self.client).await? {
            self.installation.ensure(self.digest).await?;
            environment::delete(self.client).await?;
        }
        self.installation.uninstall().await?;
        self.installation.ensure(self.digest).await?;
        environment::apply_first(self.client, Version::V1).await?;
        environment::completed(self.client).await.map(drop)
    }

    async fn listed(&self, limit: Duration) -> Result<()> {
        let list = || async {
            let items = materializes(self.client, Version::V1.name())
                .list(&ListParams::default())
                .await?
                .items;
            ensure!(!items.is_empty(), "no items");
            Ok(())
        };
        eventually(limit, list).await
    }

    async fn companions_run(&self) -> Result<()> {
        let run = || async {
            environment::running(self.client, "materialize.cloud/app=balancerd", 1).await?;
            environment::running(self.client, "materialize.cloud/app=console", 1).await
        };
        eventually(COMPANIONS_LIMIT, run).await
    }

    async fn budget_exists(&self) -> Result<()> {
        let budgets =
            Api::<PodDisruptionBudget>::namespaced(self.client.clone(), OPERATOR_NAMESPACE);
        budgets
            .get(OPERATOR)
            .await
            .map(drop)
            .context("getting the PodDisruptionBudget")
    }

    async fn all_ready(&self, replicas: usize) -> Result<()> {
        let count = || async {
            let ready = ready_operator_pods(self.client).await?;
            ensure!(ready.len() == replicas, "ready pods: {ready:?}");
            Ok(())
        };
        eventually(REPLICAS_LIMIT, count).await
    }

    /// Waits until a ready pod that is `wanted` holds the Lease; returns its name.
    async fn leader(&self, wanted: impl Fn(&str) -> bool) -> Result<String> {
        let wanted = &wanted;
        let look = || async move {
            let holder = lease_holder(self.client).await?;
            let ready = ready_operator_pods(self.client).await?;
            let leads = holder
                .clone()
                .filter(|holder| wanted(holder) && ready.contains(holder));
            leads.ok_or_else(|| anyhow!("holder {holder:?}, ready pods {ready:?}"))
        };
        eventually(LEADER_LIMIT, look).await
    }

    async fn one_gauge_is_set(&self) -> Result<()> {
        let compare = || async {
            let mut leading = Vec::new();
            for pod in ready_operator_pods(self.client).await? {
                let metrics = operator_metrics(self.client, &pod).await?;
                let gauge = parse_gauge(&metrics, "orchestratord_is_leader");
                match gauge
                    .with_context(|| format!("pod {pod} shows no orchestratord_is_leader"))?
                {
                    0.0 => {}
                    1.0 => leading.push(pod),
                    other => {
                        return Err(anyhow!("orchestratord_is_leader is {other} on pod {pod}"));
                    }
                }
            }
            let holder = lease_holder(self.client).await?;
            ensure!(
                leading.iter().eq(holder.iter()),
                "gauge set on {leading:?}, Lease held by {holder:?}"
            );
            Ok(())
        };
        eventually(GAUGE_LIMIT, compare).await
    }

    async fn delete_pod(&self, name: &str) -> Result<()> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), OPERATOR_NAMESPACE);
        pods.delete(name, &DeleteParams::default())
            .await
            .map(drop)
            .with_context(|| format!("deleting pod {name}"))
    }

    /// Changes environmentd's environment, which must lead to a rollout of its own.
    async fn new_rollout(&self) -> Result<()> {
        let before = environment::rollout(self.client).await?.requested;
        environment::apply(
            self.client,
            Version::V1,
            Some((NONCE, &Uuid::new_v4().to_string())),
        )
        .await?;
        let completed = environment::completed(self.client).await?;
        ensure!(
            completed != before,
            "the change at v1 requested no new rollout: requestRollout is still {before}"
        );
        Ok(())
    }

    async fn write_foreign_holder(&self) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": {"holderIdentity": FOREIGN_HOLDER}}));
        leases(self.client)
            .patch(LEASE, &PatchParams::default(), &patch)
            .await
            .map(drop)
            .context("patching the Lease")
    }
}

fn within_vacancy_limit(vacancy: Duration) -> Result<()> {
    ensure!(
        vacancy <= VACANCY_LIMIT,
        "the Lease had no holder for {} ms",
        vacancy.as_millis()
    );
    Ok(())
}
