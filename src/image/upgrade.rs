//! The upgrade window: from which version which other may be rolled out.

use semver::Version;

use super::ImageRef;

/// Why one image must not follow another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The new image is older.
    #[error(
        "environmentd cannot be downgraded from {from} to {to}: set environmentdImageRef to {from} or a newer image"
    )]
    Downgrade {
        /// The image that runs.
        from: String,
        /// The image asked for.
        to: String,
    },
    /// The new image is too far ahead.
    #[error("environmentd cannot be upgraded from {from} to {to} in one step: {way_out}")]
    TooFar {
        /// The image that runs.
        from: String,
        /// The image asked for.
        to: String,
        /// What may be rolled out instead.
        way_out: &'static str,
    },
}

const ONE_MINOR: &str = "go up one minor version at a time";
const ONE_MAJOR: &str = "go up one major version at a time";
const THROUGH_0_147_20: &str =
    "from Self-Managed 25.2 go to v0.147.20 first, from there to a version v26";

/// Whether `to` may be rolled out where `from` is the last image that was; always if either version cannot be told.
///
/// # Errors
/// [`Refusal`] naming both images and the way out.
pub fn upgrade_allowed(from: &ImageRef, to: &ImageRef) -> Result<(), Refusal> {
    let (Some(active), Some(next)) = (from.version(), to.version()) else {
        return Ok(());
    };
    if next.cmp_precedence(&active).is_lt() {
        return Err(Refusal::Downgrade {
            from: from.to_string(),
            to: to.to_string(),
        });
    }
    match too_far(&active, &next) {
        None => Ok(()),
        Some(way_out) => Err(Refusal::TooFar {
            from: from.to_string(),
            to: to.to_string(),
            way_out,
        }),
    }
}

/// The way out if `next`, not older than `active`, is outside of the window.
fn too_far(active: &Version, next: &Version) -> Option<&'static str> {
    let (allowed, way_out) = match (active.major, next.major) {
        (0, 0) => {
            let one_up = next.minor <= active.minor.saturating_add(1);
            let self_managed = (active.minor, next.minor) == (130, 147);
            (one_up || self_managed, ONE_MINOR)
        }
        (0, 26) => {
            let self_managed = active.minor == 147 && active.patch >= 20;
            (self_managed || active.minor >= 164, THROUGH_0_147_20)
        }
        (0, _) => (false, THROUGH_0_147_20),
        (26.., _) => (next.major - active.major <= 1, ONE_MAJOR),
        _ => (true, ONE_MAJOR),
    };
    (!allowed).then_some(way_out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn image(tag: &str) -> ImageRef {
        ImageRef::parse(&format!("registry:5000/materialize/environmentd:{tag}"))
    }

    #[rstest]
    #[case("v0.83.0", "v0.84.0", true)]
    #[case("v0.83.0", "v0.85.0", false)]
    #[case("v0.83.3", "v0.83.2", false)]
    #[case("v0.83.2", "v0.83.9", true)]
    #[case("v0.147.20", "v26.0.0", true)]
    #[case("v0.147.20", "v27.0.0", false)]
    #[case("v0.147.1", "v26.0.0", false)]
    #[case("v0.147.20", "v1.0.0", false)]
    #[case("v0.148.0", "v26.0.0", false)]
    #[case("v0.163.9", "v26.0.0", false)]
    #[case("v0.164.0", "v26.0.0", true)]
    #[case("v0.130.0", "v0.147.0", true)]
    #[case("v0.130.4", "v0.147.20", true)]
    #[case("v0.131.0", "v0.147.0", false)]
    #[case("v0.130.0", "v26.1.0", false)]
    #[case("v26.0.0", "v27.7.3", true)]
    #[case("v26.0.0", "v28.0.1", false)]
    #[case("v26.5.3", "v26.10.0", true)]
    #[case("v26.1.0", "v26.1.0-dev.0", false)]
    #[case("v26.1.0--b", "v26.1.0--a", true)]
    #[case("v1.0.0", "v9.0.0", true)]
    #[case("latest", "v0.1.0", true)]
    #[case("v26.0.0", "latest", true)]
    fn the_window(#[case] from: &str, #[case] to: &str, #[case] allowed: bool) {
        assert_eq!(upgrade_allowed(&image(from), &image(to)).is_ok(), allowed);
    }

    #[rstest]
    #[case("v0.147.1", "v26.0.0", "v0.147.20 first")]
    #[case("v26.0.0", "v28.0.0", "one major version at a time")]
    #[case("v0.83.0", "v0.85.0", "one minor version at a time")]
    #[case("v0.83.3", "v0.83.2", "set environmentdImageRef to")]
    fn a_refusal_names_both_images_and_the_way_out(
        #[case] from: &str,
        #[case] to: &str,
        #[case] way_out: &str,
    ) {
        let (from, to) = (image(from), image(to));
        let message = upgrade_allowed(&from, &to).unwrap_err().to_string();
        for part in [&from.to_string(), &to.to_string(), way_out] {
            assert!(message.contains(part), "{message} lacks {part}");
        }
    }

    fn version() -> impl Strategy<Value = (u64, u64, u64)> {
        (prop_oneof![Just(0_u64), 0..40_u64], 0..200_u64, 0..40_u64)
    }

    proptest! {
        #[test]
        fn never_a_downgrade(from in version(), to in version()) {
            let tag = |(a, b, c): (u64, u64, u64)| format!("v{a}.{b}.{c}");
            let allowed = upgrade_allowed(&image(&tag(from)), &image(&tag(to))).is_ok();
            prop_assert!(!allowed || to >= from);
        }

        #[test]
        fn the_same_version_always(same in version()) {
            let same = image(&format!("v{}.{}.{}", same.0, same.1, same.2));
            prop_assert_eq!(upgrade_allowed(&same, &same), Ok(()));
        }
    }
}
