use kube::runtime::watcher::Event;
use serde_json::json;

use super::*;

fn owned_by(api_version: &str, kind: &str) -> Service {
    let owner = json!({"apiVersion": api_version, "kind": kind, "name": "env", "uid": "1"});
    serde_json::from_value(json!({
        "metadata": {"name": "mzabc-environmentd", "namespace": "ns", "ownerReferences": [owner]}
    }))
    .unwrap()
}

fn triggers_of(object: &Service) -> Vec<Trigger> {
    let (sender, mut receiver) = broadcast::channel(8);
    send_for_owners(&sender, object);
    std::iter::from_fn(|| receiver.try_recv().ok()).collect()
}

#[test]
fn an_owned_object_triggers_its_owner_of_any_version_of_our_group() {
    for version in ["materialize.cloud/v1alpha1", "materialize.cloud/v1"] {
        let triggers = triggers_of(&owned_by(version, "Materialize"));
        let (store, _writer) = reflector::store::<Materialize>();
        let objects: Vec<_> = triggers
            .iter()
            .flat_map(|trigger| trigger.objects(&store))
            .collect();
        assert_eq!(objects, [ObjectRef::<Materialize>::new("env").within("ns")]);
    }
}

#[test]
fn foreign_owners_are_nobodys_business() {
    assert_eq!(triggers_of(&owned_by("apps/v1", "Materialize")), []);
    let balancer = triggers_of(&owned_by("materialize.cloud/v1alpha1", "Balancer"));
    let (store, _writer) = reflector::store::<Materialize>();
    assert!(
        balancer
            .iter()
            .all(|trigger| trigger.objects(&store).is_empty())
    );
}

#[test]
fn a_new_list_triggers_everything_in_the_store() {
    let (store, mut writer) = reflector::store::<Console>();
    let mut console = Console::new("env", crate::api::console::ConsoleSpec::default());
    console.metadata.namespace = Some("ns".to_owned());
    writer.apply_watcher_event(&Event::Init);
    writer.apply_watcher_event(&Event::InitApply(console));
    writer.apply_watcher_event(&Event::InitDone);
    let trigger = Trigger::All {
        kind: "Console".to_owned(),
    };
    assert_eq!(
        trigger.objects(&store),
        [ObjectRef::new("env").within("ns")]
    );
}
