//! The whole life of a process, on one page.
