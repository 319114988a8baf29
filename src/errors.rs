//! Errors as a person reads them.

use std::error::Error;

/// An error and its causes on one line; causes that are already told are left out.
pub fn cause_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        cause = error.source();
    }
    text
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
}
