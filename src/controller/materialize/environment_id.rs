//! The licence key, and the identity of the environment that comes from it.

use kube::{Api, ResourceExt};
use uuid::Uuid;

use super::environment::{self, Environment};
use super::error::{Error, Stop};
use super::{license, render::gates};
use crate::api::materialize::v1alpha1::Materialize;
use crate::controller::outcome::Outcome;
use crate::image::ImageRef;

/// Key of the backend Secret with the licence key.
const LICENSE_KEY: &str = "license_key";

/// Checks the licence key and the environment id; fills in what the spec leaves open, which ends
/// the pass: the write brings the next one.
pub async fn resolve(environment: &Environment<'_>) -> Result<(), Stop> {
    let license = license(environment).await?;
    let spec = environment.spec();
    if spec.request_rollout.is_nil() || spec.environment_id.is_nil() {
        fill_in(environment, license).await?;
        return Err(Stop::Early(Outcome::Done));
    }
    check(environment, license)?;
    Ok(())
}

/// The environment that the licence key is for; `None` for any.
async fn license(environment: &Environment<'_>) -> Result<Option<Uuid>, Error> {
    let value = environment.secret_value(LICENSE_KEY).await?;
    let text = String::from_utf8(value.unwrap_or_default())
        .map_err(|_| Error::LicenseKeyNotText(environment.secret()))?;
    if !text.trim().is_empty() {
        return Ok(license::environment_id(text.trim())?);
    }
    let image = &environment.spec().environmentd_image_ref;
    if ImageRef::parse(image).meets_minimum(gates::LICENSE_KEY_MANDATORY) {
        return Err(Error::NoLicenseKey {
            secret: environment.secret(),
            image: image.clone(),
        });
    }
    Ok(None)
}

async fn fill_in(environment: &Environment<'_>, license: Option<Uuid>) -> Result<(), Error> {
    let mut wanted = environment.materialize.clone();
    let spec = &mut wanted.spec;
    if spec.request_rollout.is_nil() {
        spec.request_rollout = Uuid::new_v4();
    }
    if spec.environment_id.is_nil() {
        spec.environment_id = license.unwrap_or_else(Uuid::new_v4);
    }
    let api: Api<Materialize> = environment.pass.api(&environment.namespace());
    api.replace(
        &wanted.name_any(),
        &environment::replace_parameters(),
        &wanted,
    )
    .await
    .map(drop)
    .map_err(|source| Error::WriteSpec {
        object: environment.object(),
        source: source.into(),
    })
}

fn check(environment: &Environment<'_>, license: Option<Uuid>) -> Result<(), Error> {
    let actual = environment.spec().environment_id;
    if let Some(licensed) = license.filter(|licensed| *licensed != actual) {
        return Err(Error::OtherEnvironment { licensed, actual });
    }
    let uid = environment.materialize.uid();
    let same = |other: &Materialize| other.spec.environment_id == actual && other.uid() != uid;
    match environment.context.caches.materializes.find(same) {
        Some(other) => Err(Error::SameEnvironment {
            object: environment.object(),
            other: environment::object(&other),
            environment_id: actual,
        }),
        None => Ok(()),
    }
}
