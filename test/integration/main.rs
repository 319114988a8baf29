//! Integration tests against a real API server.

mod chart;
