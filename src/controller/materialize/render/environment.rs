//! environmentd's environment variables.
//!
//! Secrets come through variables that name a Secret; all else goes into arguments, so that
//! an image that does not know an option fails loudly.

use k8s_openapi::api::core::v1::EnvVar;

use super::leader::LOGIN_PASSWORD_KEY;
use super::{Environment, volumes};
use crate::controller::rendering::pod::{env, secret_env};

pub(super) fn render(environment: &Environment<'_>) -> Vec<EnvVar> {
    let spec = environment.spec;
    let secret = &spec.backend_secret_name;
    let mut variables = vec![
        secret_env("MZ_METADATA_BACKEND_URL", secret, "metadata_backend_url"),
        secret_env("MZ_PERSIST_BLOB_URL", secret, "persist_backend_url"),
        env("AWS_REGION", &environment.inputs.environment.region),
    ];
    variables.extend(spec.environmentd_extra_env.clone().unwrap_or_default());
    if volumes::has_license_key(environment) {
        variables.push(env("MZ_LICENSE_KEY", volumes::LICENSE_KEY_PATH));
    }
    if environment.has_password_login() {
        variables.push(secret_env(
            "MZ_EXTERNAL_LOGIN_PASSWORD_MZ_SYSTEM",
            secret,
            LOGIN_PASSWORD_KEY,
        ));
    }
    variables
}
