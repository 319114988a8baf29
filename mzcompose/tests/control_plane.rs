//! The light control plane, by what its users rely on.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use mzcompose::control_plane::{ControlPlane, Options};
use mzcompose::process::{marked, wait_until};
use mzcompose::tools::{Module, Tools};
use serde_json::json;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(60);
/// Far longer than an API server takes to answer, if it does.
const SILENCE: Duration = Duration::from_secs(3);

fn config_maps(client: Client) -> Api<ConfigMap> {
    Api::namespaced(client, "default")
}

async fn create(client: Client, name: &str) -> kube::Result<ConfigMap> {
    let metadata = ObjectMeta {
        name: Some(name.into()),
        ..ObjectMeta::default()
    };
    let object = ConfigMap {
        metadata,
        ..ConfigMap::default()
    };
    config_maps(client)
        .create(&PostParams::default(), &object)
        .await
}

async fn client_for(kubeconfig: &Path) -> Result<Client> {
    let options = KubeConfigOptions::default();
    let config =
        Config::from_custom_kubeconfig(Kubeconfig::read_from(kubeconfig)?, &options).await?;
    Ok(Client::try_from(config)?)
}

#[tokio::test]
async fn a_crash_of_the_api_server_loses_nothing_and_a_freeze_ends() {
    let control_plane = ControlPlane::private().await.unwrap();
    let client = control_plane.access().client().await.unwrap();
    create(client.clone(), "kept").await.unwrap();

    control_plane.stop_api_server().await.unwrap();
    assert!(create(client.clone(), "lost").await.is_err());
    assert!(control_plane.pause().is_err(), "there is nothing to freeze");
    control_plane.start_api_server().await.unwrap();
    config_maps(client.clone()).get("kept").await.unwrap();

    control_plane.pause().unwrap();
    timeout(SILENCE, config_maps(client.clone()).get("kept"))
        .await
        .unwrap_err();
    control_plane.resume().unwrap();
    timeout(LIMIT, config_maps(client).get("kept"))
        .await
        .unwrap()
        .unwrap();
    control_plane.stop().await.unwrap();
}

#[tokio::test]
async fn a_user_has_only_the_rights_of_its_name_and_group() {
    let dir = tempfile::tempdir().unwrap();
    let audit_log = dir.path().join("audit.log");
    let options = Options {
        audit_log: Some(audit_log.clone()),
        ..Options::default()
    };
    let tools = Tools::locate(&[Module::Kubernetes]).unwrap();
    let control_plane = ControlPlane::start(&tools, &options).await.unwrap();
    let kubeconfig = control_plane
        .access()
        .kubeconfig_for("jane", Some("writers"))
        .unwrap();
    let jane = client_for(&kubeconfig).await.unwrap();

    let denied = create(jane.clone(), "by-jane")
        .await
        .unwrap_err()
        .to_string();
    assert!(denied.contains(r#"User "jane" cannot create"#), "{denied}");
    let bindings = Api::<ClusterRoleBinding>::all(control_plane.access().client().await.unwrap());
    let binding = serde_json::from_value(json!({
        "metadata": {"name": "writers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "writers"}],
    }));
    bindings
        .create(&PostParams::default(), &binding.unwrap())
        .await
        .unwrap();
    wait_until("the rights to count", LIMIT, &[], async || {
        Ok(create(jane.clone(), "by-jane").await.is_ok())
    })
    .await
    .unwrap();

    let log = fs::read_to_string(audit_log).unwrap();
    let entries = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let outcomes: Vec<_> = entries
        .filter(|entry| entry["user"]["username"] == "jane" && entry["verb"] == "create")
        .map(|entry| entry["responseStatus"]["code"].as_u64().unwrap())
        .collect();
    assert_eq!(
        (outcomes.first(), outcomes.last()),
        (Some(&403), Some(&201))
    );
}

#[tokio::test]
async fn several_start_at_once_and_leave_nothing() {
    let started = try_join_all((0..3).map(|_| ControlPlane::private()))
        .await
        .unwrap();
    let mut dirs = vec![];
    for control_plane in &started {
        // The same name can only be created in each if they are not one.
        create(control_plane.access().client().await.unwrap(), "same-name")
            .await
            .unwrap();
        let dir = control_plane.kubeconfig().parent().unwrap().to_owned();
        assert_eq!(
            marked(&dir).unwrap().len(),
            3,
            "etcd, API server and controller manager"
        );
        dirs.push(dir);
    }
    drop(started);
    for dir in dirs {
        assert_eq!(marked(&dir).unwrap().len(), 0);
        assert!(!dir.exists());
    }
}
