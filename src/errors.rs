//! Errors as a person reads them.

use std::error::Error;

use kube::core::Status;

/// An error and its causes on one line; causes that are already told are left out.
pub fn cause_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = told(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = told(error);
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        cause = error.source();
    }
    text
}

/// What an error says; of an answer of the API server the message alone, not its whole structure.
fn told(error: &(dyn Error + 'static)) -> String {
    let refusal = error
        .downcast_ref::<kube::Error>()
        .or_else(|| error.downcast_ref::<Box<kube::Error>>().map(AsRef::as_ref));
    let status = match refusal {
        Some(kube::Error::Api(status)) => Some(status.as_ref()),
        _ => error
            .downcast_ref::<Status>()
            .or_else(|| error.downcast_ref::<Box<Status>>().map(AsRef::as_ref)),
    };
    match status {
        Some(status) if !status.message.is_empty() => status.message.clone(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Failure {
        text: &'static str,
        source: Option<Box<Failure>>,
    }

    fn failure(texts: &[&'static str]) -> Option<Box<Failure>> {
        let (text, rest) = texts.split_first()?;
        Some(Box::new(Failure {
            text,
            source: failure(rest),
        }))
    }

    #[test]
    fn a_cause_is_told_once() {
        let error = failure(&["cannot read Secret a/b", "not found", "not found"]).unwrap();
        assert_eq!(cause_chain(&*error), "cannot read Secret a/b: not found");
    }

    #[test]
    fn the_api_server_is_quoted_and_not_dumped() {
        let status = Status::failure("exceeded quota: none", "Forbidden");
        let source: Box<kube::Error> = kube::Error::Api(status.boxed()).into();
        #[derive(Debug, thiserror::Error)]
        #[error("cannot apply StatefulSet a/b")]
        struct Failed {
            source: Box<kube::Error>,
        }
        assert_eq!(
            cause_chain(&Failed { source }),
            "cannot apply StatefulSet a/b: exceeded quota: none"
        );
    }
}
