//! Custom resource definitions: from the Rust types to the API server.
