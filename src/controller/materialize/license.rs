//! The licence key: which environment it is for.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value};
use uuid::Uuid;

const ISSUER: &str = "Materialize, Inc.";
const WAY_OUT: &str =
    "put the key as Materialize, Inc. issued it into license_key of the backend Secret";

/// Why a licence key cannot be used. Nothing of the key itself is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LicenseError {
    /// Not three parts with dots between them.
    #[error(
        "invalid licence key: not a JSON web token (three parts with dots between them): {WAY_OUT}"
    )]
    NotAToken,
    /// A part is not what it is in a JSON web token.
    #[error("invalid licence key: the {part} is not {expected}: {WAY_OUT}")]
    Part {
        /// Which part.
        part: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A member is missing or has a value that no licence has.
    #[error("invalid licence key: {member} is not {expected}: {WAY_OUT}")]
    Member {
        /// The member.
        member: &'static str,
        /// What it should be.
        expected: &'static str,
    },
}

/// The environment that a licence key is for; none if it is for any.
///
/// Only the form is checked, not the signature: that takes a public key which only Materialize's own
/// images hold, and environmentd verifies the licence with it before it serves. So a forged key gets as
/// far as a generation that never becomes ready, and no further. An expired key is allowed: what an
/// environment may still do with one is environmentd's to decide.
///
/// # Errors
/// [`LicenseError`] naming what is wrong.
pub fn environment_id(key: &str) -> Result<Option<Uuid>, LicenseError> {
    let parts: Vec<&str> = key.trim().split('.').collect();
    let [header, payload, signature] = parts.as_slice() else {
        return Err(LicenseError::NotAToken);
    };
    check_header(&members("header", header)?)?;
    let claims = members("payload", payload)?;
    check_claims(&claims)?;
    if bytes("signature", signature)?.is_empty() {
        return Err(LicenseError::Part {
            part: "signature",
            expected: "there",
        });
    }
    Ok(claimed_environment(&claims))
}

fn check_header(header: &Map<String, Value>) -> Result<(), LicenseError> {
    require(text(header, "alg")? == "PS256", "alg", "PS256")?;
    require(text(header, "typ")? == "JWT", "typ", "JWT")
}

fn check_claims(claims: &Map<String, Value>) -> Result<(), LicenseError> {
    require(text(claims, "iss")? == ISSUER, "iss", ISSUER)?;
    require(number(claims, "version")? == 1.0, "version", "1")?;
    text(claims, "sub")?;
    require(claims.contains_key("aud"), "aud", "there")?;
    let (not_before, expiry) = (number(claims, "nbf")?, number(claims, "exp")?);
    let issued = number(claims, "iat")?;
    let in_order = (not_before..=expiry).contains(&issued);
    require(in_order, "iat", "between nbf and exp")
}

/// The audience, which may be a list, else the subject: the first that is a UUID.
fn claimed_environment(claims: &Map<String, Value>) -> Option<Uuid> {
    let audience = match claims.get("aud") {
        Some(Value::Array(many)) => many.as_slice(),
        Some(one) => std::slice::from_ref(one),
        None => &[],
    };
    audience
        .iter()
        .chain(claims.get("sub"))
        .filter_map(Value::as_str)
        .find_map(|text| Uuid::try_parse(text).ok())
        .filter(|id| !id.is_nil())
}

fn text<'a>(of: &'a Map<String, Value>, member: &'static str) -> Result<&'a str, LicenseError> {
    let expected = "a text";
    of.get(member)
        .and_then(Value::as_str)
        .ok_or(LicenseError::Member { member, expected })
}

fn number(of: &Map<String, Value>, member: &'static str) -> Result<f64, LicenseError> {
    let expected = "a number";
    of.get(member)
        .and_then(Value::as_f64)
        .ok_or(LicenseError::Member { member, expected })
}

fn require(holds: bool, member: &'static str, expected: &'static str) -> Result<(), LicenseError> {
    if holds {
        Ok(())
    } else {
        Err(LicenseError::Member { member, expected })
    }
}

fn members(part: &'static str, text: &str) -> Result<Map<String, Value>, LicenseError> {
    let expected = "a JSON object";
    serde_json::from_slice(&bytes(part, text)?).map_err(|_| LicenseError::Part { part, expected })
}

fn bytes(part: &'static str, text: &str) -> Result<Vec<u8>, LicenseError> {
    let expected = "base64url";
    URL_SAFE_NO_PAD
        .decode(text)
        .map_err(|_| LicenseError::Part { part, expected })
}

#[cfg(test)]
mod tests;
