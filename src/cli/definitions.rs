//! Flags that shape the custom resource definitions, and the command that prints them.

use std::fs;
use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};
use http::Uri;
use k8s_openapi::List;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition,
};
use rustls::pki_types::ServerName;

use super::UsageError;
use super::parse::{json, non_empty};
use super::validate::usage;
use crate::api::registration::{self, Conversion, ConversionClient};
use crate::webhook::CaBundle;

/// The custom resource definitions, and how the API server reaches the conversion webhook.
#[derive(Args, Clone, Debug)]
pub struct DefinitionsArgs {
    /// Serve Materialize v1 and the conversion webhook next to v1alpha1
    #[arg(long)]
    pub install_v1_crd: bool,
    /// Service through which the API server reaches the webhook
    #[arg(long, value_parser = non_empty)]
    pub webhook_service_name: Option<String>,
    /// Namespace of that Service
    #[arg(long, value_parser = non_empty)]
    pub webhook_service_namespace: Option<String>,
    /// Port of that Service
    #[arg(long, default_value_t = 8001)]
    pub webhook_service_port: u16,
    /// URL of the webhook's /convert for an operator outside the cluster, instead of a Service (ours)
    #[arg(long, value_parser = non_empty)]
    pub webhook_url: Option<String>,
    /// CA that signed the webhook's certificate, as the API server must know it
    #[arg(long, default_value = "/etc/tls/ca.crt")]
    pub tls_ca: PathBuf,
    /// JSON array of CRD columns that stand before the built-in ones of Materialize
    #[arg(long, hide = true, value_name = "JSON", value_parser = json::<Columns>)]
    pub additional_crd_columns: Option<Columns>,
}

/// Columns in the JSON form of a custom resource definition.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(transparent)]
pub struct Columns(pub Vec<CustomResourceColumnDefinition>);

impl DefinitionsArgs {
    /// The definitions, with v1 if `ca` is known, which is what signed the webhook's certificate.
    pub fn crds(&self, ca: Option<CaBundle>) -> Vec<CustomResourceDefinition> {
        let conversion = ca.map(|ca| Conversion::new(self.client(), ca));
        let columns = self.additional_crd_columns.as_ref();
        let columns = columns.map(|columns| columns.0.as_slice());
        registration::crds(conversion.as_ref(), columns.unwrap_or_default())
    }

    /// The name by which the API server knows the webhook, if there is one.
    pub fn webhook_name(&self) -> Option<ServerName<'static>> {
        let host = match &self.webhook_url {
            Some(url) => url.parse::<Uri>().ok()?.host()?.to_owned(),
            None => format!(
                "{}.{}.svc",
                self.webhook_service_name.as_ref()?,
                self.webhook_service_namespace.as_ref()?
            ),
        };
        let host = host.trim_matches(['[', ']']).to_owned();
        ServerName::try_from(host)
            .ok()
            .filter(|_| self.install_v1_crd)
    }

    fn client(&self) -> ConversionClient {
        match &self.webhook_url {
            Some(url) => ConversionClient::Url(url.clone()),
            None => ConversionClient::Service {
                name: self.webhook_service_name.clone().unwrap_or_default(),
                namespace: self.webhook_service_namespace.clone().unwrap_or_default(),
                port: self.webhook_service_port,
            },
        }
    }

    pub(super) fn validate(&self) -> Result<(), UsageError> {
        if !self.install_v1_crd {
            return Ok(());
        }
        let service = (&self.webhook_service_name, &self.webhook_service_namespace);
        match (&self.webhook_url, service) {
            (None, (Some(_), Some(_))) if self.webhook_name().is_some() => Ok(()),
            (None, (Some(_), Some(_))) => usage(
                "--webhook-service-name and --webhook-service-namespace must be names of a Service and a namespace",
            ),
            (Some(url), (None, None))
                if url.starts_with("https://") && self.webhook_name().is_some() =>
            {
                Ok(())
            }
            (Some(url), (None, None)) if url.starts_with("https://") => {
                usage("--webhook-url must name a host")
            }
            (Some(_), (None, None)) => usage("--webhook-url must start with https://"),
            (Some(_), _) => usage(
                "--webhook-url excludes --webhook-service-name and -namespace: give one or the other",
            ),
            (None, (None, _)) => usage(
                "--install-v1-crd needs --webhook-service-name (or --webhook-url outside a cluster)",
            ),
            (None, (_, None)) => usage("--install-v1-crd needs --webhook-service-namespace"),
        }
    }
}

/// Prints the custom resource definitions that an operator with these flags registers at its start,
/// for whoever applies them before it does.
#[derive(Parser, Clone, Debug)]
#[command(name = "orchestratord crds", term_width = 100)]
pub struct CrdsArgs {
    /// As documents of YAML, or as one JSON List
    #[arg(long, value_enum, default_value_t = Format::Yaml)]
    format: Format,
    #[command(flatten)]
    definitions: DefinitionsArgs,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Format {
    Yaml,
    Json,
}

impl CrdsArgs {
    /// The definitions as text.
    ///
    /// # Errors
    /// [`UsageError`] for a forbidden combination of flags or a CA that can't be used.
    pub fn text(&self) -> Result<String, UsageError> {
        self.definitions.validate()?;
        let ca = self.definitions.install_v1_crd.then(|| self.ca());
        let crds = self.definitions.crds(ca.transpose()?);
        let text = match self.format {
            Format::Yaml => serde_saphyr::to_string_multiple(&crds).map_err(|e| e.to_string()),
            Format::Json => {
                let list = List {
                    items: crds,
                    ..List::default()
                };
                serde_json::to_string_pretty(&list)
                    .map(|text| text + "\n")
                    .map_err(|e| e.to_string())
            }
        };
        text.map_err(|error| UsageError(format!("cannot write the definitions: {error}")))
    }

    fn ca(&self) -> Result<CaBundle, UsageError> {
        let path = &self.definitions.tls_ca;
        fs::read(path)
            .map_err(|error| error.to_string())
            .and_then(|pem| CaBundle::parse(&pem))
            .map_err(|error| {
                UsageError(format!(
                    "--install-v1-crd needs the CA: --tls-ca {}: {error}",
                    path.display()
                ))
            })
    }
}
