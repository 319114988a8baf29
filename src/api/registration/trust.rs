//! Which CAs the API server trusts the conversion webhook by.
//!
//! Replicas learn of a new CA one after the other, so a new one is trusted beside the old until all
//! have had the time.

use kube::api::{Patch, PatchParams};
use kube::{Api, Client, CustomResourceExt, ResourceExt};
use serde_json::json;
use std::borrow::Cow;

use k8s_openapi::ByteString;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, WebhookClientConfig,
};

use super::{RegistrationError, failed};
use crate::api::FIELD_MANAGER;
use crate::api::materialize::v1alpha1;
use crate::webhook::CaBundle;

/// Trusts `ca` beside what is trusted already.
///
/// # Errors
/// The definition cannot be read or changed; somebody may have changed it meanwhile.
pub async fn trust(client: &Client, ca: &CaBundle) -> Result<(), RegistrationError> {
    change(client, |trusted| ca.and_still_valid(trusted)).await
}

/// Trusts `ca` alone.
///
/// # Errors
/// Those of [`trust`].
pub async fn trust_only(client: &Client, ca: &CaBundle) -> Result<(), RegistrationError> {
    change(client, |_| ca.clone()).await
}

async fn change(
    client: &Client,
    trusted: impl FnOnce(&[u8]) -> CaBundle,
) -> Result<(), RegistrationError> {
    let api = Api::all(client.clone());
    let name = v1alpha1::Materialize::crd_name();
    let existing = api.get(name).await;
    let existing = existing.map_err(|source| failed("read", name, source))?;
    match bundle(&existing) {
        Some(bundle) => write(&api, &existing, &trusted(bundle)).await,
        None => Ok(()),
    }
}

/// Trusts, in a definition that is left as it is, the CA of the one that is wanted.
pub(super) async fn keep_up(
    api: &Api<CustomResourceDefinition>,
    wanted: &CustomResourceDefinition,
    existing: &CustomResourceDefinition,
) -> Result<(), RegistrationError> {
    match (bundle(existing), own(wanted)) {
        (Some(trusted), Some(ca)) => write(api, existing, &ca.and_still_valid(trusted)).await,
        _ => Ok(()),
    }
}

/// The definition that is wanted, trusting beside its CA those that the existing one trusts. If it
/// exists, it is only applied to what was read.
pub(super) fn beside_others<'a>(
    wanted: &'a CustomResourceDefinition,
    existing: Option<&CustomResourceDefinition>,
) -> Cow<'a, CustomResourceDefinition> {
    let Some(existing) = existing else {
        return Cow::Borrowed(wanted);
    };
    let mut crd = wanted.clone();
    crd.metadata.resource_version = existing.resource_version();
    if let (Some(ca), Some(trusted)) = (own(wanted), bundle(existing))
        && let Some(config) = config_mut(&mut crd)
    {
        let both = ca.and_still_valid(trusted);
        config.ca_bundle = Some(ByteString(both.as_bytes().to_vec()));
    }
    Cow::Owned(crd)
}

async fn write(
    api: &Api<CustomResourceDefinition>,
    existing: &CustomResourceDefinition,
    ca: &CaBundle,
) -> Result<(), RegistrationError> {
    if bundle(existing) == Some(ca.as_bytes()) {
        return Ok(());
    }
    let name = existing.name_any();
    let patch = json!({
        "metadata": {"resourceVersion": existing.resource_version()},
        "spec": {"conversion": {"webhook": {"clientConfig": {
            "caBundle": ByteString(ca.as_bytes().to_vec()),
        }}}},
    });
    let params = PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    };
    let patched = api.patch(&name, &params, &Patch::Merge(patch)).await;
    patched.map_err(|source| failed("change the CA of", &name, source))?;
    tracing::info!(name, "the API server trusts another set of CAs");
    Ok(())
}

fn own(crd: &CustomResourceDefinition) -> Option<CaBundle> {
    CaBundle::parse(bundle(crd)?).ok()
}

fn bundle(crd: &CustomResourceDefinition) -> Option<&[u8]> {
    let webhook = crd.spec.conversion.as_ref()?.webhook.as_ref()?;
    let bundle = webhook.client_config.as_ref()?.ca_bundle.as_ref()?;
    Some(&bundle.0)
}

fn config_mut(crd: &mut CustomResourceDefinition) -> Option<&mut WebhookClientConfig> {
    let webhook = crd.spec.conversion.as_mut()?.webhook.as_mut()?;
    webhook.client_config.as_mut()
}
