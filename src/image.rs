//! Image references: versions, siblings and the upgrade window.
