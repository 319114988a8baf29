//! Rules over more than one flag.

use std::time::Duration;

use super::{Args, CloudProvider, UsageError};

/// What the stop sequence may take beyond the sum of its own bounds.
const STOP_MARGIN: Duration = Duration::from_secs(5);

impl Args {
    /// Checks every combination that the single flags cannot.
    ///
    /// # Errors
    /// [`UsageError`] naming the flag and the way out.
    pub fn validate(&self) -> Result<(), UsageError> {
        self.validate_webhook()?;
        self.validate_node_upgrade()?;
        let timings = self.election.timings();
        timings.validate().map_err(|error| {
            UsageError(format!(
                "the --leader-election-* durations don't fit: {error}"
            ))
        })?;
        let grace = self.process.termination_grace_period;
        if self.stop_budget() >= grace {
            return usage(&format!(
                "a stop can take {} (the longest of twice --leader-election-join-timeout, --leader-election-release-timeout, \
                 and --webhook-linger plus --webhook-drain; and {} more), which must be less than --termination-grace-period {}",
                humantime::format_duration(self.stop_budget()),
                humantime::format_duration(STOP_MARGIN),
                humantime::format_duration(grace)
            ));
        }
        if self.environment.cloud_provider == CloudProvider::Aws
            && self.environment.aws.aws_account_id.is_none()
        {
            return usage("--cloud-provider aws needs --aws-account-id");
        }
        Ok(())
    }

    /// The longest that a stop can take, whatever hangs: the Lease is given back while the webhook
    /// is drained.
    pub fn stop_budget(&self) -> Duration {
        let webhook = &self.webhook;
        let drained = webhook.webhook_linger.saturating_add(webhook.webhook_drain);
        let released = self.election.timings().stop_time();
        drained.max(released).saturating_add(STOP_MARGIN)
    }

    fn validate_webhook(&self) -> Result<(), UsageError> {
        let webhook = &self.webhook;
        self.definitions.validate()?;
        if !self.definitions.install_v1_crd {
            return Ok(());
        }
        if webhook.webhook_cert_reload_interval.is_zero() {
            return usage("--webhook-cert-reload-interval must be longer than 0s");
        }
        for (flag, path) in [
            ("--tls-ca", &self.definitions.tls_ca),
            ("--tls-cert", &webhook.tls_cert),
            ("--tls-key", &webhook.tls_key),
        ] {
            std::fs::File::open(path).map_err(|error| {
                UsageError(format!(
                    "--install-v1-crd needs a certificate: {flag} {} cannot be read: {error}",
                    path.display()
                ))
            })?;
        }
        Ok(())
    }

    fn validate_node_upgrade(&self) -> Result<(), UsageError> {
        let watcher = &self.node_upgrade;
        if !watcher.enable_gcp_node_upgrade_rollout_trigger {
            return Ok(());
        }
        const SWITCH: &str = "--enable-gcp-node-upgrade-rollout-trigger";
        if self.environment.cloud_provider != CloudProvider::Gcp {
            return usage(&format!("{SWITCH} needs --cloud-provider gcp"));
        }
        if !self.definitions.install_v1_crd {
            return usage(&format!("{SWITCH} needs --install-v1-crd"));
        }
        let Some(subscription) = &watcher.gcp_node_upgrade_notification_subscription else {
            return usage(&format!(
                "{SWITCH} needs --gcp-node-upgrade-notification-subscription"
            ));
        };
        let parts: Vec<&str> = subscription.split('/').collect();
        if !matches!(parts.as_slice(), ["projects", project, "subscriptions", name] if !project.is_empty() && !name.is_empty())
        {
            return usage(
                "--gcp-node-upgrade-notification-subscription must be projects/{project}/subscriptions/{subscription}",
            );
        }
        if watcher.gcp_cluster_name.is_none() {
            return usage(&format!("{SWITCH} needs --gcp-cluster-name"));
        }
        if watcher.gcp_cluster_location.is_none() {
            return usage(&format!("{SWITCH} needs --gcp-cluster-location"));
        }
        Ok(())
    }
}

pub(super) fn usage(message: &str) -> Result<(), UsageError> {
    Err(UsageError(message.to_owned()))
}
