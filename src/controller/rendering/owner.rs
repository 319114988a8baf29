//! Metadata that ties children to their resource.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource;

use super::{RenderError, ResourceId};

/// Label: name of the resource.
pub const ORGANIZATION_NAME: &str = "materialize.cloud/organization-name";
/// Label: namespace of the resource.
pub const ORGANIZATION_NAMESPACE: &str = "materialize.cloud/organization-namespace";
/// Label: id of the resource; owned objects are watched by it.
pub const RESOURCE_ID: &str = "materialize.cloud/mz-resource-id";
/// Label: component of an environment.
pub const APP: &str = "materialize.cloud/app";
/// Label: workload that pods belong to; Services and workloads select by it.
pub const NAME: &str = "materialize.cloud/name";

/// Kubernetes allows no longer label values.
pub const MAX_LABEL_LENGTH: usize = 63;

/// Labels by name.
pub type Labels = BTreeMap<String, String>;

/// A component of an environment, and the name it goes by in labels and images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Materialize's own")]
pub enum Component {
    Environmentd,
    Balancerd,
    Console,
}

impl Component {
    /// The name as it stands in labels and images.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Environmentd => "environmentd",
            Self::Balancerd => "balancerd",
            Self::Console => "console",
        }
    }
}

/// The resource whose children are rendered.
#[derive(Clone, Debug)]
pub struct Owner {
    kind: String,
    api_version: String,
    /// Name of the resource.
    pub name: String,
    /// Namespace of the resource and its children.
    pub namespace: String,
    uid: String,
    /// Prefix of the children's names.
    pub resource_id: ResourceId,
}

impl Owner {
    /// Reads what children need to know of a resource.
    ///
    /// # Errors
    /// If the resource was not read from an API server, or its name does not fit in a label.
    pub fn of<K>(object: &K, resource_id: &ResourceId) -> Result<Self, RenderError>
    where
        K: Resource<DynamicType = ()>,
    {
        let metadata = object.meta();
        let required = |value: &Option<String>, field| {
            value.clone().ok_or_else(|| RenderError::MissingMetadata {
                kind: K::kind(&()).into_owned(),
                field,
            })
        };
        let owner = Self {
            kind: K::kind(&()).into_owned(),
            api_version: K::api_version(&()).into_owned(),
            name: required(&metadata.name, "name")?,
            namespace: required(&metadata.namespace, "namespace")?,
            uid: required(&metadata.uid, "uid")?,
            resource_id: resource_id.clone(),
        };
        if owner.name.len() > MAX_LABEL_LENGTH {
            return Err(RenderError::NameTooLong {
                kind: owner.kind,
                name: owner.name,
            });
        }
        Ok(owner)
    }

    /// The labels that say which resource an object belongs to.
    pub fn identity(&self) -> Labels {
        labels([
            (ORGANIZATION_NAME, self.name.as_str()),
            (ORGANIZATION_NAMESPACE, &self.namespace),
            (RESOURCE_ID, &self.resource_id.0),
        ])
    }

    /// [`Self::identity`] and the component: what network policies select pods by.
    pub fn identity_of(&self, component: Component) -> Labels {
        let mut all = self.identity();
        all.insert(APP.to_owned(), component.as_str().to_owned());
        all
    }

    /// The labels that a component's pods are selected by; a Deployment can never change them.
    pub fn selector(&self, component: Component, workload: &str) -> Labels {
        let mut all = self.identity_of(component);
        all.extend(labels([(NAME, workload), ("app", component.as_str())]));
        all
    }

    /// The labels of a component's pods: the user's may override the common ones, but not those selected by.
    pub fn pod_labels(
        &self,
        component: Component,
        user: Option<&Labels>,
        selector: Labels,
    ) -> Labels {
        let mut all = self.identity_of(component);
        all.extend(labels([
            ("app", component.as_str()),
            ("app.kubernetes.io/name", component.as_str()),
        ]));
        all.extend(user.cloned().unwrap_or_default());
        all.extend(selector);
        all
    }

    /// Metadata of a child.
    pub fn child(&self, name: String, component: Component) -> ObjectMeta {
        let mut all = self.identity();
        all.extend(labels([
            ("app.kubernetes.io/managed-by", "materialize-operator"),
            ("app.kubernetes.io/name", component.as_str()),
            ("app.kubernetes.io/part-of", "materialize"),
        ]));
        if component != Component::Environmentd {
            all.insert(APP.to_owned(), component.as_str().to_owned());
        }
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.namespace.clone()),
            labels: Some(all),
            owner_references: Some(vec![self.reference()]),
            ..ObjectMeta::default()
        }
    }

    fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            block_owner_deletion: Some(true),
            controller: None,
        }
    }
}

/// A map of labels or annotations.
pub fn labels<const N: usize>(pairs: [(&str, &str); N]) -> Labels {
    pairs
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
