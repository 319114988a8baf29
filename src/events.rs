//! Kubernetes Events about custom resources.

use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tracing::warn;

use crate::api::FIELD_MANAGER;
use crate::election::is_fence_closed;
use crate::errors::cause_chain;

/// The longest note that the API server accepts, in bytes.
const NOTE_BYTES: usize = 1024;

/// Bound on publishing one Event.
const PUBLISH_BOUND: Duration = Duration::from_secs(5);

/// Publishes Events of one controller in the name of this replica.
#[derive(Clone)]
pub struct Publisher {
    client: Client,
    reporter: Reporter,
}

/// One Event that was published and can be repeated as a series.
#[derive(Clone)]
pub struct Published {
    note: String,
    recorder: Recorder,
}

impl Publisher {
    /// A publisher for `controller`; `identity` names this replica.
    pub fn new(client: Client, controller: &str, identity: &str) -> Self {
        let reporter = Reporter {
            controller: format!("{FIELD_MANAGER}/{controller}"),
            instance: Some(identity.to_owned()),
        };
        Self { client, reporter }
    }

    /// Publishes an Event of its own. A failure is only logged.
    pub async fn publish(&self, regarding: &ObjectReference, event: Event) {
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        send(&recorder, regarding, event).await;
    }

    /// Publishes a failure. One with the note of `before` is counted in the series of `before`;
    /// any other opens a new Event. A failure to publish is only logged.
    pub async fn publish_failure(
        &self,
        regarding: &ObjectReference,
        reason: &str,
        action: &str,
        why: &str,
        before: Option<Published>,
    ) -> Published {
        let note = note(why);
        let published = match before {
            Some(before) if before.note == note => before,
            _ => Published {
                note: note.clone(),
                recorder: Recorder::new(self.client.clone(), self.reporter.clone()),
            },
        };
        let event = Event {
            type_: EventType::Warning,
            reason: reason.to_owned(),
            note: Some(note),
            action: action.to_owned(),
            secondary: None,
        };
        send(&published.recorder, regarding, event).await;
        published
    }
}

async fn send(recorder: &Recorder, regarding: &ObjectReference, mut event: Event) {
    event.note = event.note.map(|text| note(&text));
    match tokio::time::timeout(PUBLISH_BOUND, recorder.publish(&event, regarding)).await {
        Ok(Ok(())) => {}
        // The next leader publishes its own.
        Ok(Err(error)) if is_fence_closed(&error) => {}
        Ok(Err(error)) => {
            warn!(
                error = cause_chain(&error),
                reason = event.reason,
                "cannot publish an Event"
            );
        }
        Err(_) => {
            warn!(reason = event.reason, bound = ?PUBLISH_BOUND, "publishing an Event took too long");
        }
    }
}

/// `text` cut to what an Event can hold, on a character boundary.
fn note(text: &str) -> String {
    const ELLIPSIS: &str = "...";
    if text.len() <= NOTE_BYTES {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(NOTE_BYTES - ELLIPSIS.len());
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}{ELLIPSIS}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn short_notes_stay() {
        assert_eq!(note(&"x".repeat(1024)), "x".repeat(1024));
    }

    #[test]
    fn long_notes_are_cut_on_a_character() {
        let cut = note(&"ü".repeat(600));
        assert_eq!(
            cut.len(),
            1023,
            "510 characters of two bytes and three dots"
        );
        assert!(cut.ends_with("ü..."));
    }

    proptest! {
        #[test]
        fn notes_fit(text in ".{0,2000}") {
            let cut = note(&text);
            prop_assert!(cut.len() <= 1024);
            prop_assert!(cut == text || text.starts_with(cut.strip_suffix("...").unwrap()));
        }
    }
}
