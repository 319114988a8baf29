//! Log lines to standard output: text for people or JSON for programs.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::cli::{LogFormat, LoggingArgs};

/// Text lines behind a fixed prefix.
struct Prefixed {
    prefix: String,
    format: Format,
}

impl<S, N> FormatEvent<S, N> for Prefixed
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str(&self.prefix)?;
        self.format.format_event(context, writer, event)
    }
}

/// Starts logging; the first call of a process counts.
pub fn start(args: &LoggingArgs) {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(&args.startup_log_filter))
        .with_ansi(false);
    let started = match args.log_format {
        LogFormat::Json => subscriber.json().try_init(),
        LogFormat::Text => subscriber
            .event_format(Prefixed {
                prefix: args.log_prefix.clone().unwrap_or_default(),
                format: Format::default().with_ansi(false),
            })
            .try_init(),
    };
    if let Err(error) = started {
        tracing::debug!(%error, "logging was started before");
    }
}
