//! Starts the operator: arguments in, exit code out.

fn main() {}
