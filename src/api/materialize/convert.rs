//! Conversion between the versions of `Materialize`, member by member over raw JSON.
