//! Where one candidate's replicas meet: a namespace and a Lease of their own on the API server that all share.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::Client;
use kube::api::{Api, PostParams};
use mzcompose::control_plane::Access;
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use uuid::Uuid;

use super::audit::{AuditLog, Mark};
use super::candidate::{Candidate, Part};
use super::replica::{Replica, free_port};
use super::sightings::Sightings;

/// How many replicas there can be at once.
pub const PLACES: usize = 5;
/// How long a Lease may stay without a leader: the longest duration is 30 s, and a standby may look as late.
pub const LEADER_LIMIT: Duration = Duration::from_secs(90);
/// How long a replica may take to end.
pub const END_LIMIT: Duration = Duration::from_secs(30);
/// How long a standby may take to campaign.
const CAMPAIGN_LIMIT: Duration = Duration::from_secs(60);
/// The group that all replicas' users are in.
const GROUP: &str = "mzcompose:bench";

/// Where a replica runs: what tells its requests from the other's.
#[derive(Debug, Clone)]
struct Place {
    user: String,
    kubeconfig: PathBuf,
}

/// What one candidate is measured in.
pub struct Arena<'a> {
    /// Who is measured.
    pub candidate: Candidate,
    /// What the API server has been asked for.
    pub audit: &'a AuditLog,
    /// The administrator's way in.
    pub client: &'a Client,
    /// What the Lease looks like from outside.
    pub sightings: Sightings,
    /// Where the Lease is.
    pub namespace: String,
    places: Vec<Place>,
    replicas: u32,
}

/// A replica that leads and one that stands by.
pub struct Pair {
    /// The one that leads.
    pub leader: Replica,
    /// The one that campaigns.
    pub standby: Replica,
    /// Where the leader runs; the standby has the other place of the first two.
    pub leader_place: usize,
}

/// Lets every replica do anything.
pub async fn grant(client: &Client) -> Result<()> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": GROUP},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": GROUP}],
    });
    create::<ClusterRoleBinding>(Api::all(client.clone()), binding).await
}

/// Makes a namespace.
pub async fn create_namespace(client: &Client, name: &str) -> Result<()> {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    create::<Namespace>(Api::all(client.clone()), namespace).await
}

async fn create<K>(api: Api<K>, object: Value) -> Result<()>
where
    K: Clone + std::fmt::Debug + serde::Serialize + DeserializeOwned,
{
    let typed =
        serde_json::from_value(object).context("an object of the benchmark is malformed")?;
    api.create(&PostParams::default(), &typed).await?;
    Ok(())
}

/// Writes a kubeconfig for a user who may do anything.
pub fn kubeconfig_for(access: &Access, user: &str) -> Result<PathBuf> {
    access.kubeconfig_for(user, Some(GROUP))
}

impl<'a> Arena<'a> {
    /// Makes the namespace and the users.
    pub async fn open(
        candidate: Candidate,
        access: &Access,
        client: &'a Client,
        audit: &'a AuditLog,
    ) -> Result<Self> {
        let namespace = format!("bench-{}", candidate.name.as_str());
        create_namespace(client, &namespace).await?;
        let mut places = vec![];
        for number in 0..PLACES {
            let user = format!("{namespace}-{number}");
            let kubeconfig = kubeconfig_for(access, &user)?;
            places.push(Place { user, kubeconfig });
        }
        Ok(Self {
            sightings: Sightings::start(client, &namespace, candidate.lease()),
            candidate,
            audit,
            client,
            namespace,
            places,
            replicas: 0,
        })
    }

    /// Starts a new replica in a place; as in a cluster, none has the name of an earlier one.
    pub fn start(&mut self, place: usize) -> Result<Replica> {
        self.replicas += 1;
        let identity = format!("{}-{}", self.candidate.name.as_str(), self.replicas);
        self.start_as(place, &identity, &Uuid::new_v4().to_string())
    }

    /// Starts a replica that takes itself for an earlier one.
    pub fn start_as(&self, place: usize, identity: &str, pod_uid: &str) -> Result<Replica> {
        let part = Part {
            kubeconfig: &self.place(place)?.kubeconfig,
            namespace: &self.namespace,
            identity,
            pod_uid,
            metrics_port: free_port()?,
        };
        Replica::start(&self.candidate, &part)
    }

    /// Starts a replica and waits until it campaigns.
    pub async fn start_standby(&mut self, place: usize) -> Result<Replica> {
        let mark = self.audit.mark()?;
        let replica = self.start(place)?;
        self.wait_campaigns(mark, place).await?;
        Ok(replica)
    }

    async fn wait_campaigns(&self, mark: Mark, place: usize) -> Result<()> {
        let verb = self.candidate.campaigns_by();
        let user = self.user(place)?;
        self.audit
            .wait_lease_request(mark, user, verb, CAMPAIGN_LIMIT)
            .await
    }

    /// The user as whom a place's replica asks.
    pub fn user(&self, place: usize) -> Result<&str> {
        Ok(&self.place(place)?.user)
    }

    fn place(&self, place: usize) -> Result<&Place> {
        self.places
            .get(place)
            .with_context(|| format!("there is no place {place}"))
    }

    /// Starts two replicas, one after the other, so that it is known who leads.
    pub async fn pair(&mut self) -> Result<Pair> {
        let leader = self.start(0)?;
        leader.leads(LEADER_LIMIT).await?;
        let standby = self.start_standby(1).await?;
        Ok(Pair {
            leader,
            standby,
            leader_place: 0,
        })
    }

    /// Waits for a random part of the candidate's period, for a signal may come at any moment of it.
    pub async fn pause(&self) {
        let name = self.candidate.name;
        let part = rand::random_range(0.0..1.0);
        tokio::time::sleep(name.settles_in() + name.period().mul_f64(part)).await;
    }

    /// After the leader has got a signal and the standby leads: the standby becomes the leader, and a new replica
    /// takes the free place.
    pub async fn relieve(&mut self, pair: Pair) -> Result<Pair> {
        let Pair {
            leader,
            standby,
            leader_place,
        } = pair;
        leader.ended(END_LIMIT).await?;
        let fresh = self.start_standby(leader_place).await?;
        Ok(Pair {
            leader: standby,
            standby: fresh,
            leader_place: other(leader_place),
        })
    }
}

impl Pair {
    /// Where the standby runs.
    pub fn standby_place(&self) -> usize {
        other(self.leader_place)
    }

    /// Fails unless exactly the leader leads.
    pub fn check(&self) -> Result<()> {
        let (leader, standby) = (self.leader.leads_now(), self.standby.leads_now());
        if !leader || standby {
            bail!("before the signal: leader leads: {leader}, standby leads: {standby}");
        }
        Ok(())
    }

    /// Ends both, the leader last, so that the Lease is left free.
    pub async fn end(self) -> Result<()> {
        for replica in [self.standby, self.leader] {
            replica.signal(Signal::TERM)?;
            replica.ended(END_LIMIT).await?;
        }
        Ok(())
    }
}

fn other(place: usize) -> usize {
    1 - place.min(1)
}
