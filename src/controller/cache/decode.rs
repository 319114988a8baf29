//! From objects as they are stored to those that we know, one by one: an object that cannot be
//! read, say after a downgrade of the operator, must not keep all others from memory. Pure.

use std::fmt::Debug;

use kube::Resource;
use kube::ResourceExt;
use kube::api::DynamicObject;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::Event;
use serde::de::DeserializeOwned;
use tracing::warn;

/// What an event of a watch means for `store`. An object that cannot be read counts as gone:
/// nothing is done about it, by an old idea of it least of all.
pub fn event<K>(event: Event<DynamicObject>, store: &Store<K>) -> Option<Event<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + 'static,
{
    match event {
        Event::Init => Some(Event::Init),
        Event::InitDone => Some(Event::InitDone),
        Event::InitApply(stored) => read(stored).map(Event::InitApply),
        Event::Apply(stored) => {
            let reference = reference(&stored);
            read(stored)
                .map(Event::Apply)
                .or_else(|| gone(&reference, store))
        }
        Event::Delete(stored) => gone(&reference(&stored), store),
    }
}

fn gone<K>(reference: &ObjectRef<K>, store: &Store<K>) -> Option<Event<K>>
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let known = store.get(reference)?;
    Some(Event::Delete(known.as_ref().clone()))
}

fn reference<K>(stored: &DynamicObject) -> ObjectRef<K>
where
    K: Resource<DynamicType = ()> + 'static,
{
    ObjectRef::new(&stored.name_any()).within(&stored.namespace().unwrap_or_default())
}

/// Why an object cannot be used.
#[derive(Debug, PartialEq, Eq)]
struct Unreadable {
    object: String,
    field: String,
    error: String,
}

/// The object, or one warning that names what is wrong with it.
fn read<K>(stored: DynamicObject) -> Option<K>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let warn = |Unreadable {
                    object,
                    field,
                    error,
                }: &Unreadable| {
        warn!(
            object,
            field, error, "cannot be read; nothing is done about it until that field is corrected"
        );
    };
    try_read(stored).inspect_err(warn).ok()
}

fn try_read<K>(stored: DynamicObject) -> Result<K, Unreadable>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let (namespace, name) = (stored.namespace().unwrap_or_default(), stored.name_any());
    let object = format!("{} {namespace}/{name}", K::kind(&()));
    let unreadable = |field: String, error: String| Unreadable {
        object,
        field,
        error,
    };
    let json = match serde_json::to_value(stored) {
        Ok(json) => json,
        Err(error) => return Err(unreadable(".".to_owned(), error.to_string())),
    };
    serde_path_to_error::deserialize(json)
        .map_err(|error| unreadable(error.path().to_string(), error.inner().to_string()))
}

#[cfg(test)]
mod tests {
    use kube::runtime::reflector;
    use kube::runtime::reflector::store::Writer;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::materialize::v1alpha1::Materialize;

    fn stored(name: &str, strategy: Value) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "materialize.cloud/v1alpha1",
            "kind": "Materialize",
            "metadata": { "name": name, "namespace": "ns", "resourceVersion": "7" },
            "spec": {
                "environmentdImageRef": "materialize/environmentd:v26.40.0",
                "backendSecretName": "backend",
                "rolloutStrategy": strategy,
            },
        }))
        .unwrap()
    }

    fn good(name: &str) -> DynamicObject {
        stored(name, json!("ManuallyPromote"))
    }

    fn bad(name: &str) -> DynamicObject {
        stored(name, json!("Someday"))
    }

    /// The names in the store after these events.
    fn after(events: impl IntoIterator<Item = Event<DynamicObject>>) -> Vec<String> {
        let (store, mut writer): (Store<Materialize>, Writer<Materialize>) = reflector::store();
        for stored in events {
            if let Some(event) = event(stored, &store) {
                writer.apply_watcher_event(&event);
            }
        }
        let mut names: Vec<_> = store.state().iter().map(|known| known.name_any()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_list_with_a_bad_object_gives_all_others() {
        let names = after([
            Event::Init,
            Event::InitApply(good("a")),
            Event::InitApply(bad("b")),
            Event::InitApply(stored("c", json!(7))),
            Event::InitApply(good("d")),
            Event::InitDone,
        ]);
        assert_eq!(names, ["a", "d"]);
    }

    #[test]
    fn an_object_is_known_from_its_correction_to_its_next_fault() {
        let listed = [Event::Init, Event::InitApply(bad("b")), Event::InitDone];
        let corrected = || listed.clone().into_iter().chain([Event::Apply(good("b"))]);
        assert_eq!(after(listed.clone()), [""; 0]);
        assert_eq!(after(corrected()), ["b"]);
        let broken = corrected().chain([Event::Apply(bad("b"))]);
        assert_eq!(after(broken), [""; 0]);
        let deleted = corrected().chain([Event::Delete(good("b"))]);
        assert_eq!(after(deleted), [""; 0]);
        let deleted_bad = corrected().chain([Event::Delete(bad("b"))]);
        assert_eq!(after(deleted_bad), [""; 0]);
    }

    #[test]
    fn the_warning_names_the_object_and_the_field() {
        let unreadable = try_read::<Materialize>(bad("b")).unwrap_err();
        assert_eq!(unreadable.object, "Materialize ns/b");
        assert_eq!(unreadable.field, "spec.rolloutStrategy");
        assert!(
            unreadable.error.contains("unknown variant"),
            "{unreadable:?}"
        );
    }
}
