//! Every flag and environment variable, validated before anything starts.
//!
//! Names, defaults and environment variables are upstream's; what is ours alone says so.

mod definitions;
mod election;
mod environment;
mod logging;
mod parse;
mod process;
mod validate;

pub use definitions::{Columns, CrdsArgs, DefinitionsArgs};
pub use election::ElectionArgs;
pub use environment::{
    AwsArgs, CloudProvider, ClusterSizeArgs, ComponentArgs, DefaultCertificateSpecs,
    EnvironmentArgs, ImagePullPolicy, NetworkPolicyArgs,
};
pub use logging::{LogFormat, LoggingArgs};
pub use parse::KeyValue;
pub use process::{NodeUpgradeArgs, ProcessArgs, WebhookArgs};

use std::ffi::OsString;

use clap::Parser;
use clap::error::ErrorKind;

/// A Kubernetes operator for Materialize environments.
#[derive(Parser, Clone, Debug)]
#[command(
    name = "orchestratord",
    version,
    term_width = 100,
    after_help = "`orchestratord crds` prints the custom resource definitions: see `orchestratord crds --help`"
)]
pub struct Args {
    /// Servers and Kubernetes context.
    #[command(flatten)]
    pub process: ProcessArgs,
    /// The custom resource definitions.
    #[command(flatten)]
    pub definitions: DefinitionsArgs,
    /// The conversion webhook.
    #[command(flatten)]
    pub webhook: WebhookArgs,
    /// The Lease.
    #[command(flatten)]
    pub election: ElectionArgs,
    /// Everything that shapes an environment.
    #[command(flatten)]
    pub environment: EnvironmentArgs,
    /// The GCP node-upgrade watcher.
    #[command(flatten)]
    pub node_upgrade: NodeUpgradeArgs,
    /// Logging, tracing and error reporting.
    #[command(flatten)]
    pub logging: LoggingArgs,
}

/// What is wrong with the command line, as one line that names the flag and the way out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub(crate) String);

/// What a command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// Run the operator.
    Run(Box<Args>),
    /// Print this text (help, version or definitions) and exit.
    Print(String),
}

/// Reads and validates a command line, the program's name first.
///
/// # Errors
/// [`UsageError`] for an unknown flag, an unreadable value or a forbidden combination.
pub fn parse<I, T>(arguments: I) -> Result<Invocation, UsageError>
where
    I: IntoIterator<Item = T>,
    T: Into<OsString>,
{
    let mut arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    if arguments.get(1).is_some_and(|first| first == "crds") {
        arguments.remove(0);
        return match parse_as::<CrdsArgs>(arguments)? {
            Ok(args) => args.text().map(Invocation::Print),
            Err(text) => Ok(Invocation::Print(text)),
        };
    }
    match parse_as::<Args>(arguments)? {
        Ok(args) => {
            args.validate()?;
            Ok(Invocation::Run(Box::new(args)))
        }
        Err(text) => Ok(Invocation::Print(text)),
    }
}

/// The arguments, or the text that they ask for instead.
fn parse_as<A: Parser>(arguments: Vec<OsString>) -> Result<Result<A, String>, UsageError> {
    match A::try_parse_from(arguments) {
        Ok(args) => Ok(Ok(args)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
            ) =>
        {
            Ok(Err(error.render().to_string()))
        }
        Err(error) => Err(UsageError(one_line(&error))),
    }
}

/// clap explains over several lines; only what is wrong and its hint are kept.
fn one_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let told: Vec<&str> = text
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more information"))
        .filter(|line| !line.is_empty())
        .collect();
    let told = told.join(" ");
    format!(
        "{} (see --help)",
        told.strip_prefix("error: ").unwrap_or(&told)
    )
}

#[cfg(test)]
mod tests;
