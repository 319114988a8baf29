//! The custom resources as users see them.
